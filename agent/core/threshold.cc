#include "agent/core/threshold.h"

#include "agent/core/verify.h"

namespace imagefs_guard {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kDoubleMantissaBits = 53;

int bit_length(Wide value) {
  int bits = 0;
  while (value != 0) {
    value >>= 1U;
    ++bits;
  }
  return bits;
}

/// To 53 significant bits, ties to even: what a double keeps.
Wide round_to_double(Wide value) {
  const int excess = bit_length(value) - kDoubleMantissaBits;
  if (excess <= 0) {
    return value;
  }
  const auto shift = static_cast<unsigned>(excess);
  const Wide low = value & ((Wide{1} << shift) - 1);
  const Wide half = Wide{1} << (shift - 1);
  Wide high = value >> shift;
  if (low > half || (low == half && (high & 1U) != 0)) {
    ++high;
  }
  return high << shift;
}

}  // namespace

std::int64_t threshold_quantity(ThresholdValue value, std::int64_t capacity) {
  VERIFY(capacity >= 0);
  if (value.fraction_bits == 0) {
    return value.quantity;
  }
  constexpr std::uint32_t kMantissaMask = (1U << 23U) - 1;
  const std::uint32_t exponent = (value.fraction_bits >> 23U) & 0xffU;
  VERIFY((value.fraction_bits >> 31U) == 0 && exponent > 0 && exponent <= 127);  // 0 < f < 2
  const std::uint32_t mantissa = (value.fraction_bits & kMantissaMask) | (1U << 23U);
  // The fraction is mantissa * 2^(exponent - 150), so the product is an integer shifted right.
  // The capacity is rounded first: float64(capacity) is exact only up to 2^53.
  const Wide product = round_to_double(round_to_double(static_cast<Wide>(capacity)) * mantissa);
  const unsigned shift = 150 - exponent;
  return shift >= 127 ? 0 : static_cast<std::int64_t>(product >> shift);
}

}  // namespace imagefs_guard
