#include "agent/core/drain.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "agent/core/deadlines.h"
#include "agent/core/lookup.h"
#include "agent/core/owners.h"
#include "agent/core/publish.h"
#include "agent/core/sha256.h"

namespace imagefs_guard {

namespace {

/// What a write rests on is not older than this.
constexpr Duration kJobAgeMaximum = std::chrono::seconds(10);
/// How often a Job is looked at again whose pod stays in place.
constexpr Duration kJobRefresh = std::chrono::minutes(5);
/// A step whose effect does not show is ordered again after this.
constexpr Duration kStepRepeat = std::chrono::seconds(10);
constexpr Duration kConfirmRepeat = std::chrono::seconds(1);
/// A pod that never started needs no grace; the Job controller gives it 30 s all the same.
constexpr Duration kLeavingPatience = std::chrono::seconds(10);
constexpr Duration kStepMemory = std::chrono::minutes(10);
/// The deletion of a lease is ordered again after this, as in decide().
constexpr Duration kDrainCancelRepeat = std::chrono::seconds(10);

const Pod* find_pod_by_uid(const NodeSnapshot& snapshot, const std::string& uid) {
  const auto found = std::ranges::find(*snapshot.pods, uid, &Pod::uid);
  return found == snapshot.pods->end() ? nullptr : &*found;
}

const JobState* find_job(const NodeSnapshot& snapshot, const Pod& pod) {
  const auto found = std::ranges::find_if(snapshot.jobs, [&pod](const JobState& state) {
    return state.namespace_name == pod.namespace_name && state.name == pod.controller->name;
  });
  return found == snapshot.jobs.end() ? nullptr : &*found;
}

/// The Job that the pod means; one of the same name with another uid is none.
const Job* job_of(const JobState* state, const Pod& pod) {
  return state != nullptr && state->job.has_value() && state->job->uid == pod.controller->uid
             ? &*state->job
             : nullptr;
}

bool is_crashed_legacy(const NodeSnapshot& snapshot,
                       const Policy& policy,
                       const Pod& pod,
                       const Job* job) {
  return has_never_started(pod) && !is_protected(pod, policy) && may_be_legacy_prefect(pod, job) &&
         pod_age(snapshot, pod) >= policy.legacy_prefect_pod_watch;
}

NamedObject named(const Pod& pod) {
  return {.namespace_name = pod.namespace_name, .name = pod.name, .uid = pod.uid};
}

NamedObject named(const Job& job) {
  return {.namespace_name = job.namespace_name, .name = job.name, .uid = job.uid};
}

ObjectReference reference(const Job& job) {
  return {.api_version = "batch/v1",
          .kind = "Job",
          .namespace_name = job.namespace_name,
          .name = job.name,
          .uid = job.uid};
}

WallTime whole_seconds(WallTime time) {
  return std::chrono::time_point_cast<std::chrono::seconds>(time);
}

/// One run of the drain's planner.
class DrainPlanner {
 public:
  DrainPlanner(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision)
      : snapshot_(snapshot), policy_(policy), decision_(decision) {}

  void run() {
    forget_old_steps();
    for (const JobState& state : snapshot_.jobs) {
      if (state.doubtful) {
        fetch(state.namespace_name, state.name, "a write may or may not have been carried out");
      } else if (state.job.has_value() && !state.job->hold_text.empty()) {
        finish_hold(state, *state.job);
      }
    }
    find_begun();
    const std::vector<PullReport> pulls = decision_.pulls;
    for (const PullReport& pull : pulls) {
      note_leaving(pull);
    }
    for (const PullReport& pull : pulls) {
      for (const std::string& key : pull.pods) {
        const Pod* pod = pull.held ? find_pod(snapshot_, key) : nullptr;
        if (pod != nullptr) {
          consider(pull, *pod);
        }
      }
    }
  }

 private:
  // ---- what has begun ------------------------------------------------------------------------

