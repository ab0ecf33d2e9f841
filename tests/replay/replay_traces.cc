// Every trace of this folder is decided again. UPDATE_GOLDEN=1 rewrites their decisions.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "agent/commands/replay.h"

namespace imagefs_guard {
namespace {

std::vector<std::string> traces() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TRACES)) {
    if (entry.path().extension() == ".jsonl") {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_CASE("every recorded decision is decided the same again") {
  const std::vector<std::string> paths = traces();
  CHECK(!paths.empty());
  for (const std::string& path : paths) {
    CAPTURE(path);
    const std::string trace = read(path);
    if (std::getenv("UPDATE_GOLDEN") != nullptr) {
      const auto renewed = renew_trace(trace);
      REQUIRE(renewed);
      std::ofstream(path) << *renewed;
      continue;
    }
    const auto report = replay_trace(trace, std::nullopt);
    REQUIRE(report);
    const std::string& differences = report->text;
    CAPTURE(differences);
    CHECK(report->differing == 0);
  }
}

}  // namespace
}  // namespace imagefs_guard
