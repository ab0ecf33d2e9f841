// untested: registry/url_test.cc has its cases.
#include "agent/wire/percent_encoding.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace imagefs_guard {
namespace {

/// The byte that two hexadecimal digits at the front stand for.
std::optional<char> hex_byte(std::string_view text) {
  unsigned value = 0;
  const char* end = text.data() + std::min<std::size_t>(text.size(), 2);
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  return error == std::errc() && stop == text.data() + 2 ? std::optional(static_cast<char>(value))
                                                         : std::nullopt;
}

}  // namespace

std::string percent_encode(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    const bool unreserved = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                            (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
    if (unreserved) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += kHex[byte >> 4U];
    encoded += kHex[byte & 15U];
  }
  return encoded;
}

std::string percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::optional<char> byte = text[i] == '%' ? hex_byte(text.substr(i + 1)) : std::nullopt;
    decoded += byte.value_or(text[i]);
    i += byte.has_value() ? 2 : 0;
  }
  return decoded;
}

}  // namespace imagefs_guard