  /// An agent that starts anew finds a pod that is going: its Job may be suspended by the one
  /// before. Once the pod is gone only the coordinator can tell.
  void find_begun() {
    for (const Pod& pod : *snapshot_.pods) {
      if (pod.deleting && has_never_started(pod) && needs_job(pod) &&
          find_job(snapshot_, pod) == nullptr) {
        fetch(pod.namespace_name, pod.controller->name, "a pod of it is going");
      }
    }
  }

  /// A Job that we have suspended: its pod goes, then it is resumed, whatever the node's stage.
  void finish_hold(const JobState& state, const Job& job) {
    if (job.hold.has_value() && job.hold->version == 1 && job.hold->node != snapshot_.node->name) {
      return;  // another node's agent knows more
    }
    std::string why = why_leave_hold(job);
    if (why.empty() && job.hold->node_uid != snapshot_.node->uid) {
      why = "its hold was made on an earlier node of this name; the coordinator resumes it";
    }
    if (!why.empty()) {
      leave_alone(job, why);
      return;
    }
    busy_ = job.hold->pod_uid;
    const Pod* pod = find_pod_by_uid(snapshot_, job.hold->pod_uid);
    if (pod != nullptr) {
      wait_for_pod(state, job, *pod);
    } else {
      resume(state, job);
    }
  }

  void leave_alone(const Job& job, const std::string& why) {
    report(job.namespace_name + "/" + job.name, OwnerKind::Job, DrainMethod::HoldInPlace, why);
    tell(snapshot_,
         decision_,
         reference(job),
         {.warning = true,
          .event_reason = "JobHoldLeftAlone",
          .event_action = "Leave",
          .variant = why,
          .note = "left alone: " + why});
  }

  void wait_for_pod(const JobState& state, const Job& job, const Pod& pod) {
    const std::string name = pod.namespace_name + "/" + pod.name;
    const Duration age = snapshot_.wall_time - job.hold->since;
    if (snapshot_.wall_time > job.hold->resume_by) {
      const std::string note =
          "its pod " + name + " is still there; the Job stays suspended until it is gone";
      tell(snapshot_,
           decision_,
           reference(job),
           {.warning = true,
            .event_reason = "JobHoldExpired",
            .event_action = "Wait",
            .variant = job.hold->token,
            .note = note});
    }
    if (!pod.deleting) {
      report(name, OwnerKind::Job, DrainMethod::ProtocolS, "its Job is suspended, it goes next");
      refresh(state, kJobAgeMaximum, "its pod is not gone yet");
      return;
    }
    report(name, OwnerKind::Job, DrainMethod::ProtocolS, "is going; then its Job is resumed");
    if (age >= kLeavingPatience && has_never_started(pod)) {
      order({.action = DeletePod{.pod = named(pod),
                                 .leaving = true,
                                 .reason = "it never started, so it needs no grace period"},
             .pod_uid = pod.uid,
             .repeat = kStepMemory});
    }
  }

  void resume(const JobState& state, const Job& job) {
    const NamedObject pod{
        .namespace_name = job.namespace_name, .name = job.hold->pod, .uid = job.hold->pod_uid};
    report(job.namespace_name + "/" + job.hold->pod,
           OwnerKind::Job,
           DrainMethod::ProtocolS,
           "is gone as far as is seen; its Job is resumed once that is certain");
    const auto check = std::ranges::find(snapshot_.pod_checks, pod.uid, &PodCheck::uid);
    if (check == snapshot_.pod_checks.end() || !check->gone) {
      order({.action =
                 ConfirmPodGone{.pod = pod, .reason = "its Job must not have two pods of one run"},
             .pod_uid = pod.uid,
             .repeat = kConfirmRepeat});
      return;
    }
    if (refresh(state, kJobAgeMaximum, "it is about to be resumed")) {
      return;
    }
    const bool ordered = order({.action = ResumeJob{.job = named(job),
                                                    .pod = pod,
                                                    .hold_text = job.hold_text,
                                                    .reason = "the pod " + pod.name + " is gone"},
                                .pod_uid = pod.uid,
                                .repeat = kStepRepeat});
    if (ordered) {
      tell(snapshot_,
           decision_,
           reference(job),
           {.warning = false,
            .event_reason = "JobResumed",
            .event_action = "Resume",
            .variant = job.hold->token,
            .note = "resumed: its pod " + pod.name + " has left node " + job.hold->node +
                    " before it started"});
    }
  }

