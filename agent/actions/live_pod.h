#pragma once
/// What a fresh GET of a pod says about a step of the drain: each write looks at the live object
/// once more, since the snapshot may be seconds old.

#include <optional>
#include <string>

#include "agent/core/action.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"
#include "agent/core/result.h"

namespace imagefs_guard {

/// The pod that is meant; absent: it is gone (404, or another pod has its name). Other errors of
/// the request stay errors.
[[nodiscard]] Result<std::optional<Pod>> live_pod(const Result<std::string>& reply,
                                                  const NamedObject& wanted);

/// Why nothing may be done to it: it has started, or is protected.
[[nodiscard]] std::optional<Error> why_not_touch(const Pod& pod, const Policy& policy);

}  // namespace imagefs_guard
