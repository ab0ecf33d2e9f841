#include "probes/runtime.h"

#include <doctest/doctest.h>

#include "agent/runtime/fake_containerd.h"
#include "probes/runtime_lists.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::runtime_test {

namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

Digest digest(std::uint8_t fill) {
  Digest made;
  made.bytes.fill(fill);
  return made;
}

std::string text(std::uint8_t fill) {
  return to_string(digest(fill));
}

struct World {
  FakeLoop loop;
  FakeContainerd fake{loop};
  Containerd containerd{fake, "overlayfs"};
  RuntimeProbe probe{loop, containerd};
  NodeSnapshot snapshot;
  int changes = 0;

  void start() {
    probe.start([this] { ++changes; });
    loop.advance(milliseconds(50));
  }

  /// What the planner would see now.
  const std::optional<RuntimeState>& see() {
    probe.contribute(snapshot);
    return snapshot.runtime;
  }

  /// Until the probe has gone quiet.
  void become_idle() { loop.advance(seconds(30)); }
};

}  // namespace

TEST_CASE("everything is listed once, in order") {
  World world;
  world.fake.images["b:1"] = {.name = "b:1", .target = digest(1)};
  world.fake.images["a:1"] = {.name = "a:1", .target = digest(2), .pinned = true};
  world.fake.blob_sizes[text(4)] = 44;
  world.fake.blob_sizes[text(3)] = 33;
  world.fake.committed[text(5)] = 500;
  world.fake.active["extract-1-a " + text(6)] = 60;
  world.fake.active["container-1"] = 1;
  world.fake.ingests["layer-" + text(7)] = 70;
  world.fake.leases["l1"] = {.content = {text(1)}, .ingests = {"layer-" + text(7)}};
  world.fake.leases["sandbox"] = {.content = {}, .ingests = {}, .expires = false};
  CHECK_FALSE(world.see().has_value());
  CHECK(world.snapshot.probe_errors.at("runtime") == "not asked yet");
  world.start();

  REQUIRE(world.see().has_value());
  CHECK(world.changes >= 1);
  CHECK(world.snapshot.probe_errors.empty());
  const RuntimeState& state = *world.snapshot.runtime;
  CHECK(state.version == "1.6.20");
  REQUIRE(state.images.size() == 2);
  CHECK(state.images[0].name == "a:1");
  CHECK(state.blobs == std::vector<LocalBlob>{{digest(3), 33}, {digest(4), 44}});
  CHECK(state.snapshots == std::vector{LayerSnapshot{.chain_id = digest(5)}});
  CHECK(state.extracts == std::vector{ActiveExtract{.chain_id = digest(6)}});
  REQUIRE(state.ingests.size() == 1);
  CHECK(state.ingests[0].offset_bytes == 70);
  REQUIRE(state.leases.size() == 1);
  CHECK(state.leases[0].content == std::vector{digest(1)});
  CHECK(state.leases[0].ingest_refs.size() == 1);
}

TEST_CASE("images are linked to their layers by what their blobs name") {
  std::vector<LocalImage> images = {{.name = "by-index", .target = digest(1)},
                                    {.name = "by-manifest", .target = digest(2)},
                                    {.name = "elsewhere", .target = digest(6)},
                                    {.name = "not-here", .target = digest(9)}};
  const std::vector<wire::ContentLinks> links = {
      {.digest = digest(1), .manifests = {digest(5), digest(2)}},  // 5: another platform's
      {.digest = digest(2), .config = digest(3)},
      {.digest = digest(3), .top_chain = digest(4), .snapshotter = "overlayfs"},
      {.digest = digest(6), .config = digest(7)},
      {.digest = digest(7), .top_chain = digest(8), .snapshotter = "stargz"}};
  link_images(images, links, "overlayfs");
  CHECK(images[0].image_id == digest(3));
  CHECK(images[0].top_chain == digest(4));
  CHECK(images[1].image_id == digest(3));
  CHECK(images[2].image_id.is_zero());
  CHECK(images[3].top_chain.is_zero());
  CHECK(has_unlinked(images));
  link_images(images, {}, "overlayfs");
  CHECK(images[0].image_id.is_zero());
}