  /// A pod that leaves counts as the drain under way; its pull must not keep it here.
  void note_leaving(const PullReport& pull) {
    if (!pull.held || pull.is_protected) {
      return;
    }
    bool stays = false;
    const Pod* leaving = nullptr;
    for (const std::string& key : pull.pods) {
      const Pod* pod = find_pod(snapshot_, key);
      if (pod == nullptr || !has_never_started(*pod)) {
        continue;
      }
      if (pod->deleting && !is_protected(*pod, policy_)) {
        leaving = pod;
      } else {
        stays = true;
      }
    }
    if (leaving == nullptr) {
      return;
    }
    if (busy_.empty()) {
      busy_ = leaving->uid;
    }
    if (stays) {
      cancel(pull,
             "keeps pod " + leaving->namespace_name + "/" + leaving->name +
                 " here, which is being deleted; the others retry and are held again");
    }
  }

  /// As decide() does it for pulls that nobody wants: each lease once in a while.
  bool cancel(const PullReport& pull, const std::string& reason) {
    CancelPull action{.manifest_digest = pull.manifest_digest,
                      .image = pull.image,
                      .lease_ids = {},
                      .reason = reason};
    const std::string key = action_key(action);
    const bool ordered = std::ranges::any_of(
        decision_.actions, [&key](const Action& other) { return action_key(other) == key; });
    PullMemory& memory = decision_.memory.pulls[pull.manifest_digest];
    if (snapshot_.taken_at - memory.cancelled_at >= kDrainCancelRepeat) {
      memory.cancelled_leases.clear();
    }
    if (!snapshot_.runtime.has_value() || ordered || !may_order(snapshot_, decision_.memory, key)) {
      return ordered;
    }
    for (const PullLease& lease : snapshot_.runtime->leases) {
      const bool names =
          std::ranges::find(lease.content, pull.manifest_digest) != lease.content.end();
      const auto known = std::ranges::find(memory.cancelled_leases, lease.id);
      if (names && known == memory.cancelled_leases.end()) {
        action.lease_ids.push_back(lease.id);
      }
    }
    if (action.lease_ids.empty()) {
      return false;
    }
    memory.cancelled_leases.insert(
        memory.cancelled_leases.end(), action.lease_ids.begin(), action.lease_ids.end());
    memory.cancelled_at = snapshot_.taken_at;
    decision_.actions.emplace_back(std::move(action));
    return true;
  }

  // ---- what may begin ------------------------------------------------------------------------

  void consider(const PullReport& pull, const Pod& pod) {
    if (!has_never_started(pod) || pod.deleting || is_protected(pod, policy_)) {
      return;
    }
    const JobState* state = needs_job(pod) ? find_job(snapshot_, pod) : nullptr;
    if (needs_job(pod) && state == nullptr) {
      fetch(pod.namespace_name, pod.controller->name, "a held pod belongs to it");
      return;
    }
    const Job* job = state == nullptr ? nullptr : job_of(state, pod);
    if (job != nullptr && (state->doubtful || !job->hold_text.empty())) {
      return;  // see run()
    }
    const DrainChoice choice = choose_drain(pod, job);
    if (state != nullptr) {
      refresh(*state, kJobRefresh, "a held pod belongs to it");
    }
    if (choice.method == DrainMethod::LegacyPrefectHold) {
      plan_legacy(pull, pod, *state, job);
      return;
    }
    const bool nobody_reclaims = pull.verdict == Verdict::FitsAfterReclaim && !policy_.reclaim;
    if (pull.verdict != Verdict::NeverFits && pull.verdict != Verdict::DoesNotFit &&
        !nobody_reclaims) {
      return;  // its turn comes here
    }
    const std::string why = pull.is_protected ? "a protected pod waits for the same image"
                                              : why_not_at_all(pull, pod, job, choice);
    if (!why.empty()) {
      stay(pull, pod, choice, why);
      return;
    }
    const std::string wait = why_not_now(pull, pod);
    if (!wait.empty()) {
      report(pod.namespace_name + "/" + pod.name, choice.owner, choice.method, wait);
      return;
    }
    begin(pull, pod, state, choice);
  }

