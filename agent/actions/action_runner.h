#pragma once
/// How a decision is carried out: one runner per kind of action, mirror image of probes/.
/// Runners don't decide, retry or log: the outcome goes back to the planner.

#include <functional>
#include <optional>

#include "agent/core/action.h"
#include "agent/core/result.h"

namespace imagefs_guard {

/// `error` absent = done, or already so ("already gone" is success).
using ActionDone = std::function<void(std::optional<Error> error)>;

}  // namespace imagefs_guard
