#pragma once
/// The whole policy of the agent as one total function: same arguments, same answer, no effects.
/// Called once per tick by the agent, by the simulator and by replay.

#include "agent/core/decision.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

[[nodiscard]] Decision decide(const NodeSnapshot& snapshot,
                              const Memory& memory,
                              const Policy& policy);

}  // namespace imagefs_guard
