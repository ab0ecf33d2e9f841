#include "agent/core/unpacked_size.h"

#include <doctest/doctest.h>

#include "tests/unit/builders.h"

namespace imagefs_guard {
namespace {

using testing::gib;

Layer layer_of(std::int64_t compressed, LayerCompression compression, std::vector<SizeFact> facts) {
  return Layer{.compressed_bytes = compressed, .compression = compression, .facts = facts};
}

TEST_CASE("case 6: the unpacked size comes from the best fact that can be true") {
  struct Case {
    const char* name;
    Layer layer;
    std::int64_t low;
    std::int64_t mid;
    std::int64_t high;
    SizeSource source;
  };

  constexpr auto kGzip = LayerCompression::Gzip;
  constexpr auto kZstd = LayerCompression::Zstd;
  constexpr auto kNone = LayerCompression::None;
  const Case cases[] = {
      {"L1: a plausible annotation",
       layer_of(41'569'203, kGzip, {{SizeSource::Annotation, 111'523'840}}),
       111'523'840,
       111'523'840,
       111'523'840,
       SizeSource::Annotation},
      {"L2: an annotation smaller than the blob is a lie",
       layer_of(gib(300), kGzip, {{SizeSource::Annotation, 1}}),
       gib(300),
       gib(900),
       gib(1350),
       SizeSource::Prior},
      {"L3: zstd without a hint",
       layer_of(gib(100), kZstd, {}),
       gib(100),
       gib(330),
       gib(500),
       SizeSource::Prior},
      {"L4: a plain tar is its own size",
       layer_of(gib(80), kNone, {}),
       gib(80),
       gib(80),
       gib(80),
       SizeSource::PlainTar},
      {"L5: the trailer is modulo 4 GiB, and the next candidate is possible",
       layer_of(gib(200), kGzip, {{SizeSource::GzipTrailer, 1'288'490'496}}),
       5'583'457'792,
       5'583'457'792,
       9'878'425'088,
       SizeSource::GzipTrailer},
      {"L6: a record beats any hint",
       layer_of(gib(200),
                kGzip,
                {{SizeSource::Annotation, gib(500)}, {SizeSource::LearnedHere, gib(640)}}),
       gib(640),
       gib(640),
       gib(640),
       SizeSource::LearnedHere},
      {"a small layer's trailer is exact",
       layer_of(10'000'000, kGzip, {{SizeSource::GzipTrailer, 29'999'616}}),
       29'999'616,
       29'999'616,
       29'999'616,
       SizeSource::GzipTrailer},
      {"zeros: far above any usual ratio, but the only candidate",
       layer_of(305'000, kGzip, {{SizeSource::GzipTrailer, 314'572'800}}),
       314'572'800,
       314'572'800,
       314'572'800,
       SizeSource::GzipTrailer},
      {"many members: the last one's trailer is no multiple of a tar block",
       layer_of(gib(100), kGzip, {{SizeSource::GzipTrailer, 777}}),
       gib(100),
       gib(300),
       gib(450),
       SizeSource::Prior},
      {"an empty last member",
       layer_of(gib(100), kGzip, {{SizeSource::GzipTrailer, 0}}),
       gib(100),
       gib(300),
       gib(450),
       SizeSource::Prior},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const UnpackedSize size = estimate_unpacked(c.layer, FilesystemKind::Other);
    CHECK(size.low_bytes == c.low);
    CHECK(size.mid_bytes == c.mid);
    CHECK(size.high_bytes == c.high);
    CHECK(to_string(size.source) == std::string(to_string(c.source)));
  }
}

TEST_CASE("worked example: 6.0 GB whose trailer reads 1.72 are most likely 18.9") {
  const Layer layer =
      layer_of(6'000'000'000, LayerCompression::Gzip, {{SizeSource::GzipTrailer, 1'720'130'560}});
  const UnpackedSize size = estimate_unpacked(layer, FilesystemKind::Other);
  constexpr std::int64_t kModulus = std::int64_t{1} << 32;
  CHECK(size.low_bytes == 1'720'130'560 + kModulus);
  CHECK(size.mid_bytes == 1'720'130'560 + 4 * kModulus);
  CHECK(size.high_bytes == 1'720'130'560 + 5 * kModulus);
}

TEST_CASE("headers at the beginning of the tar take the doubt out of what they cover") {
  const Layer one_file = layer_of(200'000'000,
                                  LayerCompression::Gzip,
                                  {{.source = SizeSource::GzipTrailer,
                                    .bytes = 209'725'440,
                                    .inodes = 1,
                                    .sampled_tar_bytes = 209'725'440,
                                    .sampled_disk_bytes = 209'715'200}});
  const UnpackedSize exact = estimate_unpacked(one_file, FilesystemKind::Ext4);
  CHECK(exact.low_bytes == 209'715'200);
  CHECK(exact.high_bytes == 209'715'200);
  CHECK(exact.inodes == 1);

  Layer half = one_file;
  half.facts[0].sampled_tar_bytes = 109'725'440;
  half.facts[0].sampled_disk_bytes = 110'000'000;
  const UnpackedSize partly = estimate_unpacked(half, FilesystemKind::Ext4);
  CHECK(partly.low_bytes == 210'000'000);
  CHECK(partly.high_bytes == 228'000'000);
}

TEST_CASE("absurd sizes saturate instead of overflowing") {
  const Layer layer = layer_of(INT64_MAX, LayerCompression::Gzip, {});
  CHECK(estimate_unpacked(layer, FilesystemKind::Other).high_bytes > 0);
}

}  // namespace
}  // namespace imagefs_guard
