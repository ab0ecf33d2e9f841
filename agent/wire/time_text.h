#pragma once
/// Timestamps in text: RFC 3339 as Kubernetes and AWS write it, HTTP dates and Retry-After. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/core/time.h"

namespace imagefs_guard {

/// "2026-01-02T03:04:05Z", with or without a fraction, Z or ±hh:mm; years 1970 to 9999.
[[nodiscard]] std::optional<WallTime> parse_rfc3339(std::string_view text);

/// "2026-01-02T03:04:05Z", as metav1.Time; the fraction is cut off.
[[nodiscard]] std::string format_rfc3339(WallTime time);

/// "2026-01-02T03:04:05.678901Z", as metav1.MicroTime.
[[nodiscard]] std::string format_rfc3339_micro(WallTime time);

/// "Fri, 02 Jan 2026 03:04:05 GMT", the form that HTTP servers send.
[[nodiscard]] std::optional<WallTime> parse_http_date(std::string_view text);

/// The wait that a Retry-After header asks for, seconds or a date; at least 0.
[[nodiscard]] std::optional<Duration> parse_retry_after(std::string_view text, WallTime now);

/// Seconds since the epoch; nullopt where int64 microseconds can't hold them.
[[nodiscard]] std::optional<WallTime> wall_time_from_seconds(double seconds);

}  // namespace imagefs_guard
