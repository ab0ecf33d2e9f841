#pragma once
/// Why the node is in its stage, in sentences: what the status page and `status` print. Says what
/// plan_stage() of decide() has looked at, in its order.

#include <string>
#include <vector>

#include "agent/core/decision.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

/// At least one; at most kReasonsMaximum. A pull's reason names its image.
[[nodiscard]] std::vector<std::string> stage_reasons(const NodeSnapshot& snapshot,
                                                     const Policy& policy,
                                                     const Decision& decision);

constexpr std::size_t kReasonsMaximum = 8;

}  // namespace imagefs_guard
