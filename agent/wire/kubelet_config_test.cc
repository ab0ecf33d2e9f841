#include "agent/wire/kubelet_config.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace imagefs_guard::kubelet_config_test {

namespace {

using Thresholds = std::vector<EvictionThreshold>;

constexpr std::uint32_t kFivePercent = 0x3d4ccccd;
constexpr std::uint32_t kTenPercent = 0x3dcccccd;
constexpr std::uint32_t kFifteenPercent = 0x3e19999a;

EvictionThreshold percent(EvictionSignal signal, std::uint32_t bits) {
  return EvictionThreshold{.signal = signal, .value = {.quantity = 0, .fraction_bits = bits}};
}

const Thresholds& upstream_defaults() {
  static const Thresholds kDefaults = {
      percent(EvictionSignal::NodefsAvailable, kTenPercent),
      percent(EvictionSignal::NodefsInodesFree, kFivePercent),
      percent(EvictionSignal::ImagefsAvailable, kFifteenPercent),
      percent(EvictionSignal::ImagefsInodesFree, kFivePercent),
  };
  return kDefaults;
}

}  // namespace

TEST_CASE("kubelet file: evictionHard by the kubelet's rules") {
  struct Case {
    const char* name;
    const char* text;
    Thresholds want;
  };

  for (const Case& c : {
           Case{"no file content", "{}", upstream_defaults()},
           Case{"not set", "kind: KubeletConfiguration\n", upstream_defaults()},
           Case{"null", "evictionHard:\n", upstream_defaults()},
           Case{"empty map: nothing fires", "evictionHard: {}\n", {}},
           Case{"one entry: the others are 0",
                "evictionHard: {imagefs.available: 15%}\n",
                {percent(EvictionSignal::ImagefsAvailable, kFifteenPercent)}},
           Case{"a foreign entry alone", "evictionHard: {memory.available: 100Mi}\n", {}},
           Case{"merged with the defaults",
                "mergeDefaultEvictionSettings: true\nevictionHard: {nodefs.available: 5Gi}\n",
                {EvictionThreshold{.signal = EvictionSignal::NodefsAvailable,
                .value = {.quantity = std::int64_t{5} << 30}},
                 upstream_defaults()[1],
                 upstream_defaults()[2],
                 upstream_defaults()[3]}},
           Case{"zero and hundred percent are none",
                "evictionHard: {nodefs.available: 0%, imagefs.available: \"100%\","
                " imagefs.inodesFree: \"\"}\n",
                {}},
           Case{"inodes as a number",
                "evictionHard: {\"nodefs.inodesFree\": 1000}\n",
                {EvictionThreshold{.signal = EvictionSignal::NodefsInodesFree,
                .value = {.quantity = 1000}}}},
       }) {
    CAPTURE(c.name);
    const auto config = parse_kubelet_configuration(c.text);
    REQUIRE(config);
    CHECK(config->eviction_hard == c.want);
  }
}

TEST_CASE("configz: defaults were applied by the kubelet, so absent is empty") {
  const auto config = parse_configz(
      R"({"kubeletconfig":{"evictionHard":{"imagefs.available":"15%","memory.available":"100Mi",
          "nodefs.available":"10%","nodefs.inodesFree":"5%","imagefs.inodesFree":"5%"},
          "imageGCHighThresholdPercent":90,"imageGCLowThresholdPercent":70,
          "imageMinimumGCAge":"5m0s","serializeImagePulls":false,"maxParallelImagePulls":4,
          "evictionPressureTransitionPeriod":"5m0s"}})");
  REQUIRE(config);
  CHECK(config->eviction_hard == upstream_defaults());
  CHECK(config->image_gc_high_percent == 90);
  CHECK(config->image_gc_low_percent == 70);
  CHECK(config->image_minimum_gc_age == std::chrono::minutes(5));
  CHECK(!config->serialize_image_pulls);
  CHECK(config->max_parallel_image_pulls == 4);
  CHECK(parse_configz(R"({"kubeletconfig":{}})")->eviction_hard.empty());
  CHECK(!parse_configz("{}"));
  CHECK(!parse_configz("Unauthorized"));
}

TEST_CASE("kubelet: soft thresholds, grace, minimum reclaim") {
  const auto config = parse_kubelet_configuration(
      "evictionHard: {imagefs.available: 15%}\n"
      "evictionSoft: {imagefs.available: 20Gi, nodefs.available: 5%}\n"
      "evictionSoftGracePeriod: {imagefs.available: 1m30s}\n"
      "evictionMinimumReclaim: {imagefs.available: 3Gi, nodefs.available: 10%}\n");
  REQUIRE(config);
  const ThresholdValue three_gib{.quantity = std::int64_t{3} << 30};
  const ThresholdValue ten_percent{.quantity = 0, .fraction_bits = kTenPercent};
  CHECK(config->eviction_hard ==
        Thresholds{EvictionThreshold{
            EvictionSignal::ImagefsAvailable, {0, kFifteenPercent}, three_gib, Duration{}}});
  CHECK(config->eviction_soft ==
        Thresholds{EvictionThreshold{
                       EvictionSignal::NodefsAvailable, {0, kFivePercent}, ten_percent, Duration{}},
                   EvictionThreshold{EvictionSignal::ImagefsAvailable,
                                     {std::int64_t{20} << 30, 0},
                                     three_gib,
                                     std::chrono::seconds(90)}});
}

TEST_CASE("kubelet: image settings and their defaults") {
  const auto defaults = parse_kubelet_configuration("imageMinimumGCAge: 0s\n");
  REQUIRE(defaults);
  CHECK(defaults->image_gc_high_percent == 85);
  CHECK(defaults->image_gc_low_percent == 80);
  CHECK(defaults->image_minimum_gc_age == std::chrono::minutes(2));
  CHECK(defaults->serialize_image_pulls);
  CHECK(!defaults->max_parallel_image_pulls);
  CHECK(parse_kubelet_configuration("maxParallelImagePulls: 1")->serialize_image_pulls);
  CHECK(!parse_kubelet_configuration("maxParallelImagePulls: 3")->serialize_image_pulls);
  CHECK(parse_kubelet_configuration("serializeImagePulls: true\nmaxParallelImagePulls: 3")
            ->serialize_image_pulls);
}

TEST_CASE("kubelet: bad files, one sentence") {
  struct Case {
    const char* text;
    const char* message;
  };

  for (const Case& c : {
           Case{"evictionHard: {nodefs.available: lots}",
                "evictionHard[nodefs.available]: \"lots\" is no quantity"},
           Case{"evictionHard: {nodefs.available: 120%}",
                "evictionHard[nodefs.available]: \"120%\" is no percentage between 0% and 100%"},
           Case{"evictionHard: [a]", "evictionHard: expected a map, got a list"},
           Case{"evictionSoft: {nodefs.available: 1Gi}\n"
                "evictionSoftGracePeriod: {nodefs.available: 5}",
                "evictionSoftGracePeriod[nodefs.available]: \"5\" is no duration"},
           Case{"imageGCHighThresholdPercent: most",
                "imageGCHighThresholdPercent: expected a number, got a string"},
           Case{"imageGCHighThresholdPercent: 850", "image garbage collection over 100 percent"},
           Case{"kind: Pod", "expected a KubeletConfiguration, got kind \"Pod\""},
           Case{"", "expected a KubeletConfiguration, got nothing"},
       }) {
    CAPTURE(c.text);
    const auto config = parse_kubelet_configuration(c.text);
    REQUIRE(!config);
    CHECK(config.error().message == c.message);
  }
}

}  // namespace imagefs_guard::kubelet_config_test
