#include "agent/actions/cancel_pull.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/runtime/fake_containerd.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::cancel_pull_test {
namespace {

struct World {
  FakeLoop loop;
  FakeContainerd fake{loop};
  Containerd containerd{fake, "overlayfs"};
  CancelPullRunner runner{loop, containerd};
  int done = 0;
  std::optional<Error> error;

  void cancel(const std::vector<std::string>& leases) {
    runner.start({.manifest_digest = {}, .image = "x", .lease_ids = leases, .reason = "a test"},
                 [this](std::optional<Error> outcome) {
                   ++done;
                   error = std::move(outcome);
                 });
    loop.run_ready();
  }
};

}  // namespace

TEST_CASE("a pull is cancelled by deleting every lease of it, and no other") {
  World world;
  world.fake.leases = {{"a", {}}, {"b", {}}, {"c", {}}};
  world.cancel({"a", "c", "gone"});
  CHECK(world.done == 1);
  CHECK_FALSE(world.error.has_value());
  REQUIRE(world.fake.leases.size() == 1);
  CHECK(world.fake.leases.contains("b"));
}

TEST_CASE("one lease that stays does not keep the others, and is told") {
  World world;
  world.fake.leases = {{"a", {}}, {"b", {}}};
  world.fake.fail_next("Leases/Delete", ErrorKind::PermissionDenied);
  world.cancel({"a", "b"});
  CHECK(world.done == 1);
  REQUIRE(world.error.has_value());
  CHECK(world.error->kind == ErrorKind::PermissionDenied);
  CHECK(world.fake.leases.size() == 1);
  world.cancel({});
  CHECK(world.done == 2);
}

TEST_CASE("what a cancelled pull leaves is swept, also by one that fails late, and not for ever") {
  World world;
  world.fake.leases = {{"a", {}}};
  world.cancel({"a"});
  for (int i = 0; i < 2; ++i) {
    world.fake.orphan_directories = {"snapshots/7"};
    world.fake.orphan_files = {"blobs/sha256/1"};
    world.loop.advance(std::chrono::seconds(6));
    CHECK(world.fake.orphan_directories.empty());
    CHECK(world.fake.orphan_files.empty());
  }
  world.loop.advance(std::chrono::minutes(10));
  CHECK(world.fake.calls["Snapshots/Remove"] == 3);
  CHECK(world.fake.calls["Content/Delete"] == 3);
}

}  // namespace imagefs_guard::cancel_pull_test
