#include "agent/core/verdict.h"

#include "agent/core/words.h"

namespace imagefs_guard {

namespace {

constexpr std::int64_t kVolumeGibMaximum = 65'536;

int rank(Verdict verdict) {
  switch (verdict) {
    case Verdict::Fits:
      return 0;
    case Verdict::FitsAfterReclaim:
      return 1;
    case Verdict::FitsLater:
      return 2;
    case Verdict::DoesNotFit:
      return 3;
    case Verdict::NeverFits:
      return 4;
    case Verdict::Unknown:
      return 5;
  }
  return 5;
}

bool fits_volume(const VolumeNeed& need, std::int64_t volume_bytes) {
  const std::int64_t used = need.capacity_bytes - need.available_bytes - need.reclaimable_bytes;
  const std::int64_t floor =
      threshold_quantity(need.threshold, volume_bytes) + need.floor_margin_bytes;
  return volume_bytes - used - need.peak_bytes >= floor;
}

}  // namespace

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::Unknown:
      return "Unknown";
    case Verdict::Fits:
      return "Fits";
    case Verdict::FitsAfterReclaim:
      return "FitsAfterReclaim";
    case Verdict::FitsLater:
      return "FitsLater";
    case Verdict::DoesNotFit:
      return "DoesNotFit";
    case Verdict::NeverFits:
      return "NeverFits";
  }
  return "Unknown";
}

Verdict judge(const Balance& b) {
  const std::int64_t left = b.available - b.outstanding - b.peak;
  if (left >= b.floor) {
    return Verdict::Fits;
  }
  if (left + b.reclaimable >= b.floor) {
    return Verdict::FitsAfterReclaim;
  }
  if (b.settled_available - b.settled_peak >= b.floor) {
    return Verdict::FitsLater;
  }
  if (b.settled_available + b.reclaimable + b.here_discarded - b.steady < b.floor) {
    return Verdict::NeverFits;
  }
  return Verdict::DoesNotFit;
}

Verdict worse(Verdict left, Verdict right) {
  return rank(left) >= rank(right) ? left : right;
}

std::int64_t smallest_volume_gib(const VolumeNeed& need) {
  if (!fits_volume(need, kVolumeGibMaximum * kGib)) {
    return 0;
  }
  // Free space grows with the volume faster than any floor below 100 %: bisect.
  std::int64_t too_small = 0;
  std::int64_t fits = kVolumeGibMaximum;
  while (fits - too_small > 1) {
    const std::int64_t middle = too_small + (fits - too_small) / 2;
    (fits_volume(need, middle * kGib) ? fits : too_small) = middle;
  }
  return fits;
}

}  // namespace imagefs_guard
