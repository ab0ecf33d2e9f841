#include "agent/status/history.h"

#include <algorithm>

namespace imagefs_guard {

std::optional<SpaceSample> sample_of(const Decision& decision, WallTime at) {
  const std::optional<Filesystem>& device = decision.node.image_filesystem;
  if (!device.has_value()) {
    return std::nullopt;
  }
  SpaceSample sample{.at = at,
                     .available_bytes = device->available_bytes,
                     .floor_bytes = decision.node.floor.bytes,
                     .forecast_low_bytes = decision.node.forecast_low_bytes,
                     .forecast_high_bytes = decision.node.forecast_low_bytes};
  for (const PullReport& pull : decision.pulls) {
    if (!pull.held && pull.verdict == Verdict::Fits) {
      sample.forecast_high_bytes += pull.demand.unpack_high_bytes - pull.demand.unpack_low_bytes;
    }
  }
  sample.forecast_high_bytes = std::min(sample.forecast_high_bytes, sample.available_bytes);
  return sample;
}

void SpaceHistory::add(const SpaceSample& sample) {
  if (ring_.size() < kHistorySamples) {
    ring_.push_back(sample);
    return;
  }
  ring_[next_] = sample;
  next_ = (next_ + 1) % kHistorySamples;
}

std::vector<SpaceSample> SpaceHistory::samples() const {
  std::vector<SpaceSample> samples(ring_.begin() + static_cast<std::ptrdiff_t>(next_), ring_.end());
  samples.insert(samples.end(), ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(next_));
  return samples;
}

}  // namespace imagefs_guard
