#include "agent/core/check.h"

#include <doctest/doctest.h>

#include "tests/unit/builders.h"

namespace imagefs_guard::check_test {
namespace {

using testing::digest;
using testing::gib;
using testing::layer;
using testing::TestNode;

constexpr ThresholdValue kTenPercent{.quantity = 0, .fraction_bits = 0x3dcccccd};

CheckReport check(const TestNode& node, const std::vector<std::string>& images) {
  return check_images(node.snapshot_, default_policy(), images);
}

std::string verdict_of(const CheckReport& report) {
  return to_string(report.verdict);
}

std::string row(const CheckReport& report, std::size_t index) {
  return to_string(report.images.at(index).report.verdict);
}

TEST_CASE("case 1: too large for the volume, and how large a volume would do") {
  TestNode node(gib(2000), gib(950), gib(0));
  node.snapshot_.kubelet->eviction_hard[0].value = kTenPercent;
  node.image("etl", 1, {layer(1, gib(200), gib(450)), layer(2, gib(190), gib(450))});
  const CheckReport report = check(node, {"etl"});
  CHECK(verdict_of(report) == "NeverFits");
  CHECK(report.total.demand.peak_high_bytes() == gib(1290));
  // V - 10.5 - 12.9 >= 0.1 V is 26.0, and the kubelet's rounding makes 26 too small by 42 bytes.
  CHECK(report.total.smallest_volume_gib == 27);
  CHECK(report.images[0].report.sentence.ends_with("never fits this volume, 27 GiB would do"));
  REQUIRE(report.images[0].layers.size() == 2);
  CHECK(report.images[0].layers[0].size.high_bytes == gib(450));
}

TEST_CASE("what XFS keeps free is in the peak, not in what remains") {
  TestNode node(gib(2000), gib(500), gib(200));
  Layer etl = layer(1, gib(50), gib(200));
  // 20 KiB a file: 1 GiB for 52,430 files.
  etl.facts[0] = {.source = SizeSource::LearnedHere,
                  .bytes = gib(200),
                  .inodes = 52'430,
                  .measured_on = FilesystemKind::Xfs};
  node.image("etl", 1, {etl});
  const auto verdict_on = [&node](FilesystemKind kind) {
    node.snapshot_.filesystems->front().kind = kind;
    return verdict_of(check(node, {"etl"}));
  };
  CHECK(verdict_on(FilesystemKind::Ext4) == "Fits");
  CHECK(verdict_on(FilesystemKind::Xfs) == "DoesNotFit");
  const CheckReport report = check(node, {"etl"});
  CHECK(report.total.demand.reserved_bytes / 20'480 == 52'429);
  CHECK(report.images[0].report.sentence.find("unpacked, 1.0 kept free by XFS until it is written, "
                                              "1 layer, 0 here)") != std::string::npos);
  // Half of it is unpacked: half of the files have theirs already.
  node.snapshot_.runtime->extracts = {
      {.chain_id = etl.chain_id, .unpacked_bytes = gib(200) / 2 + 14'000'000}};
  const std::int64_t left = check(node, {"etl"}).total.demand.reserved_bytes;
  CHECK(left > 52'430LL * 20'480 * 48 / 100);
  CHECK(left < 52'430LL * 20'480 * 52 / 100);
}

TEST_CASE("several images take the room in order, shared layers once") {
  TestNode node(gib(10000), gib(3000), gib(1000));
  const Layer base = layer(1, gib(150), gib(300));
  node.image("x", 1, {base, layer(2, gib(350), gib(600))})
      .image("y", 2, {base, layer(3, gib(250), gib(500))});

  CHECK(verdict_of(check(node, {"x"})) == "Fits");
  CHECK(verdict_of(check(node, {"y"})) == "Fits");
  const CheckReport both = check(node, {"x", "y"});
  CHECK(verdict_of(both) == "FitsLater");
  CHECK(row(both, 0) == "Fits");
  CHECK(row(both, 1) == "FitsLater");
  CHECK(both.total.demand.peak_high_bytes() == gib(2150));
  CHECK(both.images[1].layers[0].presence == LayerPresence::Promised);
  CHECK(both.images[1].report.demand.peak_high_bytes() == gib(750));
  CHECK(both.total.demand.layers_missing == 3);
  // 70 used and 21.5 to come, floor 10: 101.5.
  CHECK(both.total.smallest_volume_gib == 102);
  // In the other order the other one waits.
  CHECK(row(check(node, {"y", "x"}), 1) == "FitsLater");
  // Twice the same costs nothing.
  CHECK(check(node, {"x", "x"}).total.demand.peak_high_bytes() == gib(1400));
}

TEST_CASE("one that can't be taken takes no room, but counts in the volume") {
  TestNode node(gib(2000), gib(950), gib(200));
  node.image("etl", 1, {layer(1, gib(390), gib(900))})
      .image("small", 2, {layer(3, gib(10), gib(10))});
  const CheckReport report = check(node, {"etl", "small"});
  CHECK(row(report, 0) == "NeverFits");
  CHECK(row(report, 1) == "Fits");
  CHECK(verdict_of(report) == "NeverFits");
  CHECK(report.total.demand.peak_high_bytes() == gib(390) + gib(900) + 2 * gib(10));
  CHECK(report.total.smallest_volume_gib == 26);  // 10.5 + 13.1 + 2.0
}

TEST_CASE("what is here already is not counted, layer by layer") {
  TestNode node(gib(10000), gib(5000), gib(1000));
  node.image(
      "x",
      1,
      {layer(1, gib(100), gib(200)), layer(2, gib(50), gib(100)), layer(3, gib(60), gib(130))});
  node.unpacked(1).blob(2, gib(50));
  const CheckReport report = check(node, {"x"});
  const auto& layers = report.images[0].layers;
  REQUIRE(layers.size() == 3);
  CHECK(layers[0].presence == LayerPresence::Unpacked);
  CHECK(check(node, {"x", "x"}).images[1].layers[0].presence == LayerPresence::Unpacked);
  CHECK(layers[1].presence == LayerPresence::Downloaded);
  CHECK(layers[1].here_bytes == gib(50));
  CHECK(layers[2].presence == LayerPresence::Missing);
  CHECK(report.total.demand.download_bytes == gib(60));
  CHECK(report.total.demand.unpack_high_bytes == gib(230));
  CHECK(verdict_of(report) == "Fits");
}

TEST_CASE("V5: the empty layer twice in one manifest is downloaded once") {
  TestNode node(gib(10000), gib(5000), gib(1000));
  Layer empty = layer(1, gib(10), gib(20));
  Layer again = empty;
  again.chain_id = digest(1'000'099);
  node.image("x", 1, {empty, again});
  const CheckReport report = check(node, {"x"});
  CHECK(report.total.demand.download_bytes == gib(10));
  CHECK(report.images[0].layers[1].presence == LayerPresence::Downloaded);
  CHECK(report.images[0].layers[1].download_bytes == 0);
  CHECK(report.total.demand.unpack_high_bytes == 2 * gib(20));
}

TEST_CASE("what the node is pulling already has its bytes; its pods are not judged") {
  TestNode node(gib(10000), gib(3000), gib(1000));
  node.image("x", 1, {layer(1, gib(500), gib(900))})
      .image("y", 2, {layer(2, gib(400), gib(800))})
      .pod({.name = "first", .image = "x"})
      .lease("pull-1", 1)
      .ingest(1, gib(200), gib(500));
  const CheckReport report = check(node, {"y"});
  CHECK(report.node.outstanding_bytes == gib(1200));
  CHECK(verdict_of(report) == "FitsLater");
  CHECK(report.total.demand.peak_high_bytes() == gib(1200));
}

TEST_CASE("unused images count where the pods are known, without what is shared") {
  TestNode node(gib(5000), gib(1600), gib(500));
  node.image("etl", 1, {layer(1, gib(450), gib(800))}).unpacked(50);
  node.snapshot_.runtime->snapshots[0].unpacked_bytes = gib(160);
  node.snapshot_.runtime->images = {{.name = "quay.io/old@" + to_string(digest(3'000'050)),
                                     .target = digest(3'000'050),
                                     .created_at = node.snapshot_.wall_time - std::chrono::hours(1),
                                     .image_id = digest(4'000'050),
                                     .top_chain = digest(1'000'050)}};
  const CheckReport report = check(node, {"etl"});
  CHECK(verdict_of(report) == "FitsAfterReclaim");
  CHECK(report.node.reclaimable_bytes == gib(160));
  CHECK(
      report.images[0].report.sentence.ends_with("fits once 1.5 GiB of unused images are removed"));
  CHECK(report.total.sentence.ends_with("fits once 1.5 GiB of unused images are removed"));
  node.snapshot_.pods.reset();
  CHECK(verdict_of(check(node, {"etl"})) == "DoesNotFit");
}

TEST_CASE("unknown: the image, or the node") {
  TestNode node(gib(10000), gib(3000), gib(1000));
  node.image("x", 1, {layer(1, gib(500), gib(900))});
  node.snapshot_.resolved.insert(
      node.snapshot_.resolved.begin(),
      {.image = "gone", .error = Error{ErrorKind::NotFound, "there is no such image"}});
  const CheckReport report = check(node, {"gone", "x", "never-asked"});
  CHECK(verdict_of(report) == "Unknown");
  CHECK(report.images[0].report.sentence == "can't be judged: there is no such image");
  CHECK(row(report, 1) == "Fits");
  CHECK(report.images[2].report.sentence == "can't be judged: no answer in time");
  CHECK(report.total.smallest_volume_gib == 0);

  // What surely does not fit is not made better by what is unknown.
  node.snapshot_.filesystems->front().available_bytes = gib(1100);
  CHECK(verdict_of(check(node, {"gone", "x"})) == "NeverFits");

  node.snapshot_.filesystems->front().capacity_bytes = 0;
  CHECK(check(node, {"x"}).images[0].report.sentence ==
        "can't be judged: the image filesystem has no known capacity");
  node.snapshot_.filesystems.reset();
  CHECK(verdict_of(check(node, {"x"})) == "Unknown");
  TestNode blind(gib(10000), gib(3000), gib(1000));
  blind.image("x", 1, {layer(1, gib(500), gib(900))});
  blind.snapshot_.runtime.reset();
  CHECK(verdict_of(check(blind, {"x"})) == "Unknown");
}

TEST_CASE("an image whose config can't be had is judged as if all of it were new") {
  TestNode node(gib(10000), gib(3000), gib(1000));
  Layer nameless = layer(1, gib(500), gib(900));
  nameless.chain_id = Digest{};
  node.image("x", 1, {nameless}).unpacked(1);
  node.snapshot_.resolved.front().error = Error{ErrorKind::NotFound, "config: not found"};
  const CheckReport report = check(node, {"x"});
  CHECK(verdict_of(report) == "Fits");
  CHECK(report.total.demand.peak_high_bytes() == gib(1400));
  CHECK(report.images[0].report.sentence.ends_with("fits (taken as all new: config: not found)"));
}

TEST_CASE("too many files") {
  TestNode node(gib(10000), gib(5000), gib(1000));
  node.snapshot_.filesystems->front().inodes = 1'000'000;
  node.snapshot_.filesystems->front().inodes_free = 300'000;
  Layer many = layer(1, gib(10), gib(20));
  many.facts[0].inodes = 400'000;
  node.image("conda", 1, {many});
  const CheckReport report = check(node, {"conda"});
  CHECK(verdict_of(report) == "NeverFits");
  CHECK(report.images[0].report.by_inodes);
}

TEST_CASE("no image at all fits; zero layers fit") {
  TestNode node(gib(10000), gib(3000), gib(1000));
  node.image("scratch", 1, {});
  CHECK(verdict_of(check(node, {"scratch"})) == "Fits");
  CHECK(check(node, {"scratch"}).total.smallest_volume_gib == 80);
}

TEST_CASE("a thousand layers are one answer") {
  TestNode node(gib(10000), gib(5000), gib(1000));
  std::vector<Layer> layers;
  for (unsigned i = 0; i < 1000; ++i) {
    layers.push_back(layer(i + 1, gib(1), gib(2)));
  }
  node.image("deep", 1, std::move(layers));
  const CheckReport report = check(node, {"deep"});
  CHECK(report.total.demand.layers == 1000);
  CHECK(report.total.demand.peak_high_bytes() == 1000 * (gib(1) + gib(2)));
  CHECK(verdict_of(report) == "Fits");
}

}  // namespace
}  // namespace imagefs_guard::check_test
