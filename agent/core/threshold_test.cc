#include "agent/core/threshold.h"

#include <doctest/doctest.h>

#include <bit>

#include "agent/core/words.h"

namespace imagefs_guard::threshold_test {
namespace {

ThresholdValue percent(float value) {
  return {.quantity = 0, .fraction_bits = std::bit_cast<std::uint32_t>(value / 100.0F)};
}

TEST_CASE("a threshold is the kubelet's quantity to the byte") {
  struct Case {
    const char* name;
    ThresholdValue value;
    std::int64_t capacity;
    std::int64_t want;
  };

  const Case cases[] = {
      {"quantity", {.quantity = 104'857'600}, 1, 104'857'600},
      {"unset never fires", {}, 100 * kGib, 0},
      {"V2: nodefs 10 % of what df shows as 98,831,908 blocks",
       percent(10),
       98'831'908LL * 1024,
       10'120'387'530},
      {"V3: 15 % of 100 GiB", percent(15), 100 * kGib, 16'106'128'000},
      {"10 % of 100 GiB", percent(10), 100 * kGib, 10'737'418'400},
      {"worked example, 10 %", percent(10), 26'198'016LL * 4096, 10'730'707'513},
      {"worked example, 15 %", percent(15), 26'198'016LL * 4096, 16'096'061'670},
      {"capacity 0", percent(15), 0, 0},
      {"100 %", percent(100), 12'345, 12'345},
      {"a tiny share", percent(0.0001F), 100 * kGib, 107'374},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(threshold_quantity(c.value, c.capacity) == c.want);
  }
}

TEST_CASE("the integer arithmetic is the kubelet's floating point") {
  // Against the real formula over capacities that need rounding and shares of every kind.
  std::uint64_t state = 1;
  for (int i = 0; i < 4000; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto capacity = static_cast<std::int64_t>(state >> 17U);
    const float fraction = static_cast<float>(i % 999 + 1) / 1000.0F;
    const auto want =
        static_cast<std::int64_t>(static_cast<double>(capacity) * static_cast<double>(fraction));
    const ThresholdValue value{.quantity = 0,
                               .fraction_bits = std::bit_cast<std::uint32_t>(fraction)};
    REQUIRE(threshold_quantity(value, capacity) == want);
  }
}

}  // namespace
}  // namespace imagefs_guard::threshold_test
