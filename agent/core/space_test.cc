#include "agent/core/space.h"

#include <doctest/doctest.h>

#include "agent/core/decide.h"
#include "tests/unit/builders.h"

namespace imagefs_guard::space_test {
namespace {

using testing::digest;
using testing::gib;
using testing::layer;
using testing::TestNode;

/// 20 GiB, 9 of them free; two images on a common base, the pods use the first.
TestNode node_with_images() {
  TestNode node(gib(2000), gib(900), gib(200));
  RuntimeState& runtime = *node.snapshot_.runtime;
  for (const auto& [number, parent, bytes] :
       {std::tuple(1U, 0U, gib(100)), std::tuple(2U, 1U, gib(300)), std::tuple(3U, 1U, gib(50))}) {
    node.unpacked(number);
    const auto at =
        std::ranges::find(runtime.snapshots, digest(1'000'000 + number), &LayerSnapshot::chain_id);
    at->unpacked_bytes = bytes;
    at->parent = parent == 0 ? Digest{} : digest(1'000'000 + parent);
  }
  for (const auto& [name, number, top] :
       {std::tuple("quay.io/hub", 1U, 2U), std::tuple("quay.io/old", 2U, 3U)}) {
    const Digest manifest = digest(3'000'000 + number);
    runtime.images.push_back({.name = std::string(name) + "@" + to_string(manifest),
                              .target = manifest,
                              .created_at = WallTime{},
                              .image_id = digest(4'000'000 + number),
                              .top_chain = digest(1'000'000 + top)});
  }
  runtime.used_chains = {digest(1'000'002)};
  return node;
}

SpaceUse account(const TestNode& node) {
  const auto use = account_space(node.snapshot_, decide(node.snapshot_, {}, {}));
  REQUIRE(use.has_value());
  return *use;
}

TEST_CASE("every byte is counted once") {
  TestNode node = node_with_images();
  SpaceUse use = account(node);
  CHECK(use.images_bytes == gib(400));
  CHECK(use.reclaimable_bytes == gib(50));
  CHECK(use.blobs_bytes == 0);
  CHECK(use.in_flight_bytes == 0);
  CHECK(use.leftover_bytes == 0);
  CHECK(use.layers_unmeasured == 0);
  CHECK(use.other_bytes == gib(650));

  SUBCASE("a pull under way has its downloads, its blobs and its layers") {
    node.image("new", 9, {layer(7, gib(50), gib(200)), layer(8, gib(25), gib(100))});
    node.pod({.name = "flow", .image = "new"}).lease("pull", 9);
    node.blob(7, gib(50)).ingest(8, gib(25), gib(50));
    node.snapshot_.runtime->extracts = {{.chain_id = digest(1'000'007), .unpacked_bytes = gib(75)}};
    node.unpacked(6);  // committed already, its image is still to come
    node.snapshot_.runtime->snapshots.back().unpacked_bytes = gib(25);
    use = account(node);
    CHECK(use.in_flight_bytes == gib(50 + 25 + 75 + 25));
    CHECK(use.images_bytes == gib(400));
    CHECK(use.other_bytes == gib(650 - 175));
  }
  SUBCASE("what failed pulls have left is nobody's, and the same as the ledger says") {
    node.image("gone", 9, {layer(7, gib(50), gib(200))});
    node.blob(7, gib(50)).ingest(8, gib(25), gib(50));
    use = account(node);
    CHECK(use.leftover_bytes == gib(75));
    CHECK(use.leftover_bytes == decide(node.snapshot_, {}, {}).node.leftover_bytes);
    CHECK(use.other_bytes == gib(575));
  }
  SUBCASE("a layer on which nothing stands is nobody's, unless an image's layers aren't known") {
    node.unpacked(6);
    node.snapshot_.runtime->snapshots.back().unpacked_bytes = gib(25);
    use = account(node);
    CHECK(use.leftover_bytes == gib(25));
    CHECK(use.images_bytes == gib(400));
    node.snapshot_.runtime->images.back().top_chain = {};
    CHECK(account(node).leftover_bytes == 0);
  }
  SUBCASE("compressed layers that stay are counted apart") {
    node.blob(1, gib(50));
    use = account(node);
    CHECK(use.blobs_bytes == gib(50));
    CHECK(use.other_bytes == gib(600));
  }
  SUBCASE("what is not measured is among the others, and said") {
    node.snapshot_.runtime->snapshots[0].unpacked_bytes = -1;
    use = account(node);
    CHECK(use.layers_unmeasured == 1);
    CHECK(use.other_bytes == gib(750));
  }
  SUBCASE("without pods nobody knows what is unused") {
    node.snapshot_.pods.reset();
    use = account(node);
    CHECK_FALSE(use.reclaimable_bytes.has_value());
    CHECK(use.images_bytes == gib(450));
  }
}

TEST_CASE("not observed is not zero") {
  TestNode node = node_with_images();
  node.snapshot_.runtime.reset();
  CHECK_FALSE(account_space(node.snapshot_, decide(node.snapshot_, {}, {})).has_value());
  node = node_with_images();
  node.snapshot_.filesystems.reset();
  CHECK_FALSE(account_space(node.snapshot_, decide(node.snapshot_, {}, {})).has_value());
}

TEST_CASE("an image's own bytes are its layers', all of them or none") {
  const TestNode node = node_with_images();
  const RuntimeState& runtime = *node.snapshot_.runtime;
  CHECK(unpacked_bytes_below(runtime, digest(1'000'002)) == gib(400));
  CHECK_FALSE(unpacked_bytes_below(runtime, digest(77)).has_value());
  RuntimeState unmeasured = runtime;
  unmeasured.snapshots[0].unpacked_bytes = -1;
  CHECK_FALSE(unpacked_bytes_below(unmeasured, digest(1'000'002)).has_value());
}

}  // namespace
}  // namespace imagefs_guard::space_test