TEST_CASE("what a layer stands on is known from the events too") {
  World world;
  world.fake.committed[text(5)] = 500;
  world.start();
  world.become_idle();
  const std::string key = "extract-1-a " + text(6);
  world.fake.publish({.topic = "/snapshot/prepare", .key = key, .name = text(5)});
  world.fake.publish({.topic = "/snapshot/prepare", .key = "a0b1c2", .name = text(6)});
  world.fake.publish({.topic = "/snapshot/commit", .key = key, .name = text(6)});
  world.loop.advance(milliseconds(100));
  REQUIRE(world.see()->snapshots.size() == 2);
  CHECK(world.see()->snapshots[1] == LayerSnapshot{.chain_id = digest(6), .parent = digest(5)});
  CHECK(world.see()->used_chains == std::vector{digest(5), digest(6)});
}

TEST_CASE("an idle node is asked once a minute") {
  World world;
  world.start();
  world.become_idle();
  world.fake.calls.clear();
  world.loop.advance(minutes(10));
  CHECK(world.fake.calls["Leases/List"] == 10);
  CHECK(world.fake.calls["Snapshots/List"] == 10);
  CHECK(world.fake.calls["Content/ListStatuses"] == 10);
  CHECK(world.changes < 3);
}

TEST_CASE("watchful: downloads and leases are seen within 0.3 s, the rest isn't listed more") {
  World world;
  world.start();
  world.become_idle();
  world.fake.calls.clear();
  world.probe.set_watchful(true);
  for (int i = 0; i < 100; ++i) {
    world.probe.set_watchful(true);  // every tick says it again
    world.loop.advance(milliseconds(100));
  }
  CHECK(world.fake.calls["Content/ListStatuses"] >= 30);
  CHECK(world.fake.calls["Content/ListStatuses"] <= 40);
  CHECK(world.fake.calls["Snapshots/List"] <= 1);

  world.fake.ingests["layer-" + text(7)] = 0;
  world.fake.leases["l1"] = {};
  const int before = world.changes;
  world.loop.advance(milliseconds(400));
  CHECK(world.changes > before);
  CHECK(world.see()->ingests.size() == 1);
  REQUIRE(world.see()->leases.size() == 1);
  CHECK(world.see()->leases[0].content.empty());
  world.fake.leases["l1"].content = {text(1)};
  world.loop.advance(milliseconds(400));
  CHECK(world.see()->leases[0].content == std::vector{digest(1)});

  world.probe.set_watchful(false);
  world.become_idle();
  world.fake.calls.clear();
  world.loop.advance(seconds(25));
  CHECK(world.fake.calls["Content/ListStatuses"] <= 1);
}

TEST_CASE("a pull is followed through its events, without listing snapshots") {
  World world;
  world.start();
  world.become_idle();
  world.fake.calls.clear();
  const std::string key = "extract-1-a " + text(6);
  world.fake.ingests["layer-" + text(7)] = 10;
  world.fake.publish({.topic = "/snapshot/prepare", .key = key});
  world.loop.advance(milliseconds(500));
  CHECK(world.see()->extracts == std::vector{ActiveExtract{.chain_id = digest(6)}});
  REQUIRE(world.see()->ingests.size() == 1);  // the event made it look

  world.fake.ingests["layer-" + text(7)] = 99;
  world.loop.advance(milliseconds(400));
  CHECK(world.see()->ingests[0].offset_bytes == 99);

  world.fake.ingests.clear();
  world.fake.blob_sizes[text(7)] = 100;
  world.loop.advance(milliseconds(400));
  CHECK(world.see()->blobs == std::vector<LocalBlob>{{digest(7), 100}});

  world.fake.publish({.topic = "/snapshot/commit", .key = key, .name = text(6)});
  world.loop.advance(milliseconds(50));
  CHECK(world.see()->extracts.empty());
  CHECK(world.see()->snapshots == std::vector{LayerSnapshot{.chain_id = digest(6)}});

  world.fake.images["x"] = {.name = "x", .target = digest(9)};
  world.fake.publish({.topic = "/images/create", .key = "x"});
  world.loop.advance(milliseconds(100));
  CHECK(world.see()->images.size() == 1);

  world.fake.publish({.topic = "/content/delete", .key = text(7)});
  world.fake.publish({.topic = "/snapshot/remove", .key = text(6)});
  world.fake.publish({.topic = "/snapshot/prepare", .key = "container-1"});
  world.loop.advance(milliseconds(50));
  CHECK(world.see()->blobs.empty());
  CHECK(world.see()->snapshots.empty());
  CHECK(world.fake.calls["Snapshots/List"] == 0);
  CHECK(world.fake.calls["Content/List"] <= 1);  // at its end: what the new image consists of
}

