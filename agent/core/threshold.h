#pragma once
/// Eviction thresholds with the kubelet's own arithmetic, to the byte.
/// The kubelet keeps a percentage as float32 and computes int64(float64(capacity) *
/// float64(fraction)). Core has no floats: the fraction travels as its IEEE-754 bits and the
/// product is rounded here as a double would be.

#include <cstdint>

namespace imagefs_guard {

/// Either a quantity (bytes or inodes) or, with fraction_bits set, a share of the capacity.
struct ThresholdValue {
  std::int64_t quantity = 0;
  /// float32 bits of the fraction (10 % = 0x3dcccccd); 0 = `quantity` counts.
  std::uint32_t fraction_bits = 0;

  bool operator==(const ThresholdValue&) const = default;

  [[nodiscard]] bool is_set() const { return quantity > 0 || fraction_bits != 0; }
};

/// The quantity that the kubelet compares `available < quantity` with. Capacity in the same unit
/// (bytes or inodes), must not be negative. An unset value gives 0, which never fires.
[[nodiscard]] std::int64_t threshold_quantity(ThresholdValue value, std::int64_t capacity);

}  // namespace imagefs_guard
