#pragma once
/// Audit of the node's set-up: thresholds, garbage collection, volume, runtime, protected pods,
/// and bytes that nobody owns. Called by decide() once per tick, looks once a minute: none of it
/// changes faster, and it is the dearest look of all. What it can't see it does not judge: a
/// finding about a part that is absent just now stays as it was.

#include "agent/core/decision.h"
#include "agent/core/finding.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

/// Brings `decision.memory.audit` up to date and orders an Event on the Node for each finding that
/// is new. Needs `decision.node` and `decision.pulls`.
void audit(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision);

}  // namespace imagefs_guard
