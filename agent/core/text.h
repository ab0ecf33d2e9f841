#pragma once
/// The few things about ASCII that several folders need. Locale-free, as headers, digests and
/// references are.

#include <algorithm>
#include <string>
#include <string_view>

namespace imagefs_guard {

[[nodiscard]] constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

[[nodiscard]] constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// A copy whose ASCII letters are small; other bytes stay as they are.
[[nodiscard]] inline std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) { return lower(c); });
  return result;
}

}  // namespace imagefs_guard
