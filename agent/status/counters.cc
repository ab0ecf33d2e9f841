#include "agent/status/counters.h"

#include <algorithm>

namespace imagefs_guard {

namespace {

/// The pod that a drain takes away with this action; null: the action is another step, or none.
const NamedObject* drained_pod(const Action& action) {
  if (const auto* suspend = std::get_if<SuspendJob>(&action)) {
    return &suspend->pod;
  }
  if (const auto* remove = std::get_if<DeletePod>(&action)) {
    return remove->leaving ? nullptr : &remove->pod;  // leaving: counted with its Job
  }
  return nullptr;
}

}  // namespace

void AgentCounters::count_tick(Duration decide_time) {
  ++ticks_;
  decide_times_.observe(decide_time);
}

void AgentCounters::count_hold_begun(Duration bind_to_hold) {
  bind_to_hold_.observe(bind_to_hold);
}

void AgentCounters::count_hold_ended(Duration held) {
  hold_times_.observe(held);
}

void AgentCounters::count_outcome(const Action& action,
                                  const std::vector<DrainReport>& reports,
                                  const std::string& result) {
  if (std::holds_alternative<CancelPull>(action)) {
    ++cancels_[result];
    return;
  }
  if (std::holds_alternative<DeleteJob>(action)) {
    ++drains_[{.owner_kind = "Prefect flow run", .method = "delete-job", .result = result}];
    return;
  }
  const NamedObject* pod = drained_pod(action);
  if (pod == nullptr) {
    return;
  }
  const std::string name = pod->namespace_name + "/" + pod->name;
  const auto report = std::ranges::find(reports, name, &DrainReport::pod);
  const bool known = report != reports.end();
  ++drains_[{.owner_kind = known ? report->owner : "unknown",
             .method = known ? report->method : "unknown",
             .result = result}];
}

}  // namespace imagefs_guard
