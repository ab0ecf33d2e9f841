#pragma once
/// Moves held pods that can live elsewhere, in the way their owner survives, one step per tick:
/// each step is ordered once the snapshot shows the one before (taint acknowledged, Job suspended
/// with its record, pull cancelled, pod gone, Job resumed). So it needs no memory: an agent that
/// restarts at any point goes on where the objects say that it was. Called by decide().

#include <string>

#include "agent/core/decision.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"
#include "agent/core/pulls.h"

namespace imagefs_guard {

/// Appends the steps that are due, with their Events. Needs `decision.node` and `decision.pulls`.
/// Never touches a pod that has started or is protected; nothing new while the node's own
/// NoSchedule taint is not acknowledged, under the kubelet's pressure, or in observe mode.
void plan_drains(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision);

/// Every pod that waits for this pull belongs to a run that its worker has given up already: its
/// container must not start any more, whether the pull fits or not.
[[nodiscard]] bool must_not_start(const NodeSnapshot& snapshot,
                                  const Policy& policy,
                                  const Pull& pull);

/// The token of a hold record: a checksum of all its other fields, so that a record edited by hand
/// is told from one of ours. In the form of a UUID.
[[nodiscard]] std::string hold_token(const HoldRecord& record);

/// Why nobody may end the hold on this Job, in words; empty: it is as an agent has written it.
[[nodiscard]] std::string why_leave_hold(const Job& job);

/// The capacities count as one: another node of this kind would not help.
[[nodiscard]] bool same_capacity(std::int64_t left_bytes, std::int64_t right_bytes);

/// Drain records that a Job or Node keeps at most.
constexpr std::size_t kDrainRecordsMaximum = 8;

}  // namespace imagefs_guard
