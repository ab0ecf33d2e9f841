#pragma once
/// What the first bytes of a compressed layer say about its files: the headers of the tar, as far
/// as they can be seen. A header tells its file's size, so a short beginning may speak for hundreds
/// of megabytes. Used by registry/layer_sizes; pure, bounded, fuzzed.

#include <cstdint>
#include <string_view>

#include "agent/core/result.h"

namespace imagefs_guard {

struct TarSample {
  std::int64_t tar_bytes = 0;   // of the tar that the headers seen speak for
  std::int64_t disk_bytes = 0;  // what those entries take, in blocks of 4 KiB
  std::int64_t inodes = 0;
  /// Of a gzip blob: where its first member ends, if that is within the head; else 0. What follows
  /// are more members, and the trailer at the blob's end is only the last one's.
  std::int64_t first_member_bytes = 0;

  bool operator==(const TarSample&) const = default;
};

/// `head` is the beginning of a gzip blob, cut anywhere. InvalidArgument if it is no gzip or no
/// tar. A sample of nothing (all zero) is possible.
[[nodiscard]] Result<TarSample> sample_gzip_tar(std::string_view head);

/// The same for the beginning of a zstd blob. A block of 128 KiB must be whole to be seen.
[[nodiscard]] Result<TarSample> sample_zstd_tar(std::string_view head);

/// The same for the beginning of a plain tar.
[[nodiscard]] Result<TarSample> sample_tar(std::string_view head);

}  // namespace imagefs_guard
