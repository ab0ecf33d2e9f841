#include "probes/filesystem.h"

#include <doctest/doctest.h>

#include "tests/unit/fake_loop.h"

namespace imagefs_guard::filesystem_test {

TEST_CASE("one device is one entry, and the numbers make sense") {
  const auto read = read_filesystems({.image_path = "/", .kubelet_path = "/"});
  REQUIRE(read);
  REQUIRE(read->size() == 1);
  const Filesystem& root = read->front();
  CHECK(root.holds_images);
  CHECK(root.holds_kubelet);
  CHECK(root.capacity_bytes > 0);
  CHECK(root.available_bytes >= 0);
  CHECK(root.available_bytes <= root.capacity_bytes);
  CHECK(root.block_bytes > 0);
}

TEST_CASE("two devices are two entries") {
  const auto read = read_filesystems({.image_path = "/", .kubelet_path = "/proc"});
  REQUIRE(read);
  REQUIRE(read->size() == 2);
  CHECK(read->at(0).device_id < read->at(1).device_id);
  CHECK(read->at(0).holds_images != read->at(1).holds_images);
  CHECK(read->at(0).holds_images != read->at(0).holds_kubelet);
}

TEST_CASE("a missing path: the part is absent, with the reason, and comes back") {
  FakeLoop loop;
  FilesystemProbe missing(loop, {.image_path = "/", .kubelet_path = "/does/not/exist"});
  NodeSnapshot snapshot;
  snapshot.filesystems.emplace();
  missing.contribute(snapshot);
  CHECK_FALSE(snapshot.filesystems.has_value());
  CHECK(snapshot.probe_errors.at("filesystem") == "/does/not/exist: No such file or directory");

  FilesystemProbe present(loop, {.image_path = "/", .kubelet_path = "/"});
  int done = 0;
  present.refresh([&] { ++done; });
  CHECK(done == 1);
  present.contribute(snapshot);
  CHECK(snapshot.filesystems.has_value());
  CHECK(snapshot.probe_errors.empty());
}

TEST_CASE("a tick is asked for once when the first answer is there, not every second") {
  FakeLoop loop;
  FilesystemProbe probe(loop, {.image_path = "/proc", .kubelet_path = "/proc"});
  int changes = 0;
  probe.start([&] { ++changes; });
  loop.advance(std::chrono::seconds(5));
  CHECK(changes == 1);
}

}  // namespace imagefs_guard::filesystem_test
