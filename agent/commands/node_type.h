#pragma once
/// Node types as they come fresh from EKS: volume, the kubelet's thresholds, and what is used from
/// the start. For `check --node-type`; pure. Thresholds and what becomes of blobs are read from the
/// AMIs' sources, the bytes used from the start are assumptions and named so.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/node_snapshot.h"
#include "agent/core/result.h"

namespace imagefs_guard {

/// A volume that isn't there: what `check` judges against instead of a node.
struct VolumeModel {
  std::string name;  // "EKS AL2023 with 20 GiB"
  std::int64_t capacity_bytes = 0;
  std::int64_t available_bytes = 0;
  /// The kubelet's; none: the policy's floor.
  std::vector<EvictionThreshold> thresholds;
  bool discards_unpacked_layers = true;
  std::string assumption;  // what nobody has measured, in words; empty = nothing

  bool operator==(const VolumeModel&) const = default;
};

/// "al2023", "bottlerocket" or "auto", each with ":GIB" behind it for another size than its
/// default. InvalidArgument with a sentence.
[[nodiscard]] Result<VolumeModel> parse_node_type(std::string_view text);

}  // namespace imagefs_guard
