#include "agent/wire/quantity.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>

#include "agent/core/text.h"

namespace imagefs_guard {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::int64_t kMaximum = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kTextLimit = 64;
constexpr int kDigitLimit = 19;  // as int64 has; 10^19 * 2^60 * 10 fits 128 bits

Error bad(std::string_view what, std::string_view text) {
  return Error{ErrorKind::InvalidArgument,
               "\"" + std::string(text.substr(0, kTextLimit)) + "\" is no " + std::string(what)};
}

/// A decimal number as digits and a power of ten.
struct Decimal {
  std::uint64_t mantissa = 0;
  int exponent = 0;      // of ten
  bool inexact = false;  // digits that are not zero were dropped: it is a little more
  bool too_large = false;
};

/// Reads "12.5" from the front of `text`; nullopt without a digit.
std::optional<Decimal> take_decimal(std::string_view& text) {
  Decimal decimal;
  int digits = 0;
  bool seen = false;
  bool fraction = false;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    if (text[i] == '.' && !fraction) {
      fraction = true;
      continue;
    }
    if (!is_digit(text[i])) {
      break;
    }
    seen = true;
    const auto digit = static_cast<std::uint64_t>(text[i] - '0');
    if (digits == kDigitLimit) {
      decimal.too_large = decimal.too_large || !fraction;
      decimal.inexact = decimal.inexact || digit != 0;
      continue;
    }
    decimal.mantissa = decimal.mantissa * 10 + digit;
    digits += decimal.mantissa != 0 ? 1 : 0;
    decimal.exponent -= fraction ? 1 : 0;
  }
  text.remove_prefix(i);
  return seen ? std::optional(decimal) : std::nullopt;
}

/// What a suffix multiplies with: 2^shift * 10^exponent.
struct Scale {
  unsigned shift = 0;
  int exponent = 0;
};

std::optional<Scale> parse_scale(std::string_view suffix) {
  struct Named {
    std::string_view suffix;
    Scale scale;
  };

  static constexpr std::array<Named, 16> kNamed = {{
      {"", {0, 0}},
      {"n", {0, -9}},
      {"u", {0, -6}},
      {"m", {0, -3}},
      {"k", {0, 3}},
      {"M", {0, 6}},
      {"G", {0, 9}},
      {"T", {0, 12}},
      {"P", {0, 15}},
      {"E", {0, 18}},
      {"Ki", {10, 0}},
      {"Mi", {20, 0}},
      {"Gi", {30, 0}},
      {"Ti", {40, 0}},
      {"Pi", {50, 0}},
      {"Ei", {60, 0}},
  }};
  for (const Named& named : kNamed) {
    if (named.suffix == suffix) {
      return named.scale;
    }
  }
  if (suffix.size() < 2 || (suffix[0] != 'e' && suffix[0] != 'E')) {
    return std::nullopt;
  }
  suffix.remove_prefix(suffix[1] == '+' ? 2 : 1);
  int exponent = 0;
  const auto [end, error] = std::from_chars(suffix.begin(), suffix.end(), exponent);
  if (error != std::errc() || end != suffix.end() || exponent < -1000 || exponent > 1000) {
    return std::nullopt;
  }
  return Scale{0, exponent};
}

/// Rounds up, saturates.
std::int64_t scaled(const Decimal& decimal, Scale scale) {
  if (decimal.mantissa == 0) {
    return decimal.inexact ? 1 : 0;
  }
  if (decimal.too_large) {
    return kMaximum;
  }
  Wide value = static_cast<Wide>(decimal.mantissa) << scale.shift;
  bool round_up = decimal.inexact;
  int exponent = decimal.exponent + scale.exponent;
  for (; exponent > 0; --exponent) {
    value *= 10;
    if (value > static_cast<Wide>(kMaximum)) {
      return kMaximum;
    }
  }
  for (; exponent < 0 && value != 0; ++exponent) {
    round_up = round_up || value % 10 != 0;
    value /= 10;
  }
  value += round_up ? 1 : 0;
  return value > static_cast<Wide>(kMaximum) ? kMaximum : static_cast<std::int64_t>(value);
}

/// Units of a duration in nanoseconds, longest spelling first.
struct Unit {
  std::string_view name;
  std::int64_t nanoseconds;
};

