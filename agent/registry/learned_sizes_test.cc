#include "agent/registry/learned_sizes.h"

#include <doctest/doctest.h>

#include "agent/core/unpacked_size.h"
#include "tests/unit/builders.h"

namespace imagefs_guard::learned_sizes_test {
namespace {

using testing::digest;
using testing::gib;

/// What containerd keeps of a layer beside its files.
constexpr std::int64_t kBeside = 32 << 10;

struct Fixture {
  LearnedSizes sizes;
  NodeSnapshot snapshot;

  Fixture() {
    snapshot.taken_at = MonotonicTime{} + std::chrono::hours(1);
    snapshot.filesystems = {{.kind = FilesystemKind::Xfs, .holds_images = true}};
    snapshot.runtime.emplace();
    add_image(1, gib(10));
  }

  /// Image n has one layer: digest n, diff ID 100 + n, chain ID 200 + n.
  void add_image(unsigned n, std::int64_t compressed_bytes) {
    snapshot.manifests.push_back({.manifest_digest = digest(300 + n),
                                  .layers = {{.digest = digest(n),
                                              .compressed_bytes = compressed_bytes,
                                              .compression = LayerCompression::Gzip,
                                              .diff_id = digest(100 + n),
                                              .chain_id = digest(200 + n)}}});
  }

  void unpack(unsigned n, std::int64_t bytes = -1, std::int64_t inodes = -1) {
    auto& layers = snapshot.runtime->snapshots;
    std::erase_if(layers, [n](const auto& each) { return each.chain_id == digest(200 + n); });
    layers.push_back({.chain_id = digest(200 + n), .unpacked_bytes = bytes, .inodes = inodes});
    std::ranges::sort(layers, {}, &LayerSnapshot::chain_id);
  }

  void tick() {
    snapshot.taken_at += std::chrono::seconds(1);
    sizes.contribute(snapshot);
  }

  /// As after a sweep of the manifests: without facts.
  void forget_facts() {
    for (ImageManifest& manifest : snapshot.manifests) {
      manifest.layers[0].facts.clear();
    }
  }

