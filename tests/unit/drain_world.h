#pragma once
/// The cluster around one node, as far as a drain needs it: a Job with its controller, a kubelet
/// that pulls and lets pods go, an API server that may refuse. Drives the real decide() once per
/// second and applies what it orders, so that tests assert on what became of the run.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/decide.h"
#include "tests/unit/builders.h"

namespace imagefs_guard::testing {

template <typename T>
std::vector<T> actions_of(const Decision& decision) {
  std::vector<T> found;
  for (const Action& action : decision.actions) {
    if (const T* one = std::get_if<T>(&action)) {
      found.push_back(*one);
    }
  }
  return found;
}

/// The latest note of this reason, or empty.
inline std::string told(const std::vector<EmitEvent>& events, const std::string& reason) {
  std::string note;
  for (const EmitEvent& event : events) {
    note = event.event_reason == reason ? event.note : note;
  }
  return note;
}

/// The next `times` actions whose key begins with `prefix` fail; `applied`: done all the same.
struct Failure {
  std::string prefix;
  ErrorKind kind = ErrorKind::Unavailable;
  int times = 0;
  bool applied = false;
};

class DrainWorld {
 public:
  DrainWorld() : node(gib(2000), gib(950), gib(200)) {
    node.snapshot_.kubelet->eviction_hard[0].value = {.quantity = 0, .fraction_bits = 0x3dcccccd};
    node.image("etl", 1, {layer(1, gib(200), gib(450)), layer(2, gib(190), gib(450))});
    job = Job{.namespace_name = "default",
              .name = "flow",
              .uid = "job-uid",
              .resource_version = "1",
              .backoff_limit = 0,
              .active = 1};
    pod_comes_back("first");
  }

  [[nodiscard]] Pod& pod() { return node.snapshot_.pods->front(); }

  void pod_comes_back(const std::string& name) {
    node.pod({.name = name, .image = "etl"});
    Pod& pod = node.snapshot_.pods->back();
    pod.controller = OwnerReference{"batch/v1", "Job", "flow", "job-uid"};
    pod.observed_at = node.snapshot_.taken_at;
    pod.created_at = node.snapshot_.wall_time;
    if (job.has_value()) {
      job->active = 1;
    }
  }

  void restart_agent() {
    memory = {};
    node.snapshot_.holds.clear();
    node.snapshot_.jobs.clear();
    node.snapshot_.pod_checks.clear();
    node.snapshot_.outcomes.clear();
  }

  void run(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      tick();
    }
  }

  void run_until_suspended() {
    for (int i = 0; i < 30 && suspends == 0; ++i) {
      tick();
    }
  }

  void fetch_job() {
    node.snapshot_.jobs = {{.namespace_name = "default",
                            .name = "flow",
                            .job = job,
                            .observed_at = node.snapshot_.taken_at}};
  }

  TestNode node;
  Policy policy = [] {
    Policy drains = default_policy();
    drains.drain_enabled = true;
    return drains;
  }();
  Memory memory;
  Decision decision;
  std::optional<Job> job;
  Failure fail;
  HoldState hold_state = HoldState::Held;  // what comes of every hold
  bool taint_works = true;
  bool job_controller_works = true;
  bool kubelet_works = true;
  bool pods_leave = true;
  int suspends = 0;
  int resumes = 0;
  int releases = 0;
  int executions = 0;        // pods that ran elsewhere
  int failures_counted = 0;  // by the Job controller: with backoffLimit 0 the run is lost
  std::string log;           // kinds of the drain's actions, in order
  std::vector<EmitEvent> events;

 private:
  void tick() {
    NodeSnapshot& snapshot = node.snapshot_;
    snapshot.taken_at += std::chrono::seconds(1);
    snapshot.wall_time += std::chrono::seconds(1);
    snapshot.runtime_observed_at = snapshot.taken_at;
    if (kubelet_works) {
      run_kubelet();
    }
    if (job_controller_works) {
      run_job_controller();
    }
    decision = decide(snapshot, memory, policy);
    memory = decision.memory;
    snapshot.outcomes.clear();
    snapshot.holds.clear();
    for (const Action& action : decision.actions) {
      apply(action);
    }
  }

  void run_kubelet() {
    NodeSnapshot& snapshot = node.snapshot_;
    const bool pulls = !snapshot.runtime->leases.empty();
    std::erase_if(*snapshot.pods,
                  [&](const Pod& pod) { return pod.deleting && !pulls && pods_leave; });
    const bool wanted = std::ranges::any_of(*snapshot.pods, [](const Pod& pod) {
      return !pod.deleting && pod.containers[0].image == "etl";
    });
    if (wanted && !pulls) {
      node.lease("pull-" + std::to_string(++leases_), 1);
    }
  }

  void run_job_controller() {
    if (!job.has_value()) {
      return;
    }
    for (Pod& pod : *node.snapshot_.pods) {
      if (!pod.controller.has_value() || pod.controller->uid != job->uid) {
        continue;
      }
      if (job->suspend && !pod.deleting) {
        pod.deleting = true;  // its finalizer is gone: not counted
        counted_ = pod.uid;
        job->active = 0;
      } else if (pod.deleting && counted_ != pod.uid) {
        counted_ = pod.uid;
        failures_counted += pod.disruption_target && !job->failure_rules.empty() ? 0 : 1;
      }
    }
  }

