#include "agent/runtime/hold.h"

#include <doctest/doctest.h>

#include "agent/runtime/fake_containerd.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::hold_test {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Digest digest(std::uint8_t fill) {
  Digest made;
  made.bytes.fill(fill);
  return made;
}

HoldRef config_ref(std::uint8_t fill) {
  return {.ref = "config-" + to_string(digest(fill)), .expected = digest(fill)};
}

HoldRef layer_ref(std::uint8_t fill) {
  return {.ref = "layer-" + to_string(digest(fill)), .expected = digest(fill)};
}

HoldPull pull(std::uint8_t manifest, std::vector<HoldRef> layers = {}) {
  return {.manifest_digest = digest(manifest),
          .image = "registry.example/x:1",
          .config = config_ref(static_cast<std::uint8_t>(manifest + 1)),
          .layers = std::move(layers),
          .reason = "test"};
}

struct World {
  FakeLoop loop;
  FakeContainerd fake{loop};
  Containerd containerd{fake, "overlayfs"};
  std::vector<Digest> held;
  std::vector<Digest> released;
  int changes = 0;
  HoldKeeper keeper{
      loop,
      containerd,
      {.on_held = [this](const Digest& manifest, Duration) { held.push_back(manifest); },
       .on_released = [this](const Digest& manifest, Duration) { released.push_back(manifest); },
       .changed = [this] { ++changes; }}};

  [[nodiscard]] HoldState state() const {
    const std::vector<Hold> holds = keeper.holds();
    REQUIRE(holds.size() == 1);
    return holds[0].state;
  }
};

}  // namespace

TEST_CASE("a hold is taken, reported once, and released when it is no longer named") {
  World world;
  const std::vector<HoldPull> named = {pull(1)};
  world.keeper.set_desired(named);
  CHECK(world.state() == HoldState::Opening);
  world.loop.run_ready();
  CHECK(world.state() == HoldState::Held);
  CHECK(world.held == std::vector{digest(1)});
  CHECK(world.changes == 1);
  CHECK(world.fake.is_held(config_ref(2).ref));
  CHECK(world.keeper.refs() == std::vector{config_ref(2).ref});

  for (int tick = 0; tick < 10; ++tick) {
    world.keeper.set_desired(named);
    world.loop.advance(seconds(1));
  }
  CHECK(world.held.size() == 1);
  CHECK(world.fake.calls["Content/Write"] == 1);

  world.keeper.set_desired({});
  CHECK_FALSE(world.fake.is_held(config_ref(2).ref));
  CHECK(world.released == std::vector{digest(1)});
  CHECK(world.keeper.holds().empty());
}

TEST_CASE("a hold that no pull took over leaves no ingest behind") {
  World world;
  world.keeper.set_desired({pull(1)});
  world.loop.run_ready();
  CHECK(world.fake.ingests.size() == 1);
  world.keeper.set_desired({});
  world.loop.advance(seconds(4));
  CHECK(world.fake.ingests.size() == 1);  // a pull that waits must have had its chance
  world.loop.advance(seconds(4));
  CHECK(world.fake.ingests.empty());
  CHECK(world.fake.open_streams() == 0);
}

TEST_CASE("what a pull took over is not touched") {
  World world;
  world.keeper.set_desired({pull(1)});
  world.loop.run_ready();
  world.keeper.set_desired({});
  SUBCASE("it downloads") {
    world.fake.locked_by_pulls.insert(config_ref(2).ref);
  }
  SUBCASE("it was interrupted") {
    world.fake.ingests[config_ref(2).ref] = 17;
  }
  world.loop.advance(seconds(20));
  CHECK(world.fake.ingests.size() == 1);
  CHECK(world.fake.calls["Content/Abort"] == 0);
  CHECK(world.fake.open_streams() == 0);
}

TEST_CASE("a hold that is named again soon is not swept away") {
  World world;
  world.keeper.set_desired({pull(1)});
  world.loop.run_ready();
  world.keeper.set_desired({});
  world.loop.advance(seconds(3));
  world.keeper.set_desired({pull(1)});
  world.loop.advance(seconds(20));
  CHECK(world.state() == HoldState::Held);
  CHECK(world.fake.ingests.size() == 1);
  CHECK(world.held.size() == 2);
}

TEST_CASE("too late: tried at once for a while, then with every tick") {
  World world;
  world.fake.locked_by_pulls.insert(config_ref(2).ref);
  world.keeper.set_desired({pull(1)});
  world.loop.advance(seconds(4));
  world.keeper.set_desired({pull(1)});  // too soon after the last try
  world.loop.run_ready();
  CHECK(world.state() == HoldState::TooLate);
  const int tries = world.fake.calls["Content/Write"];
  CHECK(tries >= 35);
  CHECK(tries <= 45);
  world.loop.advance(seconds(5));
  CHECK(world.fake.calls["Content/Write"] == tries);
  world.keeper.set_desired({pull(1)});
  world.keeper.set_desired({pull(1)});
  world.loop.run_ready();
  CHECK(world.fake.calls["Content/Write"] == tries + 1);

  world.fake.locked_by_pulls.clear();
  world.loop.advance(seconds(5));
  world.keeper.set_desired({pull(1)});
  world.loop.run_ready();
  CHECK(world.state() == HoldState::Held);
}