  [[nodiscard]] UnpackedSize estimate(std::size_t image = 0) const {
    return estimate_unpacked(snapshot.manifests[image].layers[0], FilesystemKind::Xfs);
  }
};

TEST_CASE("learned sizes: a layer is measured once it is here, and known from then on") {
  Fixture f;
  f.tick();
  CHECK(f.sizes.to_measure().empty());
  f.unpack(1);
  f.tick();
  CHECK(f.sizes.to_measure() == std::vector{digest(201)});
  f.tick();
  CHECK(f.sizes.to_measure().empty());  // under way
  f.unpack(1, gib(25), 100);
  f.tick();
  CHECK(f.estimate().source == SizeSource::LearnedHere);
  CHECK(f.estimate().mid_bytes == gib(25) + 512 * 100 + kBeside);

  // Removed, and wanted again over another parent.
  f.snapshot.runtime->snapshots.clear();
  f.forget_facts();
  f.snapshot.manifests[0].layers[0].chain_id = digest(999);
  f.tick();
  CHECK(f.estimate().mid_bytes == gib(25) + 512 * 100 + kBeside);
}

TEST_CASE("learned sizes: a manifest gets its facts as soon as it has its config") {
  Fixture f;
  f.sizes.set_elsewhere({{.diff_id = digest(101), .bytes = gib(30), .inodes = 1}});
  Layer& layer = f.snapshot.manifests[0].layers[0];
  layer.diff_id = layer.chain_id = Digest{};
  f.tick();
  CHECK(f.estimate().source == SizeSource::Prior);
  layer.diff_id = digest(101);
  layer.chain_id = digest(201);
  f.sizes.contribute(f.snapshot);  // within the same second
  CHECK(f.estimate().source == SizeSource::LearnedElsewhere);
  f.forget_facts();
  f.sizes.contribute(f.snapshot);
  CHECK(f.estimate().source == SizeSource::LearnedElsewhere);
  f.add_image(2, gib(10));
  f.sizes.set_elsewhere({{.diff_id = digest(102), .bytes = gib(40), .inodes = 1}});
  f.sizes.contribute(f.snapshot);
  CHECK(f.estimate(1).source == SizeSource::LearnedElsewhere);
}

TEST_CASE("learned sizes: no answer is asked for again, but not every second") {
  Fixture f;
  f.unpack(1);
  f.tick();
  CHECK(f.sizes.to_measure().size() == 1);
  for (int i = 0; i < 59; ++i) {
    f.tick();
    CHECK(f.sizes.to_measure().empty());
  }
  f.tick();
  CHECK(f.sizes.to_measure().size() == 1);
}

TEST_CASE("learned sizes: few questions at once, none for small or unknown layers") {
  Fixture f;
  for (unsigned n = 2; n < 40; ++n) {
    f.add_image(n, n == 2 ? 1000 : gib(5));
    f.unpack(n);
  }
  f.snapshot.manifests[2].layers[0].diff_id = Digest{};
  std::size_t asked = 0;
  for (int i = 0; i < 5; ++i) {
    f.tick();
    const auto chain_ids = f.sizes.to_measure();
    CHECK(chain_ids.size() <= 16);
    asked += chain_ids.size();
  }
  CHECK(asked == 36);
}

TEST_CASE("learned sizes: only large layers are told, newest first, and only news") {
  Fixture f;
  f.add_image(2, kSharedLayerBytes);
  f.add_image(3, gib(20));
  f.unpack(1, gib(25), 1);
  f.tick();
  const std::size_t version = f.sizes.version();
  f.unpack(2, gib(5), 2);
  f.tick();
  CHECK(f.sizes.version() == version);
  f.unpack(3, gib(50), 3);
  f.tick();
  CHECK(f.sizes.version() > version);
  const auto told = f.sizes.to_tell();
  REQUIRE(told.size() == 2);
  CHECK(told[0] == SizeRecord{.diff_id = digest(103),
                              .bytes = gib(50),
                              .inodes = 3,
                              .measured_on = FilesystemKind::Xfs});
  CHECK(told[1].diff_id == digest(101));
  f.tick();
  CHECK(f.sizes.to_tell() == told);
}

TEST_CASE("learned sizes: bounded, the oldest are forgotten") {
  Fixture f;
  f.snapshot.manifests.clear();
  for (unsigned n = 0; n < 5'000; ++n) {
    f.add_image(n, gib(10));
    f.unpack(n, gib(25), 1);
    if (n % 500 == 499) {
      f.tick();
      f.snapshot.manifests.clear();
      f.snapshot.runtime->snapshots.clear();
    }
  }
  CHECK(f.sizes.to_tell().size() == kNodeSizesMaximum);
  f.add_image(1, gib(10));
  f.add_image(4'999, gib(10));
  f.tick();
  CHECK(f.estimate(0).source == SizeSource::Prior);
  CHECK(f.estimate(1).source == SizeSource::LearnedHere);
}

TEST_CASE("learned sizes: what other nodes tell stands behind what was seen here") {
  Fixture f;
  const auto from = [](FilesystemKind kind, std::int64_t bytes) {
    return SizeRecord{.diff_id = digest(101), .bytes = bytes, .inodes = 10, .measured_on = kind};
  };
  f.sizes.set_elsewhere({from(FilesystemKind::Ext4, gib(31)), from(FilesystemKind::Xfs, gib(30))});
  f.tick();
  CHECK(f.estimate().source == SizeSource::LearnedElsewhere);
  CHECK(f.estimate().mid_bytes == gib(30) + 512 * 10 + kBeside);  // its own kind of filesystem
  f.sizes.restore({from(FilesystemKind::Xfs, gib(29))});
  f.tick();
  CHECK(f.estimate().source == SizeSource::LearnedHere);
  CHECK(f.estimate().mid_bytes == gib(29) + 512 * 10 + kBeside);
  CHECK(f.sizes.to_tell().size() == 1);
}

}  // namespace
}  // namespace imagefs_guard::learned_sizes_test
