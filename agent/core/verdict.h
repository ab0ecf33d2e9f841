#pragma once
/// Will this pull fit? The exact conditions, as one pure function on integers (equality fits: the
/// kubelet acts when available is strictly below its threshold).

#include <cstdint>

#include "agent/core/threshold.h"

namespace imagefs_guard {

enum class Verdict { Unknown, Fits, FitsAfterReclaim, FitsLater, DoesNotFit, NeverFits };

/// "Fits", "NeverFits": as in logs, metrics and Events.
[[nodiscard]] const char* to_string(Verdict verdict);

/// One resource of the device (bytes, or inodes) as a pull meets it.
struct Balance {
  std::int64_t available = 0;
  std::int64_t floor = 0;
  std::int64_t outstanding = 0;     // what other live pulls have yet to write
  std::int64_t peak = 0;            // what this pull writes at its peak
  std::int64_t steady = 0;          // what of it remains
  std::int64_t reclaimable = 0;     // what deleting unused images gives back
  std::int64_t here_discarded = 0;  // blobs of this image already here, discarded at its end
  /// Available once the other live pulls have settled, and this pull's peak then. Equal to
  /// `available` and `peak` where there are no others.
  std::int64_t settled_available = 0;
  std::int64_t settled_peak = 0;

  /// What is missing at the peak; not above 0 where it fits.
  [[nodiscard]] std::int64_t shortfall() const { return floor + outstanding + peak - available; }

  bool operator==(const Balance&) const = default;
};

/// The first condition that holds, in this order: Fits, FitsAfterReclaim, FitsLater, NeverFits,
/// DoesNotFit. Unknown is the caller's: it has no numbers.
[[nodiscard]] Verdict judge(const Balance& balance);

/// The verdict of bytes and inodes together: the worse one.
[[nodiscard]] Verdict worse(Verdict left, Verdict right);

struct VolumeNeed {
  std::int64_t capacity_bytes = 0;
  std::int64_t available_bytes = 0;
  std::int64_t reclaimable_bytes = 0;
  std::int64_t peak_bytes = 0;
  ThresholdValue threshold;  // the one that makes the floor
  std::int64_t floor_margin_bytes = 0;
};

/// The smallest volume in whole GiB that takes the pull beside what is used now; 0 = none below
/// 64 TiB.
[[nodiscard]] std::int64_t smallest_volume_gib(const VolumeNeed& need);

}  // namespace imagefs_guard
