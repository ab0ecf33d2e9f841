#pragma once
/// What to write to Kubernetes about a decision: taint, labels, annotation, condition, Events.
/// Pure: compares what is there with what should be, and how long ago it was written. Each write
/// goes to every watcher of Nodes in the cluster, so they are few by design.

#include "agent/core/decision.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

/// Appends the writes that are due to `decision.actions` and notes them in `decision.memory`.
/// Needs `decision.node` and `decision.pulls`. Without an observed Node it publishes Events only.
void publish(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision);

/// What an Event says.
struct Tidings {
  bool warning = false;
  std::string event_reason;
  std::string event_action;
  std::string variant;  // the same object is told again when this changes
  std::string note;
};

/// Appends the Event unless the object was told the same lately.
void tell(const NodeSnapshot& snapshot,
          Decision& decision,
          const ObjectReference& object,
          const Tidings& tidings);

/// Tells the pod, and its Job where it has one: whoever looks at either finds the reason.
void tell_pod(const NodeSnapshot& snapshot,
              Decision& decision,
              const Pod& pod,
              const Tidings& tidings);

/// Whether an action of this key may be ordered now: not under way, not backing off.
[[nodiscard]] bool may_order(const NodeSnapshot& snapshot,
                             const Memory& memory,
                             const std::string& key);

}  // namespace imagefs_guard
