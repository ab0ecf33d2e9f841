#include "agent/commands/policy_file.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace imagefs_guard::policy_file_test {

namespace {

/// A ConfigMap as the kubelet mounts it: config.yaml -> ..data/config.yaml, ..data -> a directory.
struct MountedConfigMap {
  MountedConfigMap() {
    std::string name = std::filesystem::temp_directory_path() / "imagefs-guard-policy-XXXXXX";
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder = name;
    std::filesystem::create_symlink("..data/config.yaml", folder / "config.yaml");
  }

  ~MountedConfigMap() { std::filesystem::remove_all(folder); }

  MountedConfigMap(const MountedConfigMap&) = delete;
  MountedConfigMap& operator=(const MountedConfigMap&) = delete;

  void put(const std::string& text) {
    const std::string version = "..version_" + std::to_string(++versions);
    std::filesystem::create_directory(folder / version);
    std::ofstream(folder / version / "config.yaml") << text;
    std::filesystem::create_symlink(version, folder / "..data_tmp");
    std::filesystem::rename(folder / "..data_tmp", folder / "..data");
  }

  [[nodiscard]] std::string path() const { return folder / "config.yaml"; }

  std::filesystem::path folder;
  int versions = 0;
};

}  // namespace

TEST_CASE("policy file: a swap is seen once, bad ones too") {
  MountedConfigMap map;
  map.put("tickInterval: 7s\n");
  PolicyFile file(map.path());
  CHECK(file.load().value().tick_interval == std::chrono::seconds(7));
  CHECK_FALSE(file.poll().has_value());

  map.put("tickInterval: 8s\n");
  auto changed = file.poll();
  REQUIRE(changed.has_value());
  CHECK(changed->value().tick_interval == std::chrono::seconds(8));
  CHECK_FALSE(file.poll().has_value());

  map.put("mode: enforce\ntickIntervall: 9s\n");
  changed = file.poll();
  REQUIRE(changed.has_value());
  REQUIRE_FALSE(changed->has_value());
  const std::string message = changed->error().message;
  CAPTURE(message);
  CHECK(message.find("line 2") != std::string::npos);
  CHECK(message.find("tickInterval") != std::string::npos);
  CHECK_FALSE(file.poll().has_value());

  map.put("tickInterval: 8s\n");
  CHECK(file.poll().has_value());
}

TEST_CASE("policy file: written in place, gone, back again") {
  MountedConfigMap map;
  map.put("mode: enforce\n");
  PolicyFile file(map.path());
  CHECK(file.load().has_value());
  std::ofstream(map.path()) << "mode: observe\nfloorMargin: 1Mi\n";
  auto changed = file.poll();
  REQUIRE(changed.has_value());
  CHECK(changed->value().mode == Mode::Observe);

  std::filesystem::remove(map.folder / "..data");
  changed = file.poll();
  REQUIRE(changed.has_value());
  CHECK(changed->error().kind == ErrorKind::NotFound);
  CHECK_FALSE(file.poll().has_value());
  map.put("mode: observe\n");
  CHECK(file.poll().has_value());
}

TEST_CASE("policy file: without one the built-in policy, for good") {
  PolicyFile file("");
  CHECK(file.load().value() == default_policy());
  CHECK_FALSE(file.poll().has_value());
}

TEST_CASE("policy file: the taint's key can't change while the old taint may be there") {
  Policy next = default_policy();
  next.mode = Mode::Observe;
  CHECK_FALSE(why_not_now(default_policy(), next).has_value());
  next.taint_key = "example.com/other";
  const auto refusal = why_not_now(default_policy(), next);
  REQUIRE(refusal.has_value());
  CHECK(refusal->message.find("taintKey") != std::string::npos);
}

}  // namespace imagefs_guard::policy_file_test
