/// daemonset/policy.md names every key of the policy as the code does. UPDATE_GOLDEN=1 rewrites it.

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "agent/wire/policy.h"

namespace imagefs_guard::policy_doc_test {
namespace {

constexpr const char* kBegin = "<!-- keys: begin -->\n";
constexpr const char* kEnd = "<!-- keys: end -->\n";

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// A list, not a table: a table's row would be longer than a line of this project may be.
std::string keys_text() {
  std::string text;
  for (const PolicyKey& key : policy_keys()) {
    text += "- **`" + key.name + "`** (" + key.unit + ", default ";
    text += key.default_value.empty() ? "none" : "`" + key.default_value + "`";
    text += ")\\\n  " + key.effect + "\n";
  }
  return text;
}

TEST_CASE("the documentation of the policy is the code's") {
  const std::string path = POLICY_DOC;
  const std::string document = read(path);
  const auto begin = document.find(kBegin);
  const auto end = document.find(kEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const auto from = begin + std::string(kBegin).size();
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << document.substr(0, from) << keys_text() << document.substr(end);
    return;
  }
  CHECK(document.substr(from, end - from) == keys_text());
}

}  // namespace
}  // namespace imagefs_guard::policy_doc_test
