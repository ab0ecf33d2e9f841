#include "agent/core/coordinator.h"

#include <algorithm>
#include <utility>

#include "agent/core/drain.h"

namespace imagefs_guard {

namespace {

/// What was read once that a pod is there is asked again after this.
constexpr Duration kResumeConfirmRepeat = std::chrono::seconds(20);
constexpr Duration kResumeRepeat = std::chrono::seconds(20);
constexpr Duration kTellRepeat = std::chrono::hours(1);
constexpr Duration kFailureBackoffFirst = std::chrono::seconds(5);
constexpr int kFailureBackoffDoublings = 6;  // 320 s
/// Per round, so that one bad hour of a large cluster is worked off in turns.
constexpr std::size_t kActionsMaximum = 50;
constexpr std::size_t kMemoryMaximum = 20'000;

/// One run of the coordinator's planner.
class Coordination {
 public:
  Coordination(const ClusterSnapshot& snapshot, CoordinatorDecision& decision)
      : snapshot_(snapshot), decision_(decision) {}

  void run() {
    note_outcomes();
    forget();
    if (snapshot_.held_jobs.has_value()) {
      for (const Job& job : *snapshot_.held_jobs) {
        look_at_job(job);
      }
    }
    // One part alone could be an outage of that part: a node is cleaned on both, or not at all.
    if (snapshot_.nodes.has_value() && snapshot_.leases.has_value() &&
        snapshot_.agent_nodes.has_value()) {
      look_at_nodes();
    }
  }

 private:
  void note_outcomes() {
    for (const ActionOutcome& outcome : snapshot_.outcomes) {
      if (!outcome.error.has_value()) {
        decision_.memory.backoff.erase(outcome.key);
        continue;
      }
      decision_.memory.ordered.erase(outcome.key);
      Backoff& backoff = decision_.memory.backoff[outcome.key];
      backoff.failures = std::min(backoff.failures + 1, kFailureBackoffDoublings);
      backoff.not_before =
          snapshot_.taken_at + kFailureBackoffFirst * (std::int64_t{1} << (backoff.failures - 1));
    }
  }

  template <typename Map, typename Old>
  static void drop_old(Map& map, Old is_old) {
    std::erase_if(map, [&is_old](const auto& entry) { return is_old(entry.second); });
    while (map.size() > kMemoryMaximum) {
      map.erase(map.begin());
    }
  }

  void forget() {
    const MonotonicTime now = snapshot_.taken_at;
    const auto since = [now](MonotonicTime at, Duration age) { return now - at >= age; };
    drop_old(decision_.memory.ordered, [&](MonotonicTime at) { return since(at, kTellRepeat); });
    drop_old(decision_.memory.told, [&](MonotonicTime at) { return since(at, kTellRepeat); });
    drop_old(decision_.memory.backoff,
             [&](const Backoff& backoff) { return since(backoff.not_before, kTellRepeat); });
  }

  void look_at_job(const Job& job) {
    const std::string why = why_leave_hold(job);
    if (!why.empty()) {
      leave_alone(job, why);
      return;
    }
    const NamedObject pod{
        .namespace_name = job.namespace_name, .name = job.hold->pod, .uid = job.hold->pod_uid};
    const auto check = std::ranges::find(snapshot_.pod_checks, pod.uid, &PodCheck::uid);
    if (check == snapshot_.pod_checks.end() || !check->gone) {
      order(ConfirmPodGone{.pod = pod, .reason = "its Job is suspended until it is gone"},
            kResumeConfirmRepeat);
      const bool is_there = check != snapshot_.pod_checks.end();
      if (is_there && snapshot_.wall_time > job.hold->resume_by) {
        tell(job,
             "JobHoldExpired",
             "its pod " + pod.name + " is still there; it stays suspended until the pod is gone");
      }
      return;
    }
    const NamedObject name{.namespace_name = job.namespace_name, .name = job.name, .uid = job.uid};
    const std::string reason = "its pod " + pod.name + " is gone from node " + job.hold->node +
                               ", its agent has not resumed it";
    if (order(ResumeJob{.job = name, .pod = pod, .hold_text = job.hold_text, .reason = reason},
              kResumeRepeat)) {
      tell(job, "JobResumed", "resumed: " + reason);
    }
  }

  void leave_alone(const Job& job, const std::string& why) {
    decision_.left_alone.push_back("Job " + job.namespace_name + "/" + job.name + ": " + why);
    tell(job, "JobHoldLeftAlone", "left alone: " + why);
  }

