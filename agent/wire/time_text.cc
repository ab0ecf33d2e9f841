#include "agent/wire/time_text.h"

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "agent/core/text.h"

namespace imagefs_guard {

namespace {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

/// Exactly `count` digits from the front.
std::optional<int> take_number(std::string_view& text, std::size_t count) {
  if (text.size() < count) {
    return std::nullopt;
  }
  int value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_digit(text[i])) {
      return std::nullopt;
    }
    value = value * 10 + (text[i] - '0');
  }
  text.remove_prefix(count);
  return value;
}

bool take_char(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text[0]) == std::string_view::npos) {
    return false;
  }
  text.remove_prefix(1);
  return true;
}

struct CivilTime {
  int year = 1970;
  int month = 1;
  int day = 1;
  int hour = 0;
  int minute = 0;
  int second = 0;
};

std::optional<WallTime> to_wall_time(const CivilTime& civil) {
  const std::chrono::year_month_day date{std::chrono::year(civil.year),
                                         std::chrono::month(static_cast<unsigned>(civil.month)),
                                         std::chrono::day(static_cast<unsigned>(civil.day))};
  if (!date.ok() || civil.year < 1970 || civil.hour > 23 || civil.minute > 59 ||
      civil.second > 60) {
    return std::nullopt;
  }
  const auto since_epoch = std::chrono::sys_days(date).time_since_epoch();
  return WallTime(since_epoch + hours(civil.hour) + minutes(civil.minute) + seconds(civil.second));
}

std::optional<CivilTime> take_civil_time(std::string_view& text) {
  CivilTime civil;
  const auto part = [&text](int& into, std::size_t count, std::string_view separators) {
    const std::optional<int> number = take_number(text, count);
    into = number.value_or(0);
    return number && (separators.empty() || take_char(text, separators));
  };
  if (part(civil.year, 4, "-") && part(civil.month, 2, "-") && part(civil.day, 2, "Tt ") &&
      part(civil.hour, 2, ":") && part(civil.minute, 2, ":") && part(civil.second, 2, "")) {
    return civil;
  }
  return std::nullopt;
}

/// ".123456789": microseconds, the rest is cut off.
std::optional<Duration> take_fraction(std::string_view& text) {
  if (!take_char(text, ".,")) {
    return Duration{};
  }
  std::int64_t microseconds = 0;
  std::size_t digits = 0;
  for (; digits < text.size() && is_digit(text[digits]); ++digits) {
    if (digits < 6) {
      microseconds = microseconds * 10 + (text[digits] - '0');
    }
  }
  if (digits == 0) {
    return std::nullopt;
  }
  text.remove_prefix(digits);
  for (std::size_t i = digits; i < 6; ++i) {
    microseconds *= 10;
  }
  return Duration(microseconds);
}

std::optional<Duration> take_offset(std::string_view& text) {
  if (take_char(text, "Zz")) {
    return Duration{};
  }
  const bool west = text.starts_with('-');
  if (!take_char(text, "+-")) {
    return std::nullopt;
  }
  const std::optional<int> hour = take_number(text, 2);
  if (!hour || !take_char(text, ":")) {
    return std::nullopt;
  }
  const std::optional<int> minute = take_number(text, 2);
  if (!minute || *hour > 23 || *minute > 59) {
    return std::nullopt;
  }
  const Duration offset = hours(*hour) + minutes(*minute);
  return west ? -offset : offset;
}

std::string format_seconds(WallTime time) {
  const auto whole = std::chrono::floor<seconds>(time.time_since_epoch());
  const auto day = std::chrono::floor<days>(whole);
  const std::chrono::year_month_day date{std::chrono::sys_days(day)};
  const std::chrono::hh_mm_ss clock{whole - day};
  std::array<char, 80> text{};
  std::snprintf(text.data(),
                text.size(),
                "%04d-%02u-%02uT%02d:%02d:%02d",
                static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()),
                static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  return text.data();
}

}  // namespace

std::optional<WallTime> parse_rfc3339(std::string_view text) {
  const std::optional<CivilTime> civil = take_civil_time(text);
  if (!civil) {
    return std::nullopt;
  }
  const std::optional<WallTime> time = to_wall_time(*civil);
  const std::optional<Duration> fraction = take_fraction(text);
  const std::optional<Duration> offset = take_offset(text);
  if (!time || !fraction || !offset || !text.empty()) {
    return std::nullopt;
  }
  return *time + *fraction - *offset;
}

std::string format_rfc3339(WallTime time) {
  return format_seconds(time) + "Z";
}

std::string format_rfc3339_micro(WallTime time) {
  const auto since_epoch = time.time_since_epoch();
  const auto rest = since_epoch - std::chrono::floor<seconds>(since_epoch);
  std::string digits = std::to_string(rest.count());
  digits.insert(0, 6 - digits.size(), '0');
  return format_seconds(time) + "." + digits + "Z";
}

std::optional<WallTime> parse_http_date(std::string_view text) {
  static constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const std::size_t comma = text.find(", ");
  if (comma != 3) {
    return std::nullopt;
  }
  text.remove_prefix(5);
  CivilTime civil;
  const std::optional<int> day = take_number(text, 2);
  if (!day || !take_char(text, " -") || text.size() < 4) {
    return std::nullopt;
  }
  const std::size_t month = kMonths.find(text.substr(0, 3));
  text.remove_prefix(3);
  if (month == std::string_view::npos || month % 3 != 0 || !take_char(text, " -")) {
    return std::nullopt;
  }
  civil.day = *day;
  civil.month = static_cast<int>(month / 3) + 1;
  const auto part = [&text](int& into, std::size_t count, std::string_view separator) {
    const std::optional<int> number = take_number(text, count);
    into = number.value_or(0);
    return number && take_char(text, separator);
  };
  if (part(civil.year, 4, " ") && part(civil.hour, 2, ":") && part(civil.minute, 2, ":") &&
      part(civil.second, 2, " ") && text == "GMT") {
    return to_wall_time(civil);
  }
  return std::nullopt;
}

std::optional<Duration> parse_retry_after(std::string_view text, WallTime now) {
  constexpr std::int64_t kLongest = 366LL * 24 * 3600;
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size() && count >= 0) {
    return seconds(std::min(count, kLongest));
  }
  const std::optional<WallTime> date = parse_http_date(text);
  if (!date) {
    return std::nullopt;
  }
  return std::max(Duration{}, *date - now);
}

std::optional<WallTime> wall_time_from_seconds(double value) {
  constexpr double kLatest = 253'402'300'799.0;  // the end of the year 9999
  if (!(value >= 0 && value <= kLatest)) {
    return std::nullopt;
  }
  return WallTime(Duration(static_cast<std::int64_t>(value * 1e6)));
}

}  // namespace imagefs_guard
