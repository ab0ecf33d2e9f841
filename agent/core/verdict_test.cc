#include "agent/core/verdict.h"

#include <doctest/doctest.h>

#include "tests/unit/builders.h"

namespace imagefs_guard::verdict_test {
namespace {

using testing::gib;

TEST_CASE("the verdict is the first condition that holds") {
  struct Case {
    const char* name;
    Balance balance;
    Verdict want;
  };

  const Case cases[] = {
      {"equality fits",
       {.available = 100,
        .floor = 40,
        .peak = 60,
        .steady = 60,
        .settled_available = 100,
        .settled_peak = 60},
       Verdict::Fits},
      {"one byte more does not",
       {.available = 100,
        .floor = 40,
        .peak = 61,
        .steady = 10,
        .settled_available = 100,
        .settled_peak = 61},
       Verdict::DoesNotFit},
      {"case 2: fits at the end, not on the way",
       {.available = gib(1600),
        .floor = gib(500),
        .peak = gib(1250),
        .steady = gib(800),
        .reclaimable = gib(60),
        .settled_available = gib(1600),
        .settled_peak = gib(1250)},
       Verdict::DoesNotFit},
      {"case 2, variant: reclaim is enough",
       {.available = gib(1600),
        .floor = gib(500),
        .peak = gib(1250),
        .steady = gib(800),
        .reclaimable = gib(160),
        .settled_available = gib(1600),
        .settled_peak = gib(1250)},
       Verdict::FitsAfterReclaim},
      {"case 1: even what remains is too much",
       {.available = gib(950),
        .floor = gib(200),
        .peak = gib(1290),
        .steady = gib(900),
        .reclaimable = gib(40),
        .settled_available = gib(950),
        .settled_peak = gib(1290)},
       Verdict::NeverFits},
      {"case 3: once the other has settled",
       {.available = gib(3000),
        .floor = gib(1000),
        .outstanding = gib(1400),
        .peak = gib(750),
        .steady = gib(500),
        .settled_available = gib(2100),
        .settled_peak = gib(750)},
       Verdict::FitsLater},
      {"case 5: only the unpacked bytes are new",
       {.available = gib(760),
        .floor = gib(400),
        .peak = gib(900),
        .steady = gib(900),
        .here_discarded = gib(500),
        .settled_available = gib(760),
        .settled_peak = gib(900)},
       Verdict::NeverFits},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(to_string(judge(c.balance)) == std::string(to_string(c.want)));
  }
}

TEST_CASE("the smallest volume takes the peak beside what is used") {
  const ThresholdValue ten_percent{.quantity = 0, .fraction_bits = 0x3dcccccd};
  // Case 1: V - 10.1 - 12.9 >= 0.1 V, so 26; from what remains one would wrongly say 22.
  CHECK(smallest_volume_gib({.capacity_bytes = gib(2000),
                             .available_bytes = gib(950),
                             .reclaimable_bytes = gib(40),
                             .peak_bytes = gib(1290),
                             .threshold = ten_percent}) == 26);
  CHECK(smallest_volume_gib({.capacity_bytes = gib(2000),
                             .available_bytes = gib(950),
                             .peak_bytes = gib(100),
                             .threshold = {.quantity = gib(100)}}) == 13);
  CHECK(smallest_volume_gib({.capacity_bytes = gib(2000),
                             .available_bytes = gib(950),
                             .peak_bytes = gib(100'000'000),
                             .threshold = ten_percent}) == 0);
}

}  // namespace
}  // namespace imagefs_guard::verdict_test
