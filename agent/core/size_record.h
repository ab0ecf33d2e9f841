#pragma once
/// A layer's unpacked size that some node has measured, and how such records are merged: each
/// node's into those of all. Newest first, bounded. Used by registry/learned_sizes for this node
/// and by the coordinator for the cluster.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/core/digest.h"
#include "agent/core/node_snapshot.h"

namespace imagefs_guard {

/// Keyed by diff ID: the layer's content, whichever layers are below it and however it was
/// compressed; and by the filesystem, since each has its own rounding.
struct SizeRecord {
  Digest diff_id;
  std::int64_t bytes = 0;  // the snapshotter's Usage
  std::int64_t inodes = 0;
  FilesystemKind measured_on = FilesystemKind::Other;

  bool operator==(const SizeRecord&) const = default;
};

/// Smaller layers are not worth a place in the cluster's memory. Compressed bytes.
constexpr std::int64_t kSharedLayerBytes = std::int64_t{16} << 20;
/// What a node tells: 256 records of some 90 bytes.
constexpr std::size_t kNodeSizesMaximum = 256;
/// What the cluster remembers: 16 shards by the first hex digit of the diff ID, 360 kB in all; an
/// object may have 1 MiB.
constexpr std::size_t kSizeShards = 16;
constexpr std::size_t kShardSizesMaximum = 256;

[[nodiscard]] constexpr std::size_t size_shard_of(const Digest& diff_id) {
  return diff_id.bytes[0] >> 4U;
}

/// Puts what is new in front, drops the oldest beyond `limit`, and says whether anything changed.
/// Where two nodes disagree the larger size stays, so that they don't take turns.
[[nodiscard]] bool merge_size_records(std::vector<SizeRecord>& known,
                                      const std::vector<SizeRecord>& news,
                                      std::size_t limit);

}  // namespace imagefs_guard
