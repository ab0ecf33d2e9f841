// untested: parsed and printed by the tests of wire/ and decide_test.cc.
#include "agent/core/digest.h"

namespace imagefs_guard {

namespace {

constexpr std::string_view kPrefix = "sha256:";
constexpr std::string_view kHexDigits = "0123456789abcdef";

int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  return -1;
}

std::string to_hex(const Digest& digest, std::size_t digits) {
  std::string hex;
  hex.reserve(digits);
  for (std::size_t i = 0; i < digits; ++i) {
    const unsigned byte = digest.bytes[i / 2];
    hex.push_back(kHexDigits[i % 2 == 0 ? byte >> 4U : byte & 15U]);
  }
  return hex;
}

}  // namespace

std::optional<Digest> parse_digest(std::string_view text) {
  if (text.size() != kPrefix.size() + 64 || !text.starts_with(kPrefix)) {
    return std::nullopt;
  }
  text.remove_prefix(kPrefix.size());
  Digest digest;
  for (std::size_t i = 0; i < digest.bytes.size(); ++i) {
    const int high = hex_value(text[2 * i]);
    const int low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0) {
      return std::nullopt;
    }
    digest.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return digest;
}

std::optional<Digest> digest_of_ref(std::string_view ref) {
  const std::size_t at = ref.rfind(kPrefix);
  return at == std::string_view::npos ? std::nullopt : parse_digest(ref.substr(at));
}

std::string to_string(const Digest& digest) {
  return std::string(kPrefix) + to_hex(digest, 64);
}

std::string short_digest(const Digest& digest) {
  return to_hex(digest, 12);
}

}  // namespace imagefs_guard