TEST_CASE("the config is here: every missing layer is held instead") {
  World world;
  world.fake.blobs[to_string(digest(2))] = "{}";
  world.fake.blob_sizes[to_string(digest(10))] = 5;
  const HoldPull named = pull(1, {layer_ref(10), layer_ref(11), layer_ref(12), layer_ref(11)});
  SUBCASE("all can be held") {
    world.keeper.set_desired({named});
    world.loop.run_ready();
    CHECK(world.state() == HoldState::Held);
    CHECK(world.fake.is_held(layer_ref(11).ref));
    CHECK(world.fake.is_held(layer_ref(12).ref));
    CHECK_FALSE(world.fake.is_held(layer_ref(10).ref));
    CHECK(world.held.size() == 1);
    world.keeper.set_desired({});
    CHECK(world.fake.open_streams() == 0);
  }
  SUBCASE("one is already on its way") {
    world.fake.locked_by_pulls.insert(layer_ref(12).ref);
    world.keeper.set_desired({named});
    world.loop.run_ready();
    CHECK(world.state() == HoldState::TooLate);
    CHECK(world.fake.is_held(layer_ref(11).ref));
    CHECK(world.held.empty());
    const int tries = world.fake.calls["Content/Write"];
    world.loop.advance(seconds(4));  // each try stops containerd's other writers
    world.keeper.set_desired({named});
    world.loop.run_ready();
    CHECK(world.fake.calls["Content/Write"] <= tries + 2);  // what is here, not what is locked
  }
  SUBCASE("nothing is missing") {
    world.fake.blob_sizes[to_string(digest(11))] = 5;
    world.fake.blob_sizes[to_string(digest(12))] = 5;
    world.keeper.set_desired({named});
    world.loop.run_ready();
    CHECK(world.state() == HoldState::NothingToHold);
  }
}

TEST_CASE("the config goes away and is held: the layers' ingests must not stay") {
  World world;
  world.fake.blobs[to_string(digest(2))] = "{}";
  world.fake.ingests["layer-" + to_string(digest(8))] = 100;  // complete, of a cancelled pull
  world.fake.ingest_total_bytes = 100;
  const std::vector<HoldPull> named = {pull(1, {layer_ref(7), layer_ref(8)})};
  world.keeper.set_desired(named);
  world.loop.run_ready();
  world.keeper.set_desired(named);
  world.loop.run_ready();
  CHECK(world.fake.is_held(layer_ref(8).ref));
  world.fake.blobs.clear();
  for (int i = 0; i < 10; ++i) {
    world.loop.advance(seconds(1));
    world.keeper.set_desired(named);
  }
  CHECK(world.state() == HoldState::Held);
  CHECK(world.keeper.refs() == std::vector{config_ref(2).ref});
  CHECK(world.fake.ingests.size() == 1);
}

TEST_CASE("two images may share a layer") {
  World world;
  world.fake.blobs[to_string(digest(2))] = "{}";
  world.fake.blobs[to_string(digest(22))] = "{}";
  const std::vector<HoldPull> both = {pull(1, {layer_ref(50)}), pull(21, {layer_ref(50)})};
  world.keeper.set_desired(both);
  world.loop.run_ready();
  for (const Hold& hold : world.keeper.holds()) {
    CHECK(hold.state == HoldState::Held);
  }
  CHECK(world.held.size() == 2);
  world.keeper.set_desired({both[1]});
  CHECK(world.fake.is_held(layer_ref(50).ref));
  CHECK(world.state() == HoldState::Held);
  world.keeper.set_desired({});
  CHECK_FALSE(world.fake.is_held(layer_ref(50).ref));
}

TEST_CASE("a hold outlives a restart of containerd") {
  World world;
  world.keeper.set_desired({pull(1)});
  world.loop.run_ready();
  world.fake.reachable = false;
  world.fake.cut_streams();
  world.loop.run_ready();
  CHECK(world.state() == HoldState::Opening);
  world.loop.advance(milliseconds(1500));
  CHECK(world.state() == HoldState::Failed);
  CHECK(world.keeper.holds()[0].error.find("connect") != std::string::npos);
  CHECK(world.fake.calls["Content/Write"] < 10);
  world.fake.reachable = true;
  world.loop.advance(seconds(2));
  CHECK(world.state() == HoldState::Held);
  CHECK(world.keeper.holds()[0].error.empty());
  CHECK(world.held.size() == 1);  // it is the same hold
}

TEST_CASE("errors are told and tried again") {
  World world;
  world.fake.fail_next("Content/Write", ErrorKind::Internal);
  world.keeper.set_desired({pull(1)});
  world.loop.run_ready();
  CHECK(world.state() == HoldState::Failed);
  world.loop.advance(milliseconds(60));
  CHECK(world.state() == HoldState::Held);
}

TEST_CASE("everything can be let go at once") {
  World world;
  world.keeper.set_desired({pull(1), pull(11), pull(21)});
  world.loop.run_ready();
  CHECK(world.fake.open_streams() == 3);
  world.keeper.release_all();
  CHECK(world.fake.open_streams() == 0);
  CHECK(world.keeper.holds().empty());
  CHECK(world.released.size() == 3);
}

TEST_CASE("a pull whose refs have changed is held anew") {
  World world;
  world.keeper.set_desired({pull(1)});
  world.loop.run_ready();
  HoldPull other = pull(1);
  other.config = config_ref(99);
  world.keeper.set_desired({other});
  world.loop.run_ready();
  CHECK(world.fake.is_held(config_ref(99).ref));
  CHECK_FALSE(world.fake.is_held(config_ref(2).ref));
}

}  // namespace imagefs_guard::hold_test
