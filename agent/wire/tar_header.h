#pragma once
/// One header block of a tar (ustar, GNU): the few fields that say how large an entry is. Used by
/// the other readers of this folder that see tars; pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace imagefs_guard {

constexpr std::size_t kTarBlockBytes = 512;

struct TarHeader {
  std::string_view name;  // at most 100 bytes: no prefix, no extended header
  std::int64_t bytes = 0;
  char type = '0';

  bool operator==(const TarHeader&) const = default;
};

/// `block` has kTarBlockBytes. nullopt: a wrong checksum or an absurd size.
[[nodiscard]] std::optional<TarHeader> parse_tar_header(std::string_view block);

/// A block of zeros: the end of the archive.
[[nodiscard]] bool is_tar_end(std::string_view block);

/// `bytes` up to the next multiple of `unit`; both are positive and far from overflow.
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace imagefs_guard
