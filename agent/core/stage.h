#pragma once
/// The stage of the node, with hysteresis: up at once, down only after the node has been calm for
/// the policy's time. Called by decide() once per tick.

#include "agent/core/memory.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

/// What speaks for and against a stage in this tick.
struct StageInput {
  MonotonicTime taken_at{};
  bool disk_pressure = false;     // the kubelet's condition on the node
  bool near_floor = false;        // available < floor + guard margin
  bool has_room = false;          // available >= floor + clear margin
  bool something_stuck = false;   // a pull waits that this node can't take now
  bool something_queued = false;  // a pull waits for others to settle
};

[[nodiscard]] StageState next_stage(const StageState& state,
                                    const StageInput& input,
                                    const Policy& policy);

}  // namespace imagefs_guard
