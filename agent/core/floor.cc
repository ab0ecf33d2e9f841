#include "agent/core/floor.h"

#include <vector>

#include "agent/core/verify.h"

namespace imagefs_guard {

namespace {

const char* signal_name(EvictionSignal signal) {
  switch (signal) {
    case EvictionSignal::NodefsAvailable:
      return "nodefs.available";
    case EvictionSignal::NodefsInodesFree:
      return "nodefs.inodesFree";
    case EvictionSignal::ImagefsAvailable:
      return "imagefs.available";
    case EvictionSignal::ImagefsInodesFree:
      return "imagefs.inodesFree";
  }
  return "unknown";
}

void raise(Floor& floor, const Filesystem& device, const std::vector<EvictionThreshold>& list) {
  for (const EvictionThreshold& threshold : list) {
    const bool about_nodefs = threshold.signal == EvictionSignal::NodefsAvailable ||
                              threshold.signal == EvictionSignal::NodefsInodesFree;
    if (about_nodefs && !device.holds_kubelet) {
      continue;
    }
    const bool about_inodes = threshold.signal == EvictionSignal::NodefsInodesFree ||
                              threshold.signal == EvictionSignal::ImagefsInodesFree;
    if (about_inodes) {
      const std::int64_t inodes = threshold_quantity(threshold.value, device.inodes);
      floor.inodes = inodes > floor.inodes ? inodes : floor.inodes;
      continue;
    }
    const std::int64_t bytes = threshold_quantity(threshold.value, device.capacity_bytes);
    if (bytes > floor.bytes) {
      floor.bytes = bytes;
      floor.source = signal_name(threshold.signal);
      floor.threshold = threshold.value;
    }
  }
}

}  // namespace

Floor floor_of(const Filesystem& device,
               const std::optional<KubeletConfig>& kubelet,
               const Policy& policy) {
  VERIFY(device.capacity_bytes > 0);
  Floor floor;
  if (kubelet.has_value()) {
    raise(floor, device, kubelet->eviction_hard);
    raise(floor, device, kubelet->eviction_soft);
  }
  if (floor.bytes == 0) {
    floor.bytes = threshold_quantity(policy.default_floor, device.capacity_bytes);
    floor.source = "policy";
    floor.threshold = policy.default_floor;
  }
  floor.bytes += policy.floor_margin_bytes;
  return floor;
}

int image_usage_percent(const Filesystem& device) {
  if (device.capacity_bytes <= 0) {
    return 0;
  }
  __extension__ using Wide = __int128;
  return 100 - static_cast<int>(Wide{device.available_bytes} * 100 / device.capacity_bytes);
}

}  // namespace imagefs_guard
