#pragma once
/// Kubernetes quantities ("512Mi", "1.5Gi", "5G", "10%") and Go durations ("2m0s") as integers.
/// Used by the readers of pods, kubelet configuration and policy; pure.

#include <cstdint>
#include <string>
#include <string_view>

#include "agent/core/result.h"
#include "agent/core/threshold.h"
#include "agent/core/time.h"

namespace imagefs_guard {

/// As resource.ParseQuantity() and Value(): fractions round up, beyond int64 is int64's maximum.
[[nodiscard]] Result<std::int64_t> parse_quantity(std::string_view text);

/// As the kubelet reads "10%": float32(ParseFloat(s, 32)) / 100, in float32; the bits of it.
/// 0 % and less than float32 can hold give 0. InvalidArgument over 100 % or below 0.
[[nodiscard]] Result<std::uint32_t> parse_percentage(std::string_view text);

/// "10%" or a quantity. Empty, "0" and "0%" are an unset value, and so is "100%", which the
/// kubelet ignores too. Negative is InvalidArgument.
[[nodiscard]] Result<ThresholdValue> parse_threshold_value(std::string_view text);

/// As time.ParseDuration(): "2m0s", "1h30m", "1.5s", "0". Below a microsecond is cut off.
[[nodiscard]] Result<Duration> parse_duration(std::string_view text);

/// "512Mi", "10Gi" where it is a whole number of them, else plain bytes: parse_quantity()'s
/// reverse.
[[nodiscard]] std::string format_quantity(std::int64_t bytes);

/// "1h30m", "10s", "250ms": parse_duration()'s reverse.
[[nodiscard]] std::string format_duration(Duration duration);

}  // namespace imagefs_guard
