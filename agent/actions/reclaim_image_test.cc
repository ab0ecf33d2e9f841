#include "agent/actions/reclaim_image.h"

#include <doctest/doctest.h>

#include "agent/runtime/fake_containerd.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::reclaim_image_test {
namespace {

struct World {
  FakeLoop loop;
  FakeContainerd fake{loop};
  Containerd containerd{fake, "overlayfs"};
  std::int64_t available_bytes = 100;
  std::vector<std::int64_t> grown;
  std::vector<std::optional<Error>> outcomes;
  ReclaimImageRunner runner{
      containerd,
      [this] { return available_bytes; },
      [this](const ReclaimImage&, std::int64_t bytes) { grown.push_back(bytes); }};
  ReclaimImage action{.image_id = Digest{}, .image = "x", .expected_bytes = 60, .reason = "room"};

  World() { action.image_id.bytes.fill(7); }

  void remove() {
    runner.start(action,
                 [this](std::optional<Error> error) { outcomes.push_back(std::move(error)); });
  }
};

TEST_CASE("an image is removed by its ID, and what comes back is measured") {
  World world;
  world.fake.image_ids.insert(to_string(world.action.image_id));
  world.remove();
  world.available_bytes = 150;
  world.loop.advance(std::chrono::milliseconds(10));
  CHECK(world.fake.image_ids.empty());
  CHECK(world.grown == std::vector<std::int64_t>{50});
  REQUIRE(world.outcomes.size() == 1);
  CHECK_FALSE(world.outcomes[0].has_value());

  // Gone already is as good.
  world.remove();
  world.loop.advance(std::chrono::milliseconds(10));
  CHECK_FALSE(world.outcomes.at(1).has_value());
}

TEST_CASE("a removal that fails says which, and an unreadable disk is not a change") {
  World world;
  world.fake.fail_next("ImageService/RemoveImage", ErrorKind::Unavailable);
  world.remove();
  world.loop.advance(std::chrono::milliseconds(10));
  REQUIRE(world.outcomes.at(0).has_value());
  CHECK(world.outcomes[0]->message.starts_with("remove x: "));
  CHECK(world.grown.empty());

  world.available_bytes = -1;
  world.remove();
  world.loop.advance(std::chrono::milliseconds(10));
  CHECK(world.grown.empty());
  CHECK_FALSE(world.outcomes.at(1).has_value());
}

}  // namespace
}  // namespace imagefs_guard::reclaim_image_test
