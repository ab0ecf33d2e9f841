#pragma once
/// The log: one record per line on stderr, JSON or text. Stable event ids, flat typed fields.
/// Never give it a token, an Authorization header or a presigned URL.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace imagefs_guard {

enum class LogLevel { Debug, Info, Warn, Error };
enum class LogFormat { Json, Text };

struct LogField {
  std::string_view key;  // a literal: "bytes_needed"
  std::variant<std::string, std::int64_t, bool> value;
};

struct LogRecord {
  LogLevel level = LogLevel::Info;
  std::string_view event;   // snake_case, stable
  std::string_view logger;  // "agent", "registry", "runtime", …
  std::string message;
  std::vector<LogField> fields;
};

/// Set once by main.cc; `node` goes into every record.
void configure_log(LogFormat format, LogLevel level, std::string node);

/// Writes the record. More than 20 records of one event within 10 s are dropped and counted in
/// the next record that gets through (`dropped`); error records always get through.
void log(const LogRecord& record);

[[nodiscard]] std::optional<LogLevel> parse_log_level(std::string_view text);

}  // namespace imagefs_guard