  [[nodiscard]] std::int64_t capacity() const {
    const auto& device = decision_.node.image_filesystem;
    return device.has_value() ? device->capacity_bytes : 0;
  }

  [[nodiscard]] const DrainRecords& records_for(const Job* job) const {
    return job != nullptr ? job->drained : snapshot_.node->drained;
  }

  [[nodiscard]] static std::string owner_uid(const Pod& pod) {
    return pod.controller.has_value() ? pod.controller->uid : pod.uid;
  }

  [[nodiscard]] std::string why_not_at_all(const PullReport& pull,
                                           const Pod& pod,
                                           const Job* job,
                                           const DrainChoice& choice) const {
    if (choice.method == DrainMethod::HoldInPlace) {
      return choice.reason;
    }
    if (!policy_.drain_enabled) {
      return "the policy has drain.enabled: false";
    }
    const DrainRecords& records = records_for(job);
    if (!records.readable) {
      return "the drain record was edited by hand or is of a newer version, it is left alone";
    }
    for (const DrainRecord& record : records.drains) {
      if (record.digest == pull.manifest_digest && record.owner_uid == owner_uid(pod) &&
          record.pod_uid != pod.uid && same_capacity(record.capacity_bytes, capacity())) {
        return "this image was drained before from a node of this capacity";
      }
    }
    if (job != nullptr && records.drains.size() >= kDrainRecordsMaximum &&
        !is_recorded(pull, pod, records)) {
      return "it was drained " + std::to_string(records.drains.size()) + " times already";
    }
    return {};
  }

  [[nodiscard]] bool is_recorded(const PullReport& pull,
                                 const Pod& pod,
                                 const DrainRecords& records) const {
    return std::ranges::any_of(records.drains, [&](const DrainRecord& record) {
      return record.digest == pull.manifest_digest && record.pod_uid == pod.uid;
    });
  }

  [[nodiscard]] std::string why_not_now(const PullReport& pull, const Pod& pod) const {
    const bool tainted = std::ranges::any_of(snapshot_.node->taints, [this](const Taint& taint) {
      return taint.key == policy_.taint_key && taint.effect == "NoSchedule";
    });
    if (snapshot_.rival_agent.has_value()) {
      return "waits: another agent, " + *snapshot_.rival_agent + ", claims this node too";
    }
    if (decision_.node.stage == Stage::StandDown) {
      return "waits: under the kubelet's own pressure nobody is drained";
    }
    if (decision_.node.stage != Stage::Guard || !tainted) {
      return "waits until the node's NoSchedule taint is acknowledged";
    }
    if (!is_stopped(pull)) {
      return "waits until its pull is held";
    }
    if (!busy_.empty() && busy_ != pod.uid) {
      return "waits: one pod is drained at a time";
    }
    return {};
  }

  /// Deleting a pod does not stop its pull: one that is not held yet would go on writing, and keep
  /// the pod here until it ends. What can't be held is cancelled by its lease instead.
  [[nodiscard]] bool is_stopped(const PullReport& pull) const {
    const auto hold =
        std::ranges::find(snapshot_.holds, pull.manifest_digest, &Hold::manifest_digest);
    return hold != snapshot_.holds.end() && hold->state != HoldState::Opening &&
           hold->state != HoldState::TooLate;
  }