constexpr std::array<Unit, 8> kUnits = {{
    {"ns", 1},
    {"us", 1'000},
    {"\xc2\xb5s", 1'000},  // micro sign
    {"\xce\xbcs", 1'000},  // Greek mu
    {"ms", 1'000'000},
    {"s", 1'000'000'000},
    {"m", 60'000'000'000},
    {"h", 3'600'000'000'000},
}};

/// One "1.5h" from the front, in nanoseconds.
std::optional<std::int64_t> take_duration_part(std::string_view& text) {
  const std::optional<Decimal> decimal = take_decimal(text);
  if (!decimal || decimal->too_large) {
    return std::nullopt;
  }
  for (const Unit& unit : kUnits) {
    if (!text.starts_with(unit.name)) {
      continue;
    }
    text.remove_prefix(unit.name.size());
    Wide value = static_cast<Wide>(decimal->mantissa) * static_cast<Wide>(unit.nanoseconds);
    for (int exponent = decimal->exponent; exponent < 0; ++exponent) {
      value /= 10;
    }
    return value > static_cast<Wide>(kMaximum) ? std::nullopt
                                               : std::optional(static_cast<std::int64_t>(value));
  }
  return std::nullopt;
}

}  // namespace

Result<std::int64_t> parse_quantity(std::string_view text) {
  if (text.empty() || text.size() > kTextLimit) {
    return bad("quantity", text);
  }
  std::string_view rest = text;
  const bool negative = rest[0] == '-';
  if (rest[0] == '-' || rest[0] == '+') {
    rest.remove_prefix(1);
  }
  const std::optional<Decimal> decimal = take_decimal(rest);
  const std::optional<Scale> scale = parse_scale(rest);
  if (!decimal || !scale) {
    return bad("quantity", text);
  }
  const std::int64_t value = scaled(*decimal, *scale);
  return negative ? -value : value;
}

Result<std::uint32_t> parse_percentage(std::string_view text) {
  std::string_view number = text;
  while (number.ends_with('%')) {
    number.remove_suffix(1);
  }
  if (number.starts_with('+')) {
    number.remove_prefix(1);
  }
  float percent = 0;
  const char* end_of_number = number.data() + number.size();
  const auto [end, error] = std::from_chars(number.data(), end_of_number, percent);
  if (number.size() == text.size() || number.size() > kTextLimit || end != end_of_number ||
      (error != std::errc() && error != std::errc::result_out_of_range)) {
    return bad("percentage", text);
  }
  if (error == std::errc::result_out_of_range && number.find("e-") != std::string_view::npos) {
    percent = 0;  // less than float32 can hold
  } else if (error != std::errc()) {
    return bad("percentage between 0% and 100%", text);
  }
  const float fraction = percent / 100.0F;
  if (!(fraction >= 0.0F && fraction <= 1.0F)) {
    return bad("percentage between 0% and 100%", text);
  }
  return std::isnormal(fraction) ? std::bit_cast<std::uint32_t>(fraction) : 0;
}

Result<ThresholdValue> parse_threshold_value(std::string_view text) {
  if (text.empty() || text == "100%") {
    return ThresholdValue{};
  }
  if (text.ends_with('%')) {
    return ThresholdValue{.quantity = 0, .fraction_bits = TRY(parse_percentage(text))};
  }
  const std::int64_t quantity = TRY(parse_quantity(text));
  if (quantity < 0) {
    return bad("quantity of 0 or more", text);
  }
  return ThresholdValue{.quantity = quantity, .fraction_bits = 0};
}

Result<Duration> parse_duration(std::string_view text) {
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (rest.starts_with('-') || rest.starts_with('+')) {
    rest.remove_prefix(1);
  }
  if (rest == "0") {
    return Duration{};
  }
  if (rest.empty() || rest.size() > kTextLimit) {
    return bad("duration", text);
  }
  std::int64_t total = 0;
  while (!rest.empty()) {  // ends: each part takes at least a digit and a unit
    const std::optional<std::int64_t> part = take_duration_part(rest);
    if (!part || *part > kMaximum - total) {
      return bad("duration", text);
    }
    total += *part;
  }
  const auto duration =
      std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(negative ? -total : total));
  return duration;
}

std::string format_quantity(std::int64_t bytes) {
  static constexpr std::array<const char*, 7> kSuffixes = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
  std::size_t suffix = 0;
  while (bytes != 0 && bytes % 1024 == 0 && suffix + 1 < kSuffixes.size()) {
    bytes /= 1024;
    ++suffix;
  }
  return std::to_string(bytes) + kSuffixes[suffix];
}

std::string format_duration(Duration duration) {
  if (duration < Duration{}) {
    return "-" + format_duration(-duration);
  }
  std::int64_t microseconds = duration.count();
  std::string text;
  for (const auto& [name, length] : {std::pair<const char*, std::int64_t>{"h", 3'600'000'000},
                                     {"m", 60'000'000},
                                     {"s", 1'000'000},
                                     {"ms", 1'000},
                                     {"us", 1}}) {
    if (microseconds >= length) {
      text += std::to_string(microseconds / length) + name;
      microseconds %= length;
    }
  }
  return text.empty() ? "0s" : text;
}

}  // namespace imagefs_guard
