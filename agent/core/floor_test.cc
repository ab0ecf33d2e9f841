#include "agent/core/floor.h"

#include <doctest/doctest.h>

#include "agent/core/words.h"
#include "tests/unit/builders.h"

namespace imagefs_guard::floor_test {
namespace {

using testing::gib;

constexpr ThresholdValue kTenPercent{.quantity = 0, .fraction_bits = 0x3dcccccd};
constexpr ThresholdValue kFifteenPercent{.quantity = 0, .fraction_bits = 0x3e19999a};

Filesystem device(std::int64_t capacity_bytes) {
  return {.holds_images = true, .holds_kubelet = true, .capacity_bytes = capacity_bytes};
}

TEST_CASE("the floor is the largest threshold that applies to the device") {
  KubeletConfig kubelet{
      .eviction_hard = {{.signal = EvictionSignal::NodefsAvailable, .value = kTenPercent},
                        {.signal = EvictionSignal::ImagefsAvailable, .value = kFifteenPercent},
                        {.signal = EvictionSignal::NodefsInodesFree, .value = {.quantity = 5000}}}};
  Filesystem one = device(gib(10000));
  one.inodes = 100'000;
  CHECK(floor_of(one, kubelet, default_policy()).bytes == 16'106'128'000);
  CHECK(floor_of(one, kubelet, default_policy()).source == "imagefs.available");
  CHECK(floor_of(one, kubelet, default_policy()).inodes == 5000);

  // A disk of its own for images: nodefs' signals are about the other one.
  kubelet.eviction_hard.pop_back();
  std::swap(kubelet.eviction_hard[0].value, kubelet.eviction_hard[1].value);
  CHECK(floor_of(one, kubelet, default_policy()).source == "nodefs.available");
  one.holds_kubelet = false;
  CHECK(floor_of(one, kubelet, default_policy()).source == "imagefs.available");
  CHECK(floor_of(one, kubelet, default_policy()).inodes == 0);

  // Soft thresholds evict too; a margin is on top.
  kubelet.eviction_soft = {
      {.signal = EvictionSignal::ImagefsAvailable, .value = {.quantity = gib(2000)}}};
  Policy policy = default_policy();
  policy.floor_margin_bytes = gib(100);
  CHECK(floor_of(one, kubelet, policy).bytes == gib(2000) + gib(100));
}

TEST_CASE("V1: which threshold a kubelet's message speaks of, and how much was missing") {
  constexpr std::int64_t kQuantity = 3'210'844'697;
  constexpr std::int64_t kAvailable = 2'997'940LL << 10U;
  CHECK(kQuantity - kAvailable == 140'954'137);
  const auto capacity_of = [](ThresholdValue value) {
    std::int64_t low = 0;
    std::int64_t high = std::int64_t{1} << 40U;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      threshold_quantity(value, middle) < kQuantity ? low = middle + 1 : high = middle;
    }
    return low;
  };
  CHECK(threshold_quantity(kFifteenPercent, capacity_of(kFifteenPercent)) == kQuantity);
  CHECK(threshold_quantity(kTenPercent, capacity_of(kTenPercent)) == kQuantity);
  CHECK(capacity_of(kFifteenPercent) / (gib(100) / 100) == 1993);  // 19.935 GiB
  CHECK(capacity_of(kTenPercent) / (gib(100) / 100) == 2990);
}

TEST_CASE("V3: image garbage collection counts in whole percent, eviction to the byte") {
  const std::int64_t capacity = gib(10000);

  struct Case {
    std::int64_t available;
    int used_percent;
    bool evicts;
  };

  const std::int64_t quantity = threshold_quantity(kFifteenPercent, capacity);
  const Case cases[] = {
      {capacity / 10'000 * 1599, 85, false},
      {capacity * 15 / 100, 85, true},  // 640 B below the kubelet's quantity
      {quantity, 85, false},
      {capacity / 10'000 * 1499, 86, true},
      {capacity, 0, false},
      {0, 100, true},
  };
  CHECK(quantity - capacity * 15 / 100 == 640);
  for (const Case& c : cases) {
    CAPTURE(c.available);
    Filesystem disk = device(capacity);
    disk.available_bytes = c.available;
    CHECK(image_usage_percent(disk) == c.used_percent);
    CHECK((c.available < quantity) == c.evicts);
  }
  CHECK(image_usage_percent(device(0)) == 0);
}

}  // namespace
}  // namespace imagefs_guard::floor_test