  void stay(const PullReport& pull,
            const Pod& pod,
            const DrainChoice& choice,
            const std::string& why) {
    std::string sentence = "stays held on this node: " + why;
    if (pull.smallest_volume_gib > 0) {
      sentence += "; needs a volume of " + std::to_string(pull.smallest_volume_gib) + " GiB";
    }
    report(pod.namespace_name + "/" + pod.name, choice.owner, DrainMethod::HoldInPlace, sentence);
    tell_pod(snapshot_,
             decision_,
             pod,
             {.warning = true,
              .event_reason = "HeldInPlace",
              .event_action = "Hold",
              .variant = why,
              .note = sentence});
  }

  void begin(const PullReport& pull,
             const Pod& pod,
             const JobState* state,
             const DrainChoice& choice) {
    report(pod.namespace_name + "/" + pod.name, choice.owner, choice.method, choice.reason);
    switch (choice.method) {
      case DrainMethod::ProtocolS:
        suspend(pull, pod, *state);
        return;
      case DrainMethod::ProtocolP:
        disrupt(pull, pod, *state);
        return;
      case DrainMethod::DeletePod:
        remove(pull, pod, choice);
        return;
      case DrainMethod::HoldInPlace:
      case DrainMethod::LegacyPrefectHold:
        return;
    }
  }

  [[nodiscard]] std::vector<DrainRecord> records_with(const PullReport& pull,
                                                      const Pod& pod,
                                                      const DrainRecords& present) const {
    std::vector<DrainRecord> records = present.drains;
    if (records.size() >= kDrainRecordsMaximum) {
      records.erase(records.begin());  // of a Node: owners come and go
    }
    records.push_back({.digest = pull.manifest_digest,
                       .capacity_bytes = capacity(),
                       .owner_uid = owner_uid(pod),
                       .pod_uid = pod.uid});
    return records;
  }

  void suspend(const PullReport& pull, const Pod& pod, const JobState& state) {
    const Job& job = *state.job;
    if (refresh(state, kJobAgeMaximum, "it is about to be suspended")) {
      busy_ = pod.uid;
      return;
    }
    HoldRecord hold{.version = 1,
                    .token = {},
                    .node = snapshot_.node->name,
                    .node_uid = snapshot_.node->uid,
                    .pod = pod.name,
                    .pod_uid = pod.uid,
                    .since = whole_seconds(snapshot_.wall_time),
                    .resume_by = whole_seconds(snapshot_.wall_time + policy_.drain_resume_within),
                    .image = pull.image};
    hold.token = hold_token(hold);
    const bool ordered = order({.action = SuspendJob{.job = named(job),
                                                     .pod = named(pod),
                                                     .resource_version = job.resource_version,
                                                     .hold = hold,
                                                     .drains = records_with(pull, pod, job.drained),
                                                     .reason = pull.sentence},
                                .pod_uid = pod.uid,
                                .repeat = kStepRepeat});
    if (ordered) {
      tell_drain(pull, pod, "its Job is suspended until the pod is gone, and runs elsewhere then");
    }
  }

  void disrupt(const PullReport& pull, const Pod& pod, const JobState& state) {
    const Job& job = *state.job;
    if (!is_recorded(pull, pod, job.drained)) {
      if (refresh(state, kJobAgeMaximum, "its pod is about to be drained")) {
        busy_ = pod.uid;
        return;
      }
      order({.action = RecordDrain{.job = named(job),
                                   .resource_version = job.resource_version,
                                   .drains = records_with(pull, pod, job.drained),
                                   .reason = "its pod " + pod.name + " is drained"},
             .pod_uid = pod.uid,
             .repeat = kStepRepeat});
      return;
    }
    if (!pod.disruption_target) {
      order({.action = MarkDisruption{.pod = named(pod),
                                      .message = "image " + pull.image + " " + pull.sentence,
                                      .reason = "its Job's podFailurePolicy ignores it then"},
             .pod_uid = pod.uid,
             .repeat = kStepRepeat});
      return;
    }
    const bool ordered =
        order({.action = DeletePod{.pod = named(pod), .marked = true, .reason = pull.sentence},
               .pod_uid = pod.uid,
               .repeat = kStepRepeat});
    if (ordered) {
      tell_drain(pull, pod, "deleted: its Job makes a new one, no failure is counted");
    }
  }

