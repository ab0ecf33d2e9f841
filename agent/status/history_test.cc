#include "agent/status/history.h"

#include <doctest/doctest.h>

namespace imagefs_guard::history_test {

TEST_CASE("the ring keeps the latest, oldest first") {
  SpaceHistory history;
  CHECK(history.samples().empty());
  for (std::size_t i = 0; i < kHistorySamples + 5; ++i) {
    history.add({.available_bytes = static_cast<std::int64_t>(i)});
  }
  const auto samples = history.samples();
  REQUIRE(samples.size() == kHistorySamples);
  CHECK(samples.front().available_bytes == 5);
  CHECK(samples.back().available_bytes == static_cast<std::int64_t>(kHistorySamples) + 4);
}

TEST_CASE("the band is the doubt about the pulls that go on") {
  Decision decision;
  CHECK_FALSE(sample_of(decision, {}).has_value());
  decision.node.image_filesystem = Filesystem{.capacity_bytes = 1000, .available_bytes = 600};
  decision.node.floor.bytes = 100;
  decision.node.forecast_low_bytes = 350;
  decision.pulls.resize(2);
  for (PullReport& pull : decision.pulls) {
    pull.verdict = Verdict::Fits;
    pull.demand.download_bytes = 50;
    pull.demand.unpack_low_bytes = 120;
    pull.demand.unpack_high_bytes = 200;
  }
  decision.pulls[1].held = true;
  decision.pulls[1].verdict = Verdict::DoesNotFit;
  CHECK(sample_of(decision, WallTime{}) == SpaceSample{.at = {},
                                                       .available_bytes = 600,
                                                       .floor_bytes = 100,
                                                       .forecast_low_bytes = 350,
                                                       .forecast_high_bytes = 430});
}

}  // namespace imagefs_guard::history_test
