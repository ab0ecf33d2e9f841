#pragma once
/// The line that free space must not cross: the largest eviction threshold that the kubelet
/// applies to the image filesystem's device, plus the policy's margin; the policy's own floor
/// where the kubelet gives none. Computed by decide() once per tick.

#include <cstdint>
#include <optional>
#include <string>

#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

struct Floor {
  std::int64_t bytes = 0;
  std::int64_t inodes = 0;
  std::string source;        // "imagefs.available", "nodefs.available", "policy"
  ThresholdValue threshold;  // the one that makes `bytes`; the margin is on top

  bool operator==(const Floor&) const = default;
};

/// `device` must have a capacity above zero. Signals of the kubelet's own root count where it is
/// on the same device. Soft thresholds count like hard ones: they evict too, only later.
[[nodiscard]] Floor floor_of(const Filesystem& device,
                             const std::optional<KubeletConfig>& kubelet,
                             const Policy& policy);

/// How full the device is as the kubelet's image garbage collection counts: in percent, by integer
/// division. It acts from imageGCHighThresholdPercent on. 0 without a capacity.
[[nodiscard]] int image_usage_percent(const Filesystem& device);

}  // namespace imagefs_guard
