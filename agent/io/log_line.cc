#include "agent/io/log_line.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace imagefs_guard {

namespace {

constexpr std::size_t kValueLimit = 4096;
constexpr std::size_t kNameLimit = 256;
// For the closing brace, the mark that something is missing, and the newline.
constexpr std::size_t kTailReserve = 64;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return "debug";
    case LogLevel::Info:
      return "info";
    case LogLevel::Warn:
      return "warn";
    case LogLevel::Error:
      return "error";
  }
  return "unknown";
}

/// Length of the valid UTF-8 sequence at the start of `text`, 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  const std::size_t length = first >= 0xf0 ? 4 : (first >= 0xe0 ? 3 : 2);
  if (first < 0xc2 || first > 0xf4 || text.size() < length) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return 0;
    }
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) > 0x9f;
  const bool too_large = first == 0xf4 && byte(1) > 0x8f;
  return overlong || surrogate || too_large ? 0 : length;
}

void append_escaped_control(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default: {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(c) & 0xff);
      out += escaped.data();
    }
  }
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    if (out.size() > kValueLimit) {
      out += "…";
      break;
    }
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0) {
      out += kReplacement;
    } else if (static_cast<std::uint8_t>(c) < 0x20 || c == '"' || c == '\\' || c == 0x7f) {
      append_escaped_control(out, c);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
  return out;
}

std::string value_text(const LogField& field) {
  struct Visitor {
    std::string operator()(const std::string& text) const { return quoted(text); }

    std::string operator()(std::int64_t number) const { return std::to_string(number); }

    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
  };

  return std::visit(Visitor{}, field.value);
}

std::string json_line(const LogRecord& record, const LogLineContext& context) {
  std::string line = "{\"time\":\"" + format_rfc3339_milli(context.time) + "\",\"level\":\"" +
                     level_name(record.level) +
                     "\",\"event\":" + quoted(record.event.substr(0, kNameLimit)) +
                     ",\"logger\":" + quoted(record.logger.substr(0, kNameLimit)) +
                     ",\"msg\":" + quoted(record.message);
  if (!context.node.empty()) {
    line += ",\"node\":" + quoted(context.node.substr(0, kNameLimit));
  }
  if (context.dropped > 0) {
    line += ",\"dropped\":" + std::to_string(context.dropped);
  }
  for (const LogField& field : record.fields) {
    const std::string part =
        "," + quoted(field.key.substr(0, kNameLimit)) + ":" + value_text(field);
    if (line.size() + part.size() > kLogLineLimit - kTailReserve) {
      line += ",\"truncated\":true";
      break;
    }
    line += part;
  }
  return line + "}\n";
}

std::string text_line(const LogRecord& record, const LogLineContext& context) {
  const std::string message = quoted(record.message);
  std::string line = format_rfc3339_milli(context.time) + " " + level_name(record.level) + " " +
                     std::string(record.event.substr(0, kNameLimit)) + ": " +
                     message.substr(1, message.size() - 2);
  if (context.dropped > 0) {
    line += " dropped=" + std::to_string(context.dropped);
  }
  for (const LogField& field : record.fields) {
    const std::string part =
        " " + std::string(field.key.substr(0, kNameLimit)) + "=" + value_text(field);
    if (line.size() + part.size() > kLogLineLimit - kTailReserve) {
      line += " …";
      break;
    }
    line += part;
  }
  return line + "\n";
}

}  // namespace

std::string format_log_line(const LogRecord& record, const LogLineContext& context) {
  return context.format == LogFormat::Json ? json_line(record, context)
                                           : text_line(record, context);
}

std::string format_rfc3339_milli(WallTime time) {
  const auto milliseconds =
      std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const std::int64_t fraction = ((milliseconds % 1000) + 1000) % 1000;
  const auto seconds = static_cast<std::time_t>((milliseconds - fraction) / 1000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 8> tail{};
  std::snprintf(tail.data(), tail.size(), ".%03dZ", static_cast<int>(fraction));
  return std::string(text.data(), length) + tail.data();
}

}  // namespace imagefs_guard
