#pragma once
/// What the coordinator reads of the cluster, page by page, and how it takes the agents' marks off
/// a node. Pure; called by commands/coordinator and actions/clean_node.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/coordinator.h"
#include "agent/core/result.h"
#include "agent/wire/kube_json.h"

namespace imagefs_guard {

/// A page of Nodes, whole or metadata alone; appended to `nodes`.
[[nodiscard]] Result<ListMetadata> parse_marked_nodes(std::string_view json,
                                                      std::vector<MarkedNode>& nodes);

/// A page of the agents' pods; the nodes of those that have not ended are appended.
[[nodiscard]] Result<ListMetadata> parse_agent_nodes(std::string_view json,
                                                     std::vector<std::string>& nodes);

/// A page of Leases; those named imagefs-guard.io-<node> are appended.
[[nodiscard]] Result<ListMetadata> parse_agent_leases(std::string_view json,
                                                      std::vector<AgentLease>& leases);

/// What is to be written to take our marks off; absent: it carries none.
struct NodeCleaning {
  std::optional<std::string> node_patch;    // JSON patch: taint, labels, annotations
  std::optional<std::string> status_patch;  // strategic merge: our condition
};

/// From a fresh GET. Every operation has its test: what somebody writes in between is a 422.
/// FailedPrecondition: another node has this name now.
[[nodiscard]] Result<NodeCleaning> clean_node_patches(std::string_view node_json,
                                                      const CleanNode& action,
                                                      const std::string& taint_key);

/// Name of the Lease of a node's agent.
[[nodiscard]] std::string agent_lease_name(const std::string& node);

}  // namespace imagefs_guard
