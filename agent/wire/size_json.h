#pragma once
/// Learned layer sizes as ConfigMaps: imagefs-guard-sizes-<node> of each agent, and
/// imagefs-guard-sizes, into which the coordinator merges them. One record per line:
///   <64 hex digits of the diff ID> <bytes> <inodes> <xfs|ext4|other>
/// A node's map has one key, "sizes"; the merged one a key for each shard, "0" to "f". Pure; called
/// by kube/size_exchange and by the coordinator.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/result.h"
#include "agent/core/size_record.h"
#include "agent/wire/kube_json.h"

namespace imagefs_guard {

constexpr const char* kMergedSizesName = "imagefs-guard-sizes";
/// A label of every map of sizes: "node" or "merged".
constexpr const char* kSizesLabel = "imagefs-guard.io/sizes";

/// Name of a node's map; empty if the node's name is too long for one.
[[nodiscard]] std::string node_sizes_name(const std::string& node);

[[nodiscard]] std::string encode_size_records(const std::vector<SizeRecord>& records);

/// Lines that are none are left out: what is lost is learned again. At most `limit` records.
[[nodiscard]] std::vector<SizeRecord> parse_size_records(std::string_view text, std::size_t limit);

using SizeShards = std::array<std::vector<SizeRecord>, kSizeShards>;

/// A ConfigMap of either kind; of a metadata-only answer only the version.
struct SizeMap {
  std::string name;
  std::string resource_version;
  std::vector<SizeRecord> node;  // key "sizes"
  SizeShards shards;

  bool operator==(const SizeMap&) const = default;
};

[[nodiscard]] Result<SizeMap> parse_size_map(std::string_view json);

struct NamedVersion {
  std::string name;
  std::string resource_version;

  bool operator==(const NamedVersion&) const = default;
};

/// A page of maps, whole or metadata alone; appended to `versions`.
[[nodiscard]] Result<ListMetadata> parse_size_versions(std::string_view json,
                                                       std::vector<NamedVersion>& versions);

struct NodeSizesWrite {
  std::string namespace_name;
  std::string node;
  std::string node_uid;  // owner: the map goes with its Node
  std::vector<SizeRecord> records;
};

/// The same body creates the map and, as a merge patch, replaces what was in it.
[[nodiscard]] std::string node_sizes_body(const NodeSizesWrite& write);

/// As node_sizes_body(), with the shards whose bit is set in `which`.
[[nodiscard]] std::string merged_sizes_body(const std::string& namespace_name,
                                            const SizeShards& shards,
                                            unsigned which);

}  // namespace imagefs_guard
