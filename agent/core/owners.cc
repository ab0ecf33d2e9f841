#include "agent/core/owners.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace imagefs_guard {

namespace {

constexpr const char* kManagedBy = "app.kubernetes.io/managed-by";
constexpr const char* kFlowRun = "prefect.io/flow-run-id";
constexpr const char* kPrefectVersion = "prefect.io/version";
/// Since prefect-kubernetes 0.6.0 of May 2025 an observer watches, without a limit. A worker of
/// that time runs Prefect 3.4 or newer; every Prefect before that can only have an older one.
constexpr std::array<int, 2> kFirstObserver = {3, 4};
/// What the kubelet reports for a container that it can't find when the pod ends.
constexpr std::int32_t kMadeUpExitCode = 137;

using Labels = std::map<std::string, std::string>;

std::string_view value_of(const Labels& labels, const char* key) {
  const auto found = labels.find(key);
  return found == labels.end() ? std::string_view() : std::string_view(found->second);
}

bool has(const Labels& labels, const char* key) {
  return labels.contains(key);
}

bool is_component(const Pod& pod, std::string_view component) {
  return value_of(pod.labels, kComponentLabel) == component ||
         value_of(pod.labels, "component") == component;
}

/// The number at the front of `text`, which moves behind it and one dot.
std::optional<int> take_number(std::string_view& text) {
  constexpr int kLargest = 100'000;
  int number = 0;
  std::size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9' && number < kLargest) {
    number = number * 10 + (text[digits] - '0');
    ++digits;
  }
  if (digits == 0) {
    return std::nullopt;
  }
  text.remove_prefix(digits);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
  }
  return number;
}

bool is_before_observer(std::string_view version) {
  for (const int first : kFirstObserver) {
    const std::optional<int> number = take_number(version);
    if (!number.has_value() || *number < first) {
      return true;  // what says nothing may be the oldest
    }
    if (*number > first) {
      return false;
    }
  }
  return false;
}

bool is_prefect(const Pod& pod, const Job* job) {
  return has(pod.labels, kFlowRun) || (job != nullptr && has(job->labels, kFlowRun));
}

bool is_job_of_another(const Job& job) {
  const bool managed = !job.managed_by.empty() && job.managed_by != "kubernetes.io/job-controller";
  const bool owned = job.controller.has_value() && job.controller->kind != "CronJob";
  return managed || owned || has(job.labels, "kueue.x-k8s.io/queue-name") ||
         has(job.labels, "jobset.sigs.k8s.io/jobset-name");
}

OwnerKind job_kind(const Pod& pod, const Job* job) {
  if (has(pod.labels, "jobset.sigs.k8s.io/jobset-name") ||
      has(pod.labels, "kueue.x-k8s.io/queue-name") || (job != nullptr && is_job_of_another(*job))) {
    return OwnerKind::JobOfAnother;
  }
  if (!is_prefect(pod, job)) {
    return OwnerKind::Job;
  }
  return may_be_legacy_prefect(pod, job) ? OwnerKind::LegacyPrefectFlowRun
                                         : OwnerKind::PrefectFlowRun;
}

DrainChoice hold(OwnerKind owner, const std::string& reason) {
  return {.owner = owner, .method = DrainMethod::HoldInPlace, .reason = reason};
}

DrainChoice choose_for_job(OwnerKind owner, const Job* job) {
  if (job == nullptr) {
    return hold(owner, "its Job is gone: the pod goes with it");
  }
  if (job->complete || job->failed_for_good || job->deleting) {
    return hold(owner, "its Job has ended already");
  }
  if (job->suspend) {
    return hold(owner, "its Job was suspended by somebody else");
  }
  if (ignores_disruption(job->failure_rules)) {
    return {.owner = owner,
            .method = DrainMethod::ProtocolP,
            .reason = "its Job's podFailurePolicy ignores a disrupted pod"};
  }
  if (job->parallelism > 1 || job->active > 1) {
    return hold(owner, "its Job runs several pods at a time, a suspend would stop them all");
  }
  if (job->ready > 0) {
    return hold(owner, "another pod of its Job is ready, a suspend would stop it");
  }
  return {.owner = owner,
          .method = DrainMethod::ProtocolS,
          .reason = "its Job is suspended until the pod is gone: no failure is counted"};
}

DrainChoice remove_pod(OwnerKind owner, const std::string& reason) {
  return {.owner = owner, .method = DrainMethod::DeletePod, .reason = reason};
}

}  // namespace

const char* to_string(OwnerKind kind) {
  switch (kind) {
    case OwnerKind::Bare:
      return "bare pod";
    case OwnerKind::Static:
      return "static pod";
    case OwnerKind::DaemonSet:
      return "DaemonSet";
    case OwnerKind::ReplicaSet:
      return "ReplicaSet";
    case OwnerKind::StatefulSet:
      return "StatefulSet";
    case OwnerKind::Job:
      return "Job";
    case OwnerKind::PrefectFlowRun:
      return "Prefect flow run";
    case OwnerKind::LegacyPrefectFlowRun:
      return "flow run of an old Prefect worker";
    case OwnerKind::JobOfAnother:
      return "Job of another controller";
    case OwnerKind::KubeSpawner:
      return "JupyterHub user server";
    case OwnerKind::DaskWorker:
      return "dask worker";
    case OwnerKind::DaskScheduler:
      return "dask scheduler";
    case OwnerKind::Argo:
      return "Argo workflow";
    case OwnerKind::Other:
      return "unknown controller";
  }
  return "unknown controller";
}