  void tell(const Job& job, const char* reason, const std::string& note) {
    const std::string key = job.uid + ":" + reason + ":" + note;
    if (!decision_.memory.told.emplace(key, snapshot_.taken_at).second) {
      return;
    }
    decision_.actions.emplace_back(EmitEvent{.regarding = {.api_version = "batch/v1",
                                                           .kind = "Job",
                                                           .namespace_name = job.namespace_name,
                                                           .name = job.name,
                                                           .uid = job.uid},
                                             .warning = std::string(reason) != "JobResumed",
                                             .event_reason = reason,
                                             .event_action = "Coordinate",
                                             .note = note});
  }

  void look_at_nodes() {
    std::map<std::string, NodeMemory> next;
    for (const MarkedNode& node : *snapshot_.nodes) {
      const auto known = decision_.memory.nodes.find(node.name);
      NodeMemory memory =
          known != decision_.memory.nodes.end()
              ? known->second
              : NodeMemory{.renew_time = {}, .renewed_at = snapshot_.taken_at, .podless_since = {}};
      observe(node.name, memory);
      const std::string why = why_agent_is_gone(memory);
      if (!why.empty()) {
        order(CleanNode{.node = node.name, .uid = node.uid, .reason = why}, kResumeRepeat);
      }
      next[node.name] = std::move(memory);
    }
    decision_.memory.nodes = std::move(next);
  }

  void observe(const std::string& node, NodeMemory& memory) const {
    const auto lease = std::ranges::lower_bound(*snapshot_.leases, node, {}, &AgentLease::node);
    const bool has_lease = lease != snapshot_.leases->end() && lease->node == node;
    if (has_lease && lease->renew_time != memory.renew_time) {
      memory.renew_time = lease->renew_time;
      memory.renewed_at = snapshot_.taken_at;
    }
    if (std::ranges::binary_search(*snapshot_.agent_nodes, node)) {
      memory.podless_since.reset();
    } else if (!memory.podless_since.has_value()) {
      memory.podless_since = snapshot_.taken_at;
    }
  }

  [[nodiscard]] std::string why_agent_is_gone(const NodeMemory& memory) const {
    if (memory.podless_since.has_value() &&
        snapshot_.taken_at - *memory.podless_since >= kPodlessGoneAfter) {
      return "the node has no agent's pod any more";
    }
    if (snapshot_.taken_at - memory.renewed_at >= kAgentGoneAfter) {
      return "its agent has not renewed its Lease for 5 min";
    }
    return {};
  }

  bool order(CoordinatorAction action, Duration repeat) {
    const std::string key = action_key(action);
    if (std::ranges::binary_search(snapshot_.running, key) ||
        decision_.actions.size() >= kActionsMaximum) {
      return false;
    }
    const auto backoff = decision_.memory.backoff.find(key);
    if (backoff != decision_.memory.backoff.end() &&
        backoff->second.not_before > snapshot_.taken_at) {
      return false;
    }
    const auto last = decision_.memory.ordered.find(key);
    if (last != decision_.memory.ordered.end() && snapshot_.taken_at - last->second < repeat) {
      return false;
    }
    decision_.memory.ordered[key] = snapshot_.taken_at;
    decision_.actions.push_back(std::move(action));
    return true;
  }

  const ClusterSnapshot& snapshot_;
  CoordinatorDecision& decision_;
};

Action as_action(const CoordinatorAction& action) {
  if (const auto* resume = std::get_if<ResumeJob>(&action)) {
    return *resume;
  }
  if (const auto* confirm = std::get_if<ConfirmPodGone>(&action)) {
    return *confirm;
  }
  return std::get<EmitEvent>(action);
}

}  // namespace

std::string action_key(const CoordinatorAction& action) {
  if (const auto* clean = std::get_if<CleanNode>(&action)) {
    return "clean:" + clean->node;
  }
  return action_key(as_action(action));
}

std::string describe(const CoordinatorAction& action) {
  if (const auto* clean = std::get_if<CleanNode>(&action)) {
    return "take taint, labels and condition off node " + clean->node + ": " + clean->reason;
  }
  return describe(as_action(action));
}

CoordinatorDecision decide_coordinator(const ClusterSnapshot& snapshot,
                                       const CoordinatorMemory& memory) {
  CoordinatorDecision decision;
  decision.memory = memory;
  Coordination(snapshot, decision).run();
  return decision;
}

}  // namespace imagefs_guard
