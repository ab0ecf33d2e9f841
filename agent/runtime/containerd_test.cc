#include "agent/runtime/containerd.h"

#include <doctest/doctest.h>

#include "agent/core/sha256.h"
#include "agent/runtime/fake_containerd.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::containerd_test {

namespace {

Digest digest(std::uint8_t fill) {
  Digest made;
  made.bytes.fill(fill);
  return made;
}

struct World {
  FakeLoop loop;
  FakeContainerd fake{loop};
  Containerd containerd{fake, "overlayfs"};

  template <typename T>
  Result<T> wait(const std::function<Containerd::Call(Containerd::Done<T>)>& start) {
    std::optional<Result<T>> answer;
    const Containerd::Call call = start([&](Result<T> result) { answer = std::move(result); });
    CHECK_FALSE(answer.has_value());
    loop.run_ready();
    REQUIRE(answer.has_value());
    return *std::move(answer);
  }
};

}  // namespace

TEST_CASE("lists come sorted") {
  World world;
  world.fake.blob_sizes[to_string(digest(2))] = 20;
  world.fake.blob_sizes[to_string(digest(1))] = 10;
  world.fake.committed[to_string(digest(4))] = 1;
  world.fake.committed[to_string(digest(3))] = 1;
  world.fake.active["extract-1-a " + to_string(digest(5))] = 1;
  world.fake.images["b"] = {.name = "b", .target = digest(1)};
  world.fake.images["a"] = {.name = "a", .target = digest(2), .pinned = true};
  Containerd& containerd = world.containerd;
  CHECK(
      world.wait<wire::BlobList>([&](auto done) { return containerd.list_blobs(std::move(done)); })
          .value()
          .blobs == std::vector<LocalBlob>{{digest(1), 10}, {digest(2), 20}});
  const auto snapshots = world.wait<wire::SnapshotList>(
      [&](auto done) { return containerd.list_snapshots(std::move(done)); });
  CHECK(snapshots->layers ==
        std::vector{LayerSnapshot{.chain_id = digest(3)}, LayerSnapshot{.chain_id = digest(4)}});
  CHECK(snapshots->extracts.size() == 1);
  const auto images = world.wait<std::vector<LocalImage>>(
      [&](auto done) { return containerd.list_images(std::move(done)); });
  REQUIRE(images->size() == 2);
  CHECK(images->at(0).name == "a");
  CHECK(images->at(0).pinned);
}

TEST_CASE("a small blob is read whole, a large one is refused unread") {
  World world;
  world.fake.blobs[to_string(digest(1))] = "{}";
  world.fake.blob_sizes[to_string(digest(2))] = 4'393'217;
  const auto read = [&](std::uint8_t fill) {
    return world.wait<std::string>(
        [&](auto done) { return world.containerd.read_blob(digest(fill), std::move(done)); });
  };
  CHECK(read(1).value() == "{}");
  CHECK(read(2).error().kind == ErrorKind::ResourceExhausted);
  CHECK(read(3).error().kind == ErrorKind::NotFound);
  CHECK(world.fake.calls["Content/Read"] == 1);
}

TEST_CASE("deleting what is gone is success") {
  World world;
  world.fake.leases["l"] = {};
  const auto remove = [&] {
    return world.wait<void>(
        [&](auto done) { return world.containerd.delete_lease("l", std::move(done)); });
  };
  CHECK(remove());
  CHECK(world.fake.leases.empty());
  CHECK(remove());
  world.fake.fail_next("Leases/Delete", ErrorKind::PermissionDenied);
  CHECK(remove().error().kind == ErrorKind::PermissionDenied);
  CHECK(world.wait<void>(
      [&](auto done) { return world.containerd.abort_ingest("x", std::move(done)); }));
}

TEST_CASE("orphans are dropped with a snapshot that does not stay") {
  World world;
  CHECK(world.wait<void>(
      [&](auto done) { return world.containerd.drop_orphan_directories(std::move(done)); }));
  CHECK(world.fake.active.empty());
  CHECK(world.fake.calls["Snapshots/Prepare"] == 1);
  world.fake.fail_next("Snapshots/Prepare", ErrorKind::AlreadyExists);
  CHECK(world.wait<void>(
      [&](auto done) { return world.containerd.drop_orphan_directories(std::move(done)); }));
}

TEST_CASE("orphaned files are dropped with a blob that does not stay") {
  World world;
  const auto drop = [&] {
    world.fake.orphan_files = {"blobs/sha256/1"};
    const Result<void> result = world.wait<void>(
        [&](auto done) { return world.containerd.drop_orphan_files(std::move(done)); });
    CHECK(world.fake.blobs.empty());
    return result;
  };
  CHECK(drop());
  CHECK(world.fake.orphan_files.empty());
  world.fake.blobs[to_string(sha256("imagefs-guard drops orphans\n"))] = "from before";
  CHECK(drop());
  CHECK(world.fake.orphan_files.empty());
  world.fake.fail_next("Content/Write", ErrorKind::ResourceExhausted);  // a full disk
  CHECK(drop().error().kind == ErrorKind::ResourceExhausted);
  CHECK(world.fake.calls["Content/Delete"] == 2);
}

TEST_CASE("a call that is destroyed does not answer") {
  World world;
  auto call = world.containerd.list_ingests([](auto) { FAIL_CHECK("was cancelled"); });
  call.reset();
  world.loop.run_ready();
}

}  // namespace imagefs_guard::containerd_test
