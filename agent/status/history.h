#pragma once
/// Free space over the last hours, for the status page: a ring in memory, fed by main.cc.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agent/core/decision.h"
#include "agent/core/time.h"

namespace imagefs_guard {

/// One moment. Forecast: the low point to come of the pulls that go on, between the low and the
/// high side of what is known of their sizes; equal to what is available where there are none.
struct SpaceSample {
  WallTime at{};
  std::int64_t available_bytes = 0;
  std::int64_t floor_bytes = 0;
  std::int64_t forecast_low_bytes = 0;
  std::int64_t forecast_high_bytes = 0;

  bool operator==(const SpaceSample&) const = default;
};

constexpr Duration kHistoryStep = std::chrono::seconds(30);
/// Six hours.
constexpr std::size_t kHistorySamples = 720;

/// What the decision says of this moment; absent where the filesystem was not observed.
[[nodiscard]] std::optional<SpaceSample> sample_of(const Decision& decision, WallTime at);

class SpaceHistory {
 public:
  /// The oldest goes when there are more than kHistorySamples.
  void add(const SpaceSample& sample);

  /// Oldest first.
  [[nodiscard]] std::vector<SpaceSample> samples() const;

 private:
  std::vector<SpaceSample> ring_;
  std::size_t next_ = 0;
};

}  // namespace imagefs_guard