  void remove(const PullReport& pull, const Pod& pod, const DrainChoice& choice) {
    if (!is_recorded(pull, pod, snapshot_.node->drained)) {
      order({.action = RecordDrain{.drains = records_with(pull, pod, snapshot_.node->drained),
                                   .reason = "pod " + pod.namespace_name + "/" + pod.name +
                                             " is drained"},
             .pod_uid = pod.uid,
             .repeat = kStepRepeat});
      return;
    }
    const bool ordered = order({.action = DeletePod{.pod = named(pod), .reason = pull.sentence},
                                .pod_uid = pod.uid,
                                .repeat = kStepRepeat});
    if (ordered) {
      tell_drain(pull, pod, "deleted: " + choice.reason);
    }
  }

  void tell_drain(const PullReport& pull, const Pod& pod, const std::string& what) {
    tell_pod(snapshot_,
             decision_,
             pod,
             {.warning = true,
              .event_reason = "PodDrained",
              .event_action = "Drain",
              .variant = pod.uid,
              .note = what + "; image " + pull.image + " " + pull.sentence});
  }

  // ---- runs of old Prefect workers -----------------------------------------------------------

  void plan_legacy(const PullReport& pull, const Pod& pod, const JobState& state, const Job* job) {
    const std::string name = pod.namespace_name + "/" + pod.name;
    if (!is_crashed_legacy(snapshot_, policy_, pod, job)) {
      report(name,
             OwnerKind::LegacyPrefectFlowRun,
             DrainMethod::LegacyPrefectHold,
             "held in place: its worker counts the time, a drain would crash the run");
      return;
    }
    const std::string watch = std::to_string(
        std::chrono::duration_cast<std::chrono::seconds>(policy_.legacy_prefect_pod_watch).count());
    const std::string sentence = "its worker gave up after " + watch +
                                 " s and calls the run crashed, so its pod is never let start";
    report(name, OwnerKind::LegacyPrefectFlowRun, DrainMethod::LegacyPrefectHold, sentence);
    const bool deletes = policy_.legacy_prefect_action == LegacyPrefectAction::DeleteJob;
    tell_pod(snapshot_,
             decision_,
             pod,
             {.warning = true,
              .event_reason = "LegacyRunLost",
              .event_action = deletes ? "DeleteJob" : "Hold",
              .variant = {},
              .note = sentence + (deletes ? "; its Job is deleted" : "; delete its Job")});
    if (!deletes || job == nullptr || job->deleting || pull.is_protected ||
        cancel(pull, "belongs to a run that its worker has given up")) {
      return;
    }
    if (!refresh(state, kJobAgeMaximum, "it is about to be deleted")) {
      order({.action = DeleteJob{.job = named(*job),
                                 .resource_version = job->resource_version,
                                 .reason = sentence},
             .pod_uid = pod.uid,
             .repeat = kStepRepeat});
    }
  }

  // ---- orders --------------------------------------------------------------------------------

  struct Step {
    Action action;
    std::string pod_uid;
    Duration repeat{};
  };

  /// False if it runs already, backs off, or was ordered just now.
  bool order(Step step) {
    const std::string key = action_key(step.action);
    if (std::ranges::binary_search(snapshot_.running, key)) {
      busy_ = step.pod_uid;
      return false;
    }
    auto& steps = decision_.memory.drain_steps;
    const auto last = steps.find(key);
    if (last != steps.end() && snapshot_.taken_at - last->second < step.repeat) {
      busy_ = step.pod_uid;
      return false;
    }
    if (!may_order(snapshot_, decision_.memory, key)) {
      return false;
    }
    steps[key] = snapshot_.taken_at;
    busy_ = step.pod_uid;
    decision_.actions.push_back(std::move(step.action));
    return true;
  }

