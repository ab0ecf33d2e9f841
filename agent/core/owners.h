#pragma once
/// Who owns a pod that can't stay, and what its owner survives: the matrix of the drain. Called by
/// plan_drains() with the pod and, where it has one, its Job. Pure.

#include <string>
#include <vector>

#include "agent/core/job.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

enum class OwnerKind {
  Bare,
  Static,
  DaemonSet,
  ReplicaSet,
  StatefulSet,
  Job,
  PrefectFlowRun,
  LegacyPrefectFlowRun,  // its worker gives up on a pod that does not start
  JobOfAnother,          // JobSet, Kueue, managedBy: somebody else decides when it runs
  KubeSpawner,
  DaskWorker,
  DaskScheduler,
  Argo,
  Other,
};

/// "Job", "Prefect flow run": for logs, metrics and sentences.
[[nodiscard]] const char* to_string(OwnerKind kind);

/// How a never-started pod can leave so that its owner survives.
/// ProtocolP: DisruptionTarget, then delete: the Job's podFailurePolicy ignores it.
/// ProtocolS: suspend the Job, wait until the pod is gone, resume it.
enum class DrainMethod { ProtocolP, ProtocolS, DeletePod, HoldInPlace, LegacyPrefectHold };

[[nodiscard]] const char* to_string(DrainMethod method);

struct DrainChoice {
  OwnerKind owner = OwnerKind::Other;
  DrainMethod method = DrainMethod::HoldInPlace;
  std::string reason;  // in words: why so

  bool operator==(const DrainChoice&) const = default;
};

/// Whether the pod is its Job's to lose: ask for the Job before choosing.
[[nodiscard]] bool needs_job(const Pod& pod);

/// No container of it, init containers included, has ever run.
[[nodiscard]] bool has_never_started(const Pod& pod);

/// `job` is null where the pod has none.
[[nodiscard]] OwnerKind owner_kind(const Pod& pod, const Job* job);

/// The matrix. `job` is null where the pod has none, or where there is none any more.
[[nodiscard]] DrainChoice choose_drain(const Pod& pod, const Job* job);

/// The first rule that may match a deleted pod which never started is one that ignores it. Other
/// pod conditions, and the exit code 137 that the kubelet makes up, count as "may match".
[[nodiscard]] bool ignores_disruption(const std::vector<PodFailureRule>& rules);

/// A flow run whose worker watches each pod for a limited time (prefect-kubernetes before 0.6).
/// Without the Job it says yes where it can't be excluded.
[[nodiscard]] bool may_be_legacy_prefect(const Pod& pod, const Job* job);

}  // namespace imagefs_guard
