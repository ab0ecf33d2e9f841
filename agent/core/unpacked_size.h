#pragma once
/// How many bytes a layer will take on the disk once unpacked: one estimate with a band, from the
/// best of the facts that are known about it. Used by the ledger for every layer missing here.
/// Order of trust: learned here, learned elsewhere, table of contents, plain tar, gzip trailer,
/// zstd header, annotation, first zstd frame, prior. An implausible fact is passed over, never
/// trusted half.

#include <cstdint>

#include "agent/core/node_snapshot.h"

namespace imagefs_guard {

struct UnpackedSize {
  std::int64_t low_bytes = 0;
  std::int64_t mid_bytes = 0;
  std::int64_t high_bytes = 0;  // what a verdict counts with
  std::int64_t inodes = 0;
  /// XFS: what it keeps free for files until they are written back, on top of all that; 0 at rest.
  std::int64_t reserved_bytes = 0;
  SizeSource source = SizeSource::Prior;

  bool operator==(const UnpackedSize&) const = default;
};

/// `kind` adds what the filesystem takes beside the files' bytes: the rest of each last block,
/// directories, on XFS the inodes, and what containerd keeps of a layer beside them.
/// FilesystemKind::Other adds nothing to a tar.
[[nodiscard]] UnpackedSize estimate_unpacked(const Layer& layer, FilesystemKind kind);

/// "learned here", "table of contents", …: for tables and sentences.
[[nodiscard]] const char* to_string(SizeSource source);

}  // namespace imagefs_guard
