#include "agent/core/deadlines.h"

#include <algorithm>
#include <optional>
#include <string>

#include "agent/core/owners.h"
#include "agent/core/publish.h"
#include "agent/core/words.h"

namespace imagefs_guard {

namespace {

/// Rates below this are no rates: nothing moves, and a division must not overflow.
constexpr std::int64_t kRateMinimum = 1024;
constexpr std::int64_t kMicroseconds = 1'000'000;

struct Deadline {
  const char* who = "";  // "the worker"
  Duration patience{};   // from the start
  Duration left{};
};

Duration time_for(std::int64_t bytes, std::int64_t bytes_per_second) {
  const std::int64_t rate = std::max(bytes_per_second, kRateMinimum);
  const std::int64_t amount = std::max<std::int64_t>(bytes, 0);
  // Seconds and the rest apart, so that no product overflows.
  return std::chrono::seconds(amount / rate) + Duration(amount % rate * kMicroseconds / rate);
}

std::string seconds_text(Duration duration) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(duration).count()) + " s";
}

const Job* known_job(const NodeSnapshot& snapshot, const Pod& pod) {
  if (!needs_job(pod)) {
    return nullptr;
  }
  for (const JobState& state : snapshot.jobs) {
    if (state.job.has_value() && state.job->uid == pod.controller->uid) {
      return &*state.job;
    }
  }
  return nullptr;
}

Deadline after(const char* who, Duration patience, Duration age) {
  return {.who = who, .patience = patience, .left = patience - age};
}

std::optional<Deadline> deadline_of(const NodeSnapshot& snapshot,
                                    const Policy& policy,
                                    const Pod& pod) {
  const Job* job = known_job(snapshot, pod);
  const Duration age = pod_age(snapshot, pod);
  switch (owner_kind(pod, job)) {
    case OwnerKind::LegacyPrefectFlowRun:
      return after("the worker", policy.legacy_prefect_pod_watch, age);
    case OwnerKind::KubeSpawner:
      return after("the hub", policy.spawner_start_timeout, age);
    case OwnerKind::ReplicaSet:
      return after("the Deployment", policy.deployment_progress, age);
    case OwnerKind::Job:
    case OwnerKind::PrefectFlowRun:
    case OwnerKind::JobOfAnother:
      if (job != nullptr && job->active_deadline_seconds.has_value() &&
          job->start_time.has_value()) {
        // More than a year is no deadline, and must not overflow.
        const std::int64_t seconds =
            std::min<std::int64_t>(*job->active_deadline_seconds, 366LL * 24 * 3600);
        return after(
            "the Job", std::chrono::seconds(seconds), snapshot.wall_time - *job->start_time);
      }
      return std::nullopt;
    case OwnerKind::Bare:
    case OwnerKind::Static:
    case OwnerKind::DaemonSet:
    case OwnerKind::StatefulSet:
    case OwnerKind::DaskWorker:
    case OwnerKind::DaskScheduler:
    case OwnerKind::Argo:
    case OwnerKind::Other:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string sentence_of(const PullReport& pull, Duration needed, const Deadline& deadline) {
  std::string text = "pull of " + gib_text(pull.demand.peak_mid_bytes()) + " GiB ";
  text += pull.held ? "is held and will take about " + seconds_text(needed) + " once it may go"
                    : "will take about " + seconds_text(needed);
  text += std::string("; ") + deadline.who;
  if (deadline.left <= Duration::zero()) {
    return text + " has given up after " + seconds_text(deadline.patience);
  }
  return text + " gives up after " + seconds_text(deadline.patience) + ", that is in " +
         seconds_text(deadline.left);
}

}  // namespace

Duration pod_age(const NodeSnapshot& snapshot, const Pod& pod) {
  const Duration seen = snapshot.taken_at - pod.observed_at;
  const bool dated = pod.created_at != WallTime{} && snapshot.wall_time > pod.created_at;
  return dated ? std::max(seen, snapshot.wall_time - pod.created_at) : seen;
}

Duration pull_duration(const Demand& demand, const PullRates& rates) {
  const std::int64_t unpack = demand.peak_mid_bytes() - demand.download_bytes;
  return time_for(demand.download_bytes, rates.download_bytes_per_second) +
         time_for(unpack, rates.unpack_bytes_per_second);
}

void tell_deadlines(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision) {
  const PullRates rates = snapshot.rates.value_or(
      PullRates{.download_bytes_per_second = policy.download_bytes_per_second,
                .unpack_bytes_per_second = policy.unpack_bytes_per_second});
  const std::vector<PullReport> pulls = decision.pulls;
  for (const PullReport& pull : pulls) {
    if (pull.verdict == Verdict::Unknown) {
      continue;
    }
    const Duration needed = pull_duration(pull.demand, rates);
    for (const Pod& pod : *snapshot.pods) {
      const std::string key = pod.namespace_name + "/" + pod.name;
      if (std::ranges::find(pull.pods, key) == pull.pods.end() || pod.deleting ||
          !has_never_started(pod)) {
        continue;
      }
      const std::optional<Deadline> deadline = deadline_of(snapshot, policy, pod);
      if (!deadline.has_value() || needed < deadline->left) {
        continue;
      }
      tell_pod(snapshot,
               decision,
               pod,
               {.warning = true,
                .event_reason = "DeadlineAtRisk",
                .event_action = "Warn",
                .variant = deadline->left <= Duration::zero() ? "passed" : "ahead",
                .note = sentence_of(pull, needed, *deadline)});
    }
  }
}

}  // namespace imagefs_guard
