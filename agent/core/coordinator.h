#pragma once
/// What the coordinator decides: resume Jobs whose agent died between suspend and resume, take the
/// marks off nodes whose agent is gone. One pure function on a snapshot, like decide(). It only
/// ends what agents have begun and leaves alone what somebody else has touched.

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/core/action.h"
#include "agent/core/job.h"
#include "agent/core/memory.h"
#include "agent/core/time.h"

namespace imagefs_guard {

/// A node that carries a mark of ours: a label under imagefs-guard.io/.
struct MarkedNode {
  std::string name;
  std::string uid;

  bool operator==(const MarkedNode&) const = default;
};

/// "This node has an agent": imagefs-guard.io-<node>, and when it was renewed, as text. Clocks of
/// machines differ: only whether it changes counts.
struct AgentLease {
  std::string node;
  std::string renew_time;

  bool operator==(const AgentLease&) const = default;
};

struct ClusterSnapshot {
  MonotonicTime taken_at{};
  WallTime wall_time{};
  std::optional<std::vector<Job>> held_jobs;  // label imagefs-guard.io/hold=true
  std::vector<PodCheck> pod_checks;
  std::optional<std::vector<MarkedNode>> nodes;
  std::optional<std::vector<AgentLease>> leases;
  std::optional<std::vector<std::string>> agent_nodes;  // nodes that have an agent's pod
  std::vector<std::string> running;                     // keys of actions under way, sorted
  std::vector<ActionOutcome> outcomes;

  bool operator==(const ClusterSnapshot&) const = default;
};

/// Take taint, labels, annotations and condition of ours off a node; every other one stays.
struct CleanNode {
  std::string node;
  std::string uid;
  std::string reason;

  bool operator==(const CleanNode&) const = default;
};

using CoordinatorAction = std::variant<ResumeJob, ConfirmPodGone, CleanNode, EmitEvent>;

[[nodiscard]] std::string action_key(const CoordinatorAction& action);
[[nodiscard]] std::string describe(const CoordinatorAction& action);

/// How long a node has looked as if its agent were gone.
struct NodeMemory {
  std::string renew_time;
  MonotonicTime renewed_at{};  // when the Lease was last seen to change
  std::optional<MonotonicTime> podless_since;

  bool operator==(const NodeMemory&) const = default;
};

struct CoordinatorMemory {
  std::map<std::string, NodeMemory> nodes;
  std::map<std::string, Backoff> backoff;        // by action_key()
  std::map<std::string, MonotonicTime> ordered;  // by action_key(), to order none twice
  std::map<std::string, MonotonicTime> told;     // "job uid:why"

  bool operator==(const CoordinatorMemory&) const = default;
};

struct CoordinatorDecision {
  std::vector<CoordinatorAction> actions;
  std::vector<std::string> left_alone;  // in words, for the log
  CoordinatorMemory memory;

  bool operator==(const CoordinatorDecision&) const = default;
};

/// An agent renews its Lease every minute: five missed ones, and it is gone.
constexpr Duration kAgentGoneAfter = std::chrono::minutes(5);
/// A roll-out leaves a node without an agent's pod for a moment.
constexpr Duration kPodlessGoneAfter = std::chrono::minutes(2);

[[nodiscard]] CoordinatorDecision decide_coordinator(const ClusterSnapshot& snapshot,
                                                     const CoordinatorMemory& memory);

}  // namespace imagefs_guard