  /// Whether the server does it; the outcome of a refused one is in the next snapshot.
  bool server_does(const std::string& key) {
    if (fail.times == 0 || !key.starts_with(fail.prefix)) {
      return true;
    }
    --fail.times;
    node.snapshot_.outcomes.push_back({.key = key, .error = Error{fail.kind, "injected"}});
    // As the runner does after any failure: what it knows of the Job is old from now on.
    for (JobState& state : node.snapshot_.jobs) {
      state.doubtful = true;
    }
    return fail.applied;
  }

  void apply(const Action& action) {
    const std::string key = action_key(action);
    if (const auto* event = std::get_if<EmitEvent>(&action)) {
      events.push_back(*event);
    } else if (const auto* hold = std::get_if<HoldPull>(&action)) {
      node.snapshot_.holds.push_back(
          {.manifest_digest = hold->manifest_digest, .state = hold_state});
    } else if (std::holds_alternative<ReleasePull>(action)) {
      ++releases;
    } else if (const auto* taint = std::get_if<SetTaint>(&action)) {
      apply_taint(*taint);
    } else if (const auto* cancel = std::get_if<CancelPull>(&action)) {
      std::erase_if(node.snapshot_.runtime->leases, [&](const PullLease& lease) {
        return std::ranges::find(cancel->lease_ids, lease.id) != cancel->lease_ids.end();
      });
    } else if (is_drain(key)) {
      if (!key.starts_with("fetch_job") || log.empty()) {
        log += key.starts_with("confirm") ? "" : key.substr(0, key.find(':')) + " ";
      }
      if (server_does(key)) {
        apply_drain(action);
      }
    }
  }

  static bool is_drain(const std::string& key) {
    return std::ranges::any_of(std::vector<std::string>{"fetch_job:",
                                                        "suspend:",
                                                        "resume:",
                                                        "record:",
                                                        "mark:",
                                                        "delete_pod:",
                                                        "confirm:",
                                                        "delete_job:"},
                               [&](const std::string& prefix) { return key.starts_with(prefix); });
  }

  void apply_taint(const SetTaint& taint) {
    if (!taint_works || !node.snapshot_.node.has_value()) {
      return;
    }
    node.snapshot_.node->taints.clear();
    if (taint.effect != TaintEffect::None) {
      const bool hard = taint.effect == TaintEffect::NoSchedule;
      node.snapshot_.node->taints = {{.key = taint.key,
                                      .value = taint.value,
                                      .effect = hard ? "NoSchedule" : "PreferNoSchedule"}};
    }
  }

  void apply_drain(const Action& action) {
    if (std::holds_alternative<FetchJob>(action)) {
      fetch_job();
    } else if (const auto* suspend = std::get_if<SuspendJob>(&action)) {
      apply_suspend(*suspend);
    } else if (const auto* resume = std::get_if<ResumeJob>(&action)) {
      apply_resume(*resume);
    } else if (const auto* record = std::get_if<RecordDrain>(&action)) {
      if (record->job.has_value()) {
        job->drained.drains = record->drains;
        fetch_job();
      } else {
        node.snapshot_.node->drained.drains = record->drains;
      }
    } else if (const auto* mark = std::get_if<MarkDisruption>(&action)) {
      for (Pod& pod : *node.snapshot_.pods) {
        pod.disruption_target |= pod.uid == mark->pod.uid;
      }
    } else if (const auto* remove = std::get_if<DeletePod>(&action)) {
      for (Pod& pod : *node.snapshot_.pods) {
        pod.deleting |= pod.uid == remove->pod.uid;
      }
    } else if (const auto* confirm = std::get_if<ConfirmPodGone>(&action)) {
      apply_confirm(*confirm);
    }
  }

  void apply_suspend(const SuspendJob& action) {
    if (!job.has_value() || job->uid != action.job.uid || job->suspend ||
        job->resource_version != action.resource_version) {
      return;
    }
    ++suspends;
    job->suspend = true;
    job->hold = action.hold;
    job->hold_text = "hold " + action.hold.token;
    job->drained.drains = action.drains;
    job->resource_version += "1";
    if (!node.snapshot_.jobs.front().doubtful) {
      fetch_job();
    }
  }

  void apply_resume(const ResumeJob& action) {
    if (!job.has_value() || job->hold_text != action.hold_text || !job->suspend) {
      return;
    }
    const bool alive = std::ranges::any_of(
        *node.snapshot_.pods, [&](const Pod& pod) { return pod.uid == action.pod.uid; });
    ++resumes;
    executions += alive ? 2 : 1;
    job->suspend = false;
    job->hold.reset();
    job->hold_text.clear();
    fetch_job();
  }

  void apply_confirm(const ConfirmPodGone& action) {
    const bool alive = std::ranges::any_of(
        *node.snapshot_.pods, [&](const Pod& pod) { return pod.uid == action.pod.uid; });
    node.snapshot_.pod_checks = {{.namespace_name = action.pod.namespace_name,
                                  .name = action.pod.name,
                                  .uid = action.pod.uid,
                                  .gone = !alive,
                                  .observed_at = node.snapshot_.taken_at}};
  }

  int leases_ = 0;
  std::string counted_;
};

}  // namespace imagefs_guard::testing
