#include "agent/core/unpacked_size.h"

#include <doctest/doctest.h>

#include "tests/unit/builders.h"

namespace imagefs_guard::unpacked_size_test {
namespace {

using testing::gib;

/// What containerd keeps of a layer beside its files.
constexpr std::int64_t kBeside = 32 << 10;
constexpr std::int64_t kBesideMost = 256 << 10;

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
      {"the last of many members, or zeros 43:1 and more than 4 GiB: both are in the band",
       layer_of(100'000'000, kGzip, {{SizeSource::GzipTrailer, 51'200'000}}),
       100'000'000,
       300'000'000,
       51'200'000 + (std::int64_t{1} << 32),
       SizeSource::Prior},
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
  CHECK(exact.mid_bytes == 209'715'200 + kBeside);
  CHECK(exact.high_bytes == 209'715'200 + kBesideMost);
  CHECK(exact.inodes == 1);

  Layer half = one_file;
  half.facts[0].sampled_tar_bytes = 109'725'440;
  half.facts[0].sampled_disk_bytes = 110'000'000;
  const UnpackedSize partly = estimate_unpacked(half, FilesystemKind::Ext4);
  CHECK(partly.low_bytes == 210'000'000);
  CHECK(partly.mid_bytes == 210'000'000 + 100'000'000 / 40'000 * 2'000 + kBeside);
  CHECK(partly.high_bytes == 210'000'000 + 100'000'000 / 8'000 * 2'000 + kBesideMost);
  CHECK(partly.inodes == 1 + 100'000'000 / 8'000);
}

TEST_CASE("a beginning of many small files speaks for the rest of the tar") {
  Layer layer = layer_of(40'000'000,
                         LayerCompression::Gzip,
                         {{.source = SizeSource::GzipTrailer,
                           .bytes = 100'000'256,
                           .inodes = 20,
                           .sampled_tar_bytes = 80'256,
                           .sampled_disk_bytes = 100'000}});
  const std::int64_t few = estimate_unpacked(layer, FilesystemKind::Xfs).high_bytes;
  layer.facts[0].inodes = 40;  // 2,006 bytes each
  const UnpackedSize many = estimate_unpacked(layer, FilesystemKind::Xfs);
  CHECK(many.high_bytes > few);
  CHECK(many.low_bytes == 100'000 + 40 * 512 + 99'920'000);
  CHECK(many.high_bytes == many.low_bytes + 99'920'000 / 2'006 * 2'100 + kBesideMost);
  CHECK(many.mid_bytes == many.low_bytes + 99'920'000 / 21'003 * 2'100 + kBeside);
}

TEST_CASE("XFS and ext4: a tar of 645 MB and 54,500 files takes 750 MB") {
  // Measured on XFS; the high side must cover it, the low side must not.
  const Layer layer = layer_of(
      200'000'256, LayerCompression::Gzip, {{SizeSource::GzipTrailer, 644'800'000 / 512 * 512}});
  const UnpackedSize xfs = estimate_unpacked(layer, FilesystemKind::Xfs);
  CHECK(xfs.high_bytes >= 750'200'000);
  CHECK(xfs.high_bytes < 765'000'000);
  CHECK(xfs.mid_bytes > 644'800'000);
  CHECK(xfs.inodes > 50'000);
  CHECK(estimate_unpacked(layer, FilesystemKind::Ext4).high_bytes < xfs.high_bytes);
}

TEST_CASE("ext4 and XFS: trees that were measured lie below the high side") {
  struct Case {
    const char* name;
    std::int64_t compressed;
    std::int64_t tar;
    std::int64_t ext4;  // what statvfs said afterwards
    std::int64_t xfs;
  };

  const Case cases[] = {
      {"a Python tree", 21'600'293, 61'634'560, 68'272'128, 69'251'072},
      {"documents", 69'591'587, 119'777'280, 132'939'776, 132'653'056},
      {"headers", 27'647'516, 125'009'920, 139'599'872, 141'578'240},
      {"node_modules", 4'094'377, 15'042'560, 20'242'432, 19'795'968},
      {"libraries", 269'139'628, 733'573'120, 738'123'776, 738'775'040},
      {"programs", 204'076'962, 521'472'000, 525'086'720, 525'971'456},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Layer layer =
        layer_of(c.compressed, LayerCompression::Gzip, {{SizeSource::GzipTrailer, c.tar}});
    for (const auto& [kind, truth] :
         {std::pair(FilesystemKind::Ext4, c.ext4), std::pair(FilesystemKind::Xfs, c.xfs)}) {
      const UnpackedSize size = estimate_unpacked(layer, kind);
      CHECK(size.low_bytes <= truth);
      CHECK(size.high_bytes >= truth);
      CHECK(size.mid_bytes >= truth / 100 * 75);
      CHECK(size.mid_bytes <= truth / 100 * 106);
    }
  }
}

TEST_CASE("a table of contents is exact, by filesystem") {
  const SizeFact toc{.source = SizeSource::Toc,
                     .bytes = 300'000'000,
                     .inodes = 10'000,
                     .ext4_directory_bytes = 4'096'000,
                     .xfs_directory_bytes = 409'600,
                     .toc_tar_bytes = 290'000'000};
  const Layer layer = layer_of(
      100'000'000, LayerCompression::Gzip, {toc, {SizeSource::GzipTrailer, 280'000'000 / 512}});
  const UnpackedSize ext4 = estimate_unpacked(layer, FilesystemKind::Ext4);
  CHECK(ext4.low_bytes == 304'096'000);
  CHECK(ext4.mid_bytes == ext4.low_bytes + kBeside);
  CHECK(ext4.high_bytes == ext4.low_bytes + ext4.low_bytes / 100 + kBesideMost);
  CHECK(ext4.inodes == 10'000);
  CHECK(ext4.source == SizeSource::Toc);
  CHECK(estimate_unpacked(layer, FilesystemKind::Xfs).mid_bytes ==
        300'000'000 + 409'600 + 5'120'000 + kBeside);
}

TEST_CASE("a table of contents that can't be the blob's is passed over") {
  SizeFact toc{.source = SizeSource::Toc, .bytes = 4096, .inodes = 1, .toc_tar_bytes = 1024};
  CHECK(estimate_unpacked(layer_of(gib(100), LayerCompression::Gzip, {toc}), FilesystemKind::Ext4)
            .source == SizeSource::Prior);
  toc.bytes = toc.toc_tar_bytes = gib(5'000'000);
  CHECK(estimate_unpacked(layer_of(gib(1), LayerCompression::Gzip, {toc}), FilesystemKind::Ext4)
            .source == SizeSource::Prior);
}

TEST_CASE("a record of another filesystem has a band, one of another node is doubted") {
  SizeFact fact{.source = SizeSource::LearnedElsewhere,
                .bytes = gib(200),
                .inodes = 40'000,
                .measured_on = FilesystemKind::Xfs};
  const auto size = [&fact](FilesystemKind kind) {
    return estimate_unpacked(layer_of(gib(100), LayerCompression::Gzip, {fact}), kind);
  };
  CHECK(size(FilesystemKind::Xfs).low_bytes == gib(200) + 512 * 40'000);
  CHECK(size(FilesystemKind::Xfs).high_bytes == gib(200) + 512 * 40'000 + kBesideMost);
  CHECK(size(FilesystemKind::Ext4).low_bytes == gib(200));
  CHECK(size(FilesystemKind::Ext4).mid_bytes == gib(200) + 4'000 * 4096 + kBeside);
  CHECK(size(FilesystemKind::Ext4).high_bytes == gib(200) + 10'000 * 4096 + kBesideMost);
  fact.measured_on = FilesystemKind::Ext4;
  CHECK(size(FilesystemKind::Ext4).high_bytes == gib(200) + kBesideMost);
  CHECK(size(FilesystemKind::Xfs).high_bytes == gib(200) + 512 * 40'000 + kBesideMost);
  CHECK(size(FilesystemKind::Xfs).low_bytes < gib(200));

  fact.bytes = gib(10);  // a tenth of what is downloaded
  CHECK(size(FilesystemKind::Xfs).source == SizeSource::Prior);
  fact.bytes = gib(1300);
  CHECK(size(FilesystemKind::Xfs).source == SizeSource::Prior);
  fact.source = SizeSource::LearnedHere;  // own eyes
  CHECK(size(FilesystemKind::Xfs).source == SizeSource::LearnedHere);
}

TEST_CASE("what was learned covers what containerd keeps beside a layer's files") {
  // Measured: Usage of one layer and of three, and what statvfs says a pull takes beside the blobs.
  struct Case {
    FilesystemKind kind;
    std::int64_t usage;
    std::int64_t inodes;
    std::int64_t truth;
  };

  for (const Case& c : {Case{FilesystemKind::Ext4, 185'380'864, 8'741, 185'380'864 + 165'040},
                        Case{FilesystemKind::Xfs, 181'800'960, 8'741, 186'369'200}}) {
    const UnpackedSize size = estimate_unpacked(layer_of(60'000'000,
                                                         LayerCompression::Gzip,
                                                         {{.source = SizeSource::LearnedHere,
                                                           .bytes = c.usage,
                                                           .inodes = c.inodes,
                                                           .measured_on = c.kind}}),
                                                c.kind);
    CHECK(size.low_bytes <= c.truth);
    CHECK(size.high_bytes >= c.truth);
    CHECK(size.high_bytes < c.truth + c.truth / 100);
  }
}

TEST_CASE("XFS keeps five blocks free for each file that is not written back") {
  SizeFact fact{.source = SizeSource::LearnedHere,
                .bytes = 44'000'000,
                .inodes = 10'000,
                .measured_on = FilesystemKind::Xfs};
  const auto size = [&fact](FilesystemKind kind) {
    return estimate_unpacked(layer_of(10'000'000, LayerCompression::Gzip, {fact}), kind);
  };
  // Measured: 195 MiB more than at rest.
  CHECK(size(FilesystemKind::Xfs).reserved_bytes == 204'800'000);
  CHECK(size(FilesystemKind::Ext4).reserved_bytes == 0);
  CHECK(size(FilesystemKind::Other).reserved_bytes == 0);
  CHECK(size(FilesystemKind::Xfs).high_bytes < 60'000'000);  // the files themselves

  fact = {.source = SizeSource::Toc,
          .bytes = 44'000'000,
          .inodes = 10'000,
          .toc_tar_bytes = 44'000'000};
  CHECK(size(FilesystemKind::Xfs).reserved_bytes == 204'800'000);
  fact = {.source = SizeSource::GzipTrailer, .bytes = 40'000'000 / 512 * 512};
  // 1,000 files of 40 kB, or 8,000 of 5.
  CHECK(size(FilesystemKind::Xfs).reserved_bytes == 4'500 * 20'480);
  fact.sampled_tar_bytes = 10'000'000 / 512 * 512;  // a single file, the rest is as usual
  fact.sampled_disk_bytes = 10'000'000;
  fact.inodes = 1;
  CHECK(size(FilesystemKind::Xfs).reserved_bytes == 751 * 20'480);
}

TEST_CASE("the first of several zstd frames is only a lower bound") {
  const auto size = [](std::int64_t first_frame) {
    return estimate_unpacked(
        layer_of(gib(100), LayerCompression::Zstd, {{SizeSource::ZstdFirstFrame, first_frame}}),
        FilesystemKind::Other);
  };
  CHECK(size(gib(50)).source == SizeSource::Prior);
  CHECK(size(gib(50)).low_bytes == gib(100));
  CHECK(size(gib(600)).source == SizeSource::ZstdFirstFrame);
  CHECK(size(gib(600)).low_bytes == gib(600));
  CHECK(size(gib(600)).mid_bytes == gib(600));
  CHECK(size(gib(200)).mid_bytes == gib(330));
  CHECK(size(gib(200)).high_bytes == gib(500));
}

TEST_CASE("absurd sizes saturate instead of overflowing") {
  const Layer layer = layer_of(INT64_MAX, LayerCompression::Gzip, {});
  CHECK(estimate_unpacked(layer, FilesystemKind::Other).high_bytes > 0);
}

}  // namespace
}  // namespace imagefs_guard::unpacked_size_test
