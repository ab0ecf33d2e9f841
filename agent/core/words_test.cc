#include "agent/core/words.h"

#include <doctest/doctest.h>

#include "tests/unit/builders.h"

namespace imagefs_guard::words_test {
namespace {

using testing::gib;

/// Case 1's node: 20 GiB, 9.5 free, floor 2.0.
NodeReport storm_node() {
  return NodeReport{.image_filesystem = Filesystem{.holds_images = true,
                                                   .capacity_bytes = gib(2000),
                                                   .available_bytes = gib(950),
                                                   .inodes = 1'310'720,
                                                   .inodes_free = 300'000},
                    .floor = {.bytes = gib(200), .inodes = 65'536}};
}

PullReport storm_pull(Verdict verdict) {
  return PullReport{.verdict = verdict,
                    .demand = {.download_bytes = gib(390),
                               .unpack_low_bytes = gib(900),
                               .unpack_mid_bytes = gib(900),
                               .unpack_high_bytes = gib(900),
                               .inodes = 400'000,
                               .layers = 14,
                               .layers_missing = 14}};
}

const std::string kNeed =
    "needs 12.9 GiB at its peak (3.9 compressed + 9.0 unpacked, 14 layers, 0 here); "
    "9.5 GiB free, floor 2.0 GiB; ";

TEST_CASE("each verdict has its words") {
  struct Case {
    Verdict verdict;
    std::int64_t volume_gib;
    std::string end;
  };

  const Case cases[] = {
      {Verdict::Fits, 0, "fits"},
      {Verdict::FitsAfterReclaim, 0, "fits once 1.5 GiB of unused images are removed"},
      {Verdict::FitsLater, 0, "fits once other pulls have settled"},
      {Verdict::DoesNotFit, 17, "does not fit now, 17 GiB would do"},
      {Verdict::NeverFits, 26, "never fits this volume, 26 GiB would do"},
      {Verdict::NeverFits, 0, "never fits this volume"},
      {Verdict::Unknown, 0, "can't be judged"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.end);
    PullReport report = storm_pull(c.verdict);
    report.smallest_volume_gib = c.volume_gib;
    report.reclaim_bytes = c.verdict == Verdict::FitsAfterReclaim ? gib(150) : 0;
    CHECK(verdict_sentence(report, storm_node()) == kNeed + c.end);
  }
}

TEST_CASE("where sizes leave doubt both sides are said, and the verdict's is the high one") {
  PullReport report = storm_pull(Verdict::Fits);
  report.demand.unpack_low_bytes = gib(620);
  report.demand.layers_by_prior = 3;
  report.demand.layers_missing = 12;
  report.outstanding_bytes = gib(110);
  CHECK(verdict_sentence(report, storm_node()) ==
        "needs up to 12.9 GiB at its peak (3.9 compressed + 6.2 to 9.0 unpacked, 14 layers, "
        "2 here, 3 of unknown unpacked size); 9.5 GiB free, 1.1 promised to other pulls, "
        "floor 2.0 GiB; fits");
}

TEST_CASE("too many files are no question of the volume's size") {
  PullReport report = storm_pull(Verdict::NeverFits);
  report.by_inodes = true;
  report.smallest_volume_gib = 26;
  CHECK(verdict_sentence(report, storm_node()) ==
        "needs 12.9 GiB at its peak (3.9 compressed + 9.0 unpacked, 14 layers, 0 here); "
        "9.5 GiB free, floor 2.0 GiB; of inodes it needs 400000, 300000 are free, floor 65536; "
        "never fits this volume");
}

TEST_CASE("one layer is no layers, and what is not observed is not zero") {
  PullReport report = storm_pull(Verdict::Unknown);
  report.demand.layers = 1;
  report.demand.layers_missing = 0;
  CHECK(verdict_sentence(report, NodeReport{}) ==
        "needs 12.9 GiB at its peak (3.9 compressed + 9.0 unpacked, 1 layer, 1 here); "
        "free space is not known; can't be judged");
}

TEST_CASE("people read GiB") {
  CHECK(gib_text(gib(1290)) == "12.9");
  CHECK(gib_text(gib(62)) == "0.62");
  CHECK(gib_text(gib(5)) == "0.05");
  CHECK(gib_text(0) == "0.00");
  CHECK(gib_text((std::int64_t{1} << 30) - 1) == "1.00");
  CHECK(gib_text(gib(-340)) == "-3.4");
  CHECK(shorten("abc", 3) == "abc");
  CHECK(shorten("aäöü", 6) == "aä…");
}

}  // namespace
}  // namespace imagefs_guard::words_test
