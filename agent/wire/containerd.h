#pragma once
/// containerd's own gRPC messages (content, snapshots, leases, images, events, version), as far as
/// the agent uses them: requests from values, replies to values. Pure and bounded; used by
/// agent/runtime. A malformed reply is InvalidArgument, one with too many elements is
/// ResourceExhausted. Lists come in pieces: each decode_*() appends to what is there already.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/digest.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/result.h"

namespace imagefs_guard::wire {

/// Limits of what a node may have; ten times what a large one has.
constexpr std::size_t kImagesLimit = 20'000;
constexpr std::size_t kBlobsLimit = 200'000;
constexpr std::size_t kSnapshotsLimit = 200'000;
constexpr std::size_t kIngestsLimit = 10'000;
constexpr std::size_t kLeasesLimit = 10'000;
constexpr std::size_t kLeaseResourcesLimit = 10'000;

// ---- content -----------------------------------------------------------------------------

/// A request that is nothing but field 1: ref, digest, id, or a filter; empty text = no field.
[[nodiscard]] std::string encode_one_string(std::string_view text);

/// ListStatuses' reply.
[[nodiscard]] Result<void> decode_ingests(std::string_view message, std::vector<Ingest>& ingests);

/// Status' reply.
[[nodiscard]] Result<Ingest> decode_ingest_status(std::string_view message);

/// What a manifest, index or config names by its labels for containerd's garbage collection.
struct ContentLinks {
  Digest digest;
  std::vector<Digest> manifests;  // of an index
  Digest config;                  // of a manifest
  Digest top_chain;               // of a config, once unpacked; in `snapshotter`
  std::string snapshotter;

  bool operator==(const ContentLinks&) const = default;
};

struct BlobList {
  std::vector<LocalBlob> blobs;
  std::vector<ContentLinks> links;  // of the blobs that name anything

  bool operator==(const BlobList&) const = default;
};

/// Content List's reply; digests other than sha256 are left out.
[[nodiscard]] Result<void> decode_blobs(std::string_view message, BlobList& list);

/// Info's reply.
[[nodiscard]] Result<LocalBlob> decode_blob_info(std::string_view message);

struct BlobRange {
  Digest digest;
  std::int64_t offset_bytes = 0;
  std::int64_t length_bytes = 0;  // 0 = to the end
};

[[nodiscard]] std::string encode_read(const BlobRange& range);

/// One piece of Read's reply; the view lives as long as the message.
[[nodiscard]] Result<std::string_view> decode_read_data(std::string_view message);

/// The STAT that opens a Write stream: it locks the ref and writes nothing.
[[nodiscard]] std::string encode_write_stat(std::string_view ref, const Digest& expected);

/// Content.Write that writes and commits a whole small blob in one message.
[[nodiscard]] std::string encode_write_blob(std::string_view ref,
                                            const Digest& expected,
                                            std::string_view data);

/// Offset of the ingest that Write's reply speaks of.
struct WriteStatus {
  std::int64_t offset_bytes = 0;  // what the ingest has
  std::int64_t total_bytes = 0;   // 0 = containerd does not know
};

[[nodiscard]] Result<WriteStatus> decode_write_status(std::string_view message);

// ---- snapshots ---------------------------------------------------------------------------

struct SnapshotKey {
  std::string_view snapshotter;
  std::string_view key;
};

/// Stat, Usage, Remove.
[[nodiscard]] std::string encode_snapshot_key(const SnapshotKey& key);

/// Prepare without a parent.
[[nodiscard]] std::string encode_prepare(const SnapshotKey& key);

/// Snapshots List, all of that snapshotter.
[[nodiscard]] std::string encode_list_snapshots(std::string_view snapshotter);

/// A layer that is being unpacked, with the key to ask for its usage.
struct ExtractKey {
  Digest chain_id;
  std::string key;  // "extract-<time>-<random> sha256:<chain ID>"
  Digest parent;    // chain ID of the layer below; zero = none

  bool operator==(const ExtractKey&) const = default;
};

/// The chain ID in an extract key; nullopt if it is a key of something else.
[[nodiscard]] std::optional<Digest> parse_extract_key(std::string_view key);

/// Committed layers and layers that are being unpacked; of containers' own snapshots only the
/// layer that each stands on.
struct SnapshotList {
  std::vector<LayerSnapshot> layers;  // usage not known
  std::vector<ExtractKey> extracts;
  std::vector<Digest> used_chains;  // may repeat

  bool operator==(const SnapshotList&) const = default;
};

[[nodiscard]] Result<void> decode_snapshots(std::string_view message, SnapshotList& list);

struct SnapshotUsage {
  std::int64_t bytes = 0;
  std::int64_t inodes = 0;

  bool operator==(const SnapshotUsage&) const = default;
};

[[nodiscard]] Result<SnapshotUsage> decode_usage(std::string_view message);

// ---- leases ------------------------------------------------------------------------------

/// Leases List's reply: those that expire, as every pull's does. Sandboxes' leases don't, and
/// must not be touched. Contents and ingests are asked for one by one.
[[nodiscard]] Result<void> decode_leases(std::string_view message, std::vector<PullLease>& leases);

struct LeaseResources {
  std::vector<Digest> content;
  std::vector<std::string> ingest_refs;

  bool operator==(const LeaseResources&) const = default;
};

[[nodiscard]] Result<LeaseResources> decode_lease_resources(std::string_view message);

/// Create of a lease without labels: it protects nothing and does not expire.
[[nodiscard]] inline std::string encode_create_lease(std::string_view id) {
  return encode_one_string(id);
}

/// Delete; synchronous means that garbage collection has run when the reply comes.
[[nodiscard]] std::string encode_delete_lease(std::string_view id, bool synchronous);

// ---- images, version, events -------------------------------------------------------------

[[nodiscard]] Result<void> decode_images(std::string_view message, std::vector<LocalImage>& images);

[[nodiscard]] Result<std::string> decode_version(std::string_view message);

/// Subscribe with one filter, e.g. `topic~="/snapshot/"`.
[[nodiscard]] inline std::string encode_subscribe(std::string_view filter) {
  return encode_one_string(filter);
}

/// One event, with the fields of all the topics that the agent follows.
struct ContainerdEvent {
  std::string containerd_namespace;
  std::string topic;        // "/snapshot/commit"
  std::string key;          // snapshot key, image name, or digest
  std::string name;         // of a committed snapshot
  std::string parent;       // of a prepared one
  std::string snapshotter;  // empty in older versions

  bool operator==(const ContainerdEvent&) const = default;
};

[[nodiscard]] Result<ContainerdEvent> decode_event(std::string_view message);

}  // namespace imagefs_guard::wire