  void fetch(const std::string& namespace_name, const std::string& name, const char* reason) {
    FetchJob action{.namespace_name = namespace_name, .name = name, .reason = reason};
    const std::string key = action_key(action);
    const bool ordered = std::ranges::any_of(
        decision_.actions, [&key](const Action& other) { return action_key(other) == key; });
    if (!ordered && may_order(snapshot_, decision_.memory, key)) {
      decision_.actions.emplace_back(std::move(action));
    }
  }

  /// Asks again what is older than `age`; true if it was.
  bool refresh(const JobState& state, Duration age, const char* reason) {
    if (snapshot_.taken_at - state.observed_at < age) {
      return false;
    }
    fetch(state.namespace_name, state.name, reason);
    return true;
  }

  void forget_old_steps() {
    std::erase_if(decision_.memory.drain_steps, [this](const auto& step) {
      return snapshot_.taken_at - step.second >= kStepMemory;
    });
    for (const ActionOutcome& outcome : snapshot_.outcomes) {
      if (outcome.error.has_value()) {
        decision_.memory.drain_steps.erase(outcome.key);  // its back-off counts now
      }
    }
  }

  void report(const std::string& pod,
              OwnerKind owner,
              DrainMethod method,
              const std::string& sentence) {
    decision_.drains.push_back(
        {.pod = pod, .owner = to_string(owner), .method = to_string(method), .sentence = sentence});
  }

  const NodeSnapshot& snapshot_;
  const Policy& policy_;
  Decision& decision_;
  std::string busy_;  // uid of the pod that is being drained
};

}  // namespace

void plan_drains(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision) {
  if (!snapshot.pods.has_value()) {
    return;
  }
  tell_deadlines(snapshot, policy, decision);
  if (policy.mode == Mode::Observe || !snapshot.node.has_value()) {
    return;
  }
  DrainPlanner(snapshot, policy, decision).run();
}

bool must_not_start(const NodeSnapshot& snapshot, const Policy& policy, const Pull& pull) {
  return !pull.pods.empty() && std::ranges::all_of(pull.pods, [&](const Pod* pod) {
    const JobState* state = needs_job(*pod) ? find_job(snapshot, *pod) : nullptr;
    return is_crashed_legacy(
        snapshot, policy, *pod, state == nullptr ? nullptr : job_of(state, *pod));
  });
}

std::string hold_token(const HoldRecord& record) {
  const std::string text =
      record.node + "\n" + record.node_uid + "\n" + record.pod + "\n" + record.pod_uid + "\n" +
      std::to_string(record.since.time_since_epoch().count()) + "\n" +
      std::to_string(record.resume_by.time_since_epoch().count()) + "\n" + record.image;
  std::string token = to_string(sha256(text)).substr(7, 32);  // behind "sha256:"
  for (const std::size_t dash : {8U, 13U, 18U, 23U}) {
    token.insert(dash, "-");
  }
  return token;
}

std::string why_leave_hold(const Job& job) {
  if (!job.hold.has_value() || job.hold->version == 0) {
    return "its hold record can't be read, somebody has edited it";
  }
  if (job.hold->version != 1) {
    return "its hold record is of version " + std::to_string(job.hold->version) +
           ", which this agent does not know";
  }
  if (job.hold->token != hold_token(*job.hold)) {
    return "its hold record was edited by hand";
  }
  if (!job.suspend) {
    return "somebody else has resumed it";
  }
  if (job.complete || job.failed_for_good || job.deleting) {
    return "it has ended";
  }
  return {};
}

bool same_capacity(std::int64_t left_bytes, std::int64_t right_bytes) {
  constexpr std::int64_t kTolerance = std::int64_t{256} << 20;
  const std::int64_t difference = left_bytes - right_bytes;
  return difference < kTolerance && difference > -kTolerance;
}

}  // namespace imagefs_guard
