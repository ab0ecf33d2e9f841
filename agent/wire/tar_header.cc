#include "agent/wire/tar_header.h"

#include <algorithm>

namespace imagefs_guard {

namespace {

/// No file of a layer is larger than this; above it a header is nonsense.
constexpr std::int64_t kFileLimit = std::int64_t{1} << 44;

/// Octal digits, or base 256 with the top bit set; -1 if it is neither.
std::int64_t read_number(std::string_view field) {
  std::int64_t value = 0;
  if (!field.empty() && (static_cast<unsigned char>(field[0]) & 0x80U) != 0) {
    for (std::size_t i = 1; i < field.size(); ++i) {
      if (value > kFileLimit) {
        return -1;
      }
      value = value * 256 + static_cast<unsigned char>(field[i]);
    }
    return value;
  }
  for (const char c : field) {
    if (c == ' ' || c == '\0') {
      if (value == 0) {
        continue;
      }
      break;
    }
    if (c < '0' || c > '7' || value > kFileLimit) {
      return -1;
    }
    value = value * 8 + (c - '0');
  }
  return value;
}

bool has_valid_checksum(std::string_view header) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < kTarBlockBytes; ++i) {
    const bool in_field = i >= 148 && i < 156;
    sum += in_field ? ' ' : static_cast<unsigned char>(header[i]);
  }
  return read_number(header.substr(148, 8)) == sum;
}

}  // namespace

std::optional<TarHeader> parse_tar_header(std::string_view block) {
  if (block.size() < kTarBlockBytes || !has_valid_checksum(block)) {
    return std::nullopt;
  }
  const std::int64_t bytes = read_number(block.substr(124, 12));
  if (bytes < 0 || bytes > kFileLimit) {
    return std::nullopt;
  }
  const std::string_view name = block.substr(0, 100);
  return TarHeader{.name = name.substr(0, name.find('\0')), .bytes = bytes, .type = block[156]};
}

bool is_tar_end(std::string_view block) {
  return std::ranges::all_of(block, [](char c) { return c == '\0'; });
}

}  // namespace imagefs_guard