TEST_CASE("when a lease is gone, what garbage collection took is noticed") {
  World world;
  world.fake.leases["l1"] = {.content = {text(1)}};
  world.fake.blob_sizes[text(7)] = 100;
  world.start();
  world.become_idle();
  world.probe.set_watchful(true);
  world.fake.leases.clear();
  world.loop.advance(milliseconds(500));
  CHECK(world.see()->leases.empty());
  CHECK(world.see()->blobs.size() == 1);
  world.fake.blob_sizes.clear();
  world.loop.advance(seconds(7));
  CHECK(world.see()->blobs.empty());
}

TEST_CASE("a restart of containerd: kept for a moment, absent after that, back by itself") {
  World world;
  world.fake.committed[text(5)] = 500;
  world.start();
  world.fake.reachable = false;
  world.fake.cut_streams();
  world.loop.advance(seconds(2));
  CHECK(world.see().has_value());
  const int before = world.changes;
  world.loop.advance(seconds(4));
  CHECK(world.changes > before);
  CHECK_FALSE(world.see().has_value());
  CHECK(world.snapshot.probe_errors.at("runtime").find("connect") != std::string::npos);
  world.fake.calls.clear();
  world.loop.advance(minutes(1));
  CHECK(world.fake.calls["Events/Subscribe"] >= 5);
  CHECK(world.fake.calls["Events/Subscribe"] <= 10);
  world.fake.reachable = true;
  world.loop.advance(seconds(11));
  REQUIRE(world.see().has_value());
  CHECK(world.see()->snapshots.size() == 1);
  CHECK(world.fake.has_subscriber());
  CHECK(world.snapshot.probe_errors.empty());
}

TEST_CASE("a list that fails makes the part absent, with the reason") {
  World world;
  world.fake.fail_next("Leases/List", ErrorKind::PermissionDenied);
  world.start();
  CHECK_FALSE(world.see().has_value());
  CHECK(world.snapshot.probe_errors.at("runtime") == "as the test wants");
  world.loop.advance(seconds(2));
  CHECK(world.see().has_value());
}

TEST_CASE("refresh answers once, also while containerd is away") {
  World world;
  world.start();
  world.become_idle();
  int done = 0;
  world.fake.ingests["layer-" + text(7)] = 10;
  world.probe.refresh([&] { ++done; });
  CHECK(done == 0);
  world.loop.run_ready();
  CHECK(done == 1);
  CHECK(world.see()->ingests.size() == 1);
  world.probe.refresh([&] { ++done; });  // fresh enough
  CHECK(done == 2);
  world.become_idle();
  world.probe.refresh([&] { ++done; });
  world.fake.reachable = false;
  world.fake.cut_streams();
  world.loop.run_ready();
  CHECK(done == 3);
  world.probe.refresh([&] { ++done; });
  CHECK(done == 4);
}

TEST_CASE("usage is asked for only where it is not known") {
  World world;
  world.fake.committed[text(5)] = 500;
  world.fake.active["extract-1-a " + text(6)] = 60;
  world.start();
  world.probe.measure({digest(5), digest(5), digest(6), digest(8)});
  world.loop.run_ready();
  CHECK(world.see()->snapshots[0].unpacked_bytes == 500);
  CHECK(world.see()->snapshots[0].inodes == 7);
  CHECK(world.see()->extracts[0].unpacked_bytes == 60);
  CHECK(world.fake.calls["Snapshots/Usage"] == 2);
  world.loop.advance(minutes(2));  // listings keep it
  CHECK(world.see()->snapshots[0].unpacked_bytes == 500);
}

TEST_CASE("what the pure parts say") {
  CHECK(digest_of_ref("layer-" + text(1)) == digest(1));
  CHECK(digest_of_ref("manifest-name@" + text(1)) == digest(1));
  CHECK(digest_of_ref("layer-sha512:00") == std::nullopt);
  const std::vector<Ingest> held = {{.ref = "a"}};
  CHECK_FALSE(downloads_moved({}, held));
  CHECK(downloads_moved(held, {{.ref = "a", .offset_bytes = 1}}));
  CHECK(ended_downloads({{.ref = "config-" + text(1)}, {.ref = "x"}}, {}) ==
        std::vector{digest(1)});
  std::vector<LocalBlob> blobs;
  CHECK(insert_blob(blobs, {digest(2), 1}));
  CHECK(insert_blob(blobs, {digest(1), 1}));
  CHECK_FALSE(insert_blob(blobs, {digest(1), 1}));
  CHECK(blobs[0].digest == digest(1));
  CHECK_FALSE(erase_blob(blobs, digest(3)));
}

}  // namespace imagefs_guard::runtime_test
