#pragma once
/// One log record as text, pure: what log() writes, without the writing.

#include <cstdint>
#include <string>
#include <string_view>

#include "agent/core/time.h"
#include "agent/io/log.h"

namespace imagefs_guard {

struct LogLineContext {
  LogFormat format = LogFormat::Json;
  std::string_view node;
  WallTime time{};
  std::int64_t dropped = 0;  // records of this event that were left out before
};

/// With the newline, shorter than kLogLineLimit: long values are cut, fields that have no room
/// left are left out. Any bytes may go in; what comes out is valid UTF-8 (and JSON).
[[nodiscard]] std::string format_log_line(const LogRecord& record, const LogLineContext& context);

/// Container runtimes cut lines at 16 KiB, and half a JSON object is none.
constexpr std::size_t kLogLineLimit = std::size_t{16} << 10;

/// "2025-01-31T12:00:00.123Z".
[[nodiscard]] std::string format_rfc3339_milli(WallTime time);

}  // namespace imagefs_guard