const char* to_string(DrainMethod method) {
  switch (method) {
    case DrainMethod::ProtocolP:
      return "P";
    case DrainMethod::ProtocolS:
      return "S";
    case DrainMethod::DeletePod:
      return "delete";
    case DrainMethod::HoldInPlace:
      return "hold";
    case DrainMethod::LegacyPrefectHold:
      return "legacy-hold";
  }
  return "hold";
}

bool needs_job(const Pod& pod) {
  return pod.controller.has_value() && pod.controller->kind == "Job" &&
         pod.controller->api_version.starts_with("batch/");
}

bool has_never_started(const Pod& pod) {
  return pod.phase == PodPhase::Pending &&
         std::ranges::none_of(pod.containers, &Container::started);
}

OwnerKind owner_kind(const Pod& pod, const Job* job) {
  if (pod.mirror || (pod.controller.has_value() && pod.controller->kind == "Node")) {
    return OwnerKind::Static;
  }
  if (needs_job(pod)) {
    return job_kind(pod, job);
  }
  if (is_component(pod, "singleuser-server")) {
    return OwnerKind::KubeSpawner;
  }
  if (has(pod.labels, "gateway.dask.org/cluster")) {
    // Who is neither is treated as the one that can't be replaced.
    return is_component(pod, "dask-worker") ? OwnerKind::DaskWorker : OwnerKind::DaskScheduler;
  }
  if (has(pod.labels, "workflows.argoproj.io/workflow")) {
    return OwnerKind::Argo;
  }
  if (!pod.controller.has_value()) {
    return OwnerKind::Bare;
  }
  const std::string& kind = pod.controller->kind;
  if (pod.controller->api_version == "apps/v1") {
    if (kind == "ReplicaSet") {
      return OwnerKind::ReplicaSet;
    }
    if (kind == "StatefulSet") {
      return OwnerKind::StatefulSet;
    }
    if (kind == "DaemonSet") {
      return OwnerKind::DaemonSet;
    }
  }
  return OwnerKind::Other;
}

DrainChoice choose_drain(const Pod& pod, const Job* job) {
  const OwnerKind owner = owner_kind(pod, job);
  switch (owner) {
    case OwnerKind::Job:
    case OwnerKind::PrefectFlowRun:
      return choose_for_job(owner, job);
    case OwnerKind::LegacyPrefectFlowRun:
      return {.owner = owner,
              .method = DrainMethod::LegacyPrefectHold,
              .reason = "its worker counts the time and would call the run crashed"};
    case OwnerKind::ReplicaSet:
    case OwnerKind::StatefulSet:
      return remove_pod(owner, std::string("its ") + to_string(owner) + " makes a new one");
    case OwnerKind::DaskWorker:
      return remove_pod(owner, "dask-gateway makes a new worker");
    case OwnerKind::Argo:
      return remove_pod(owner, "Argo submits a pod again that was pending");
    case OwnerKind::Bare:
      return hold(owner, "it has no controller: deleted it would be gone for ever");
    case OwnerKind::Static:
      return hold(owner, "it is a static pod: it belongs to this node");
    case OwnerKind::DaemonSet:
      return hold(owner, "its DaemonSet wants it on this very node");
    case OwnerKind::KubeSpawner:
      return hold(owner, "it is a user's server: deleted, its start would fail");
    case OwnerKind::DaskScheduler:
      return hold(owner, "it is a dask scheduler: deleted, its cluster would be lost");
    case OwnerKind::JobOfAnother:
      return hold(owner, "another controller decides when its Job runs");
    case OwnerKind::Other:
      return hold(owner,
                  "what its controller " +
                      (pod.controller.has_value() ? pod.controller->kind : std::string("?")) +
                      " would do is not known");
  }
  return hold(owner, "its owner is not known");
}

bool ignores_disruption(const std::vector<PodFailureRule>& rules) {
  for (const PodFailureRule& rule : rules) {
    const bool ignores = rule.action == FailureAction::Ignore;
    bool may_match = false;
    for (const PodConditionPattern& condition : rule.conditions) {
      if (condition.type == "DisruptionTarget" && condition.status == "True") {
        return ignores;
      }
      may_match |= condition.type != "DisruptionTarget";
    }
    if (rule.exit_codes_in.has_value()) {
      const bool listed =
          std::ranges::find(rule.exit_codes, kMadeUpExitCode) != rule.exit_codes.end();
      may_match |= listed == *rule.exit_codes_in;
    }
    if (may_match && !ignores) {
      return false;
    }
  }
  return false;
}

bool may_be_legacy_prefect(const Pod& pod, const Job* job) {
  if (!is_prefect(pod, job) || !needs_job(pod)) {
    return false;
  }
  if (job != nullptr && value_of(job->labels, kManagedBy) == "prefect") {
    return false;
  }
  std::string_view version = value_of(pod.labels, kPrefectVersion);
  if (version.empty() && job != nullptr) {
    version = value_of(job->labels, kPrefectVersion);
  }
  return is_before_observer(version);
}

}  // namespace imagefs_guard
