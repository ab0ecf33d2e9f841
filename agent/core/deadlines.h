#pragma once
/// How long the owners of waiting pods have patience, against how long their pulls will take: says
/// so in an Event before it is too late, so that no hold outlasts a deadline in silence.

#include "agent/core/decision.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

/// Appends an Event DeadlineAtRisk for each pod whose pull will end after its owner gives up.
/// Needs `decision.pulls`.
void tell_deadlines(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision);

/// How long the pod has existed: since the agent saw it, or by its creation time, whichever is
/// longer. A restarted agent must not take an old pod for a new one.
[[nodiscard]] Duration pod_age(const NodeSnapshot& snapshot, const Pod& pod);

/// What the rest of a pull takes, downloaded and unpacked one after the other at these rates.
[[nodiscard]] Duration pull_duration(const Demand& demand, const PullRates& rates);

}  // namespace imagefs_guard
