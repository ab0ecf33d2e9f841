#include "agent/core/stage.h"

#include <algorithm>

namespace imagefs_guard {

const char* to_string(Stage stage) {
  switch (stage) {
    case Stage::Clear:
      return "clear";
    case Stage::Warn:
      return "warn";
    case Stage::Guard:
      return "guard";
    case Stage::StandDown:
      return "standdown";
  }
  return "unknown";
}

StageState next_stage(const StageState& state, const StageInput& input, const Policy& policy) {
  StageState next = state;
  if (input.disk_pressure) {
    next.stage = Stage::StandDown;
    next.calm_since.reset();
    return next;
  }
  if (input.near_floor || input.something_stuck) {
    next.stage = Stage::Guard;
    next.calm_since.reset();
    return next;
  }
  const Stage lowest = input.something_queued ? Stage::Warn : Stage::Clear;
  // Once the kubelet's own pressure has ended the node is on guard until it has been calm.
  const Stage current = state.stage == Stage::StandDown ? Stage::Guard : state.stage;
  if (current <= lowest) {
    next.stage = lowest;
    next.calm_since.reset();
    return next;
  }
  next.stage = current;
  if (!input.has_room && current == Stage::Guard) {
    next.calm_since.reset();
    return next;
  }
  if (!next.calm_since.has_value()) {
    next.calm_since = input.taken_at;
  }
  if (input.taken_at - *next.calm_since >= policy.clear_after) {
    next.stage = lowest;
    next.calm_since.reset();
  }
  return next;
}

}  // namespace imagefs_guard
