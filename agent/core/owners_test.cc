#include "agent/core/owners.h"

#include <doctest/doctest.h>

#include <string>

namespace imagefs_guard::owners_test {
namespace {

Pod pod_of(const std::string& api_version, const std::string& kind) {
  return Pod{.namespace_name = "ns",
             .name = "p",
             .uid = "pod-uid",
             .controller = OwnerReference{api_version, kind, "owner", "owner-uid"}};
}

Pod job_pod() {
  return pod_of("batch/v1", "Job");
}

Job plain_job() {
  return Job{.namespace_name = "ns", .name = "owner", .uid = "owner-uid", .active = 1};
}

PodFailureRule rule(FailureAction action, const std::string& condition) {
  return {.action = action, .conditions = {{.type = condition}}};
}

struct Row {
  const char* name;
  Pod pod;
  std::optional<Job> job;
  OwnerKind owner;
  DrainMethod method;
};

template <typename Change>
Pod pod_with(Pod pod, Change change) {
  change(pod);
  return pod;
}

template <typename Change>
Job job_with(Change change) {
  Job job = plain_job();
  change(job);
  return job;
}

void check(const Row& row) {
  CAPTURE(row.name);
  const DrainChoice choice = choose_drain(row.pod, row.job ? &*row.job : nullptr);
  CHECK(std::string(to_string(choice.owner)) == to_string(row.owner));
  CHECK(std::string(to_string(choice.method)) == to_string(row.method));
  CHECK_FALSE(choice.reason.empty());
}

}  // namespace

TEST_CASE("the matrix: pods without a Job") {
  const Pod bare{.name = "p", .uid = "u"};
  const auto labelled = [&](const std::map<std::string, std::string>& labels) {
    return pod_with(bare, [&](Pod& pod) { pod.labels = labels; });
  };
  const Row rows[] = {
      {"bare", bare, {}, OwnerKind::Bare, DrainMethod::HoldInPlace},
      {"mirror",
       pod_with(bare, [](Pod& pod) { pod.mirror = true; }),
       {},
       OwnerKind::Static,
       DrainMethod::HoldInPlace},
      {"owned by its Node", pod_of("v1", "Node"), {}, OwnerKind::Static, DrainMethod::HoldInPlace},
      {"ReplicaSet",
       pod_of("apps/v1", "ReplicaSet"),
       {},
       OwnerKind::ReplicaSet,
       DrainMethod::DeletePod},
      {"StatefulSet",
       pod_of("apps/v1", "StatefulSet"),
       {},
       OwnerKind::StatefulSet,
       DrainMethod::DeletePod},
      {"DaemonSet",
       pod_of("apps/v1", "DaemonSet"),
       {},
       OwnerKind::DaemonSet,
       DrainMethod::HoldInPlace},
      {"a ReplicaSet of another API group",
       pod_of("example.io/v1", "ReplicaSet"),
       {},
       OwnerKind::Other,
       DrainMethod::HoldInPlace},
      {"unknown controller",
       pod_of("ray.io/v1", "RayCluster"),
       {},
       OwnerKind::Other,
       DrainMethod::HoldInPlace},
      {"KubeSpawner",
       labelled({{"component", "singleuser-server"}, {"hub.jupyter.org/username", "ada"}}),
       {},
       OwnerKind::KubeSpawner,
       DrainMethod::HoldInPlace},
      {"dask worker",
       labelled(
           {{"gateway.dask.org/cluster", "c"}, {"app.kubernetes.io/component", "dask-worker"}}),
       {},
       OwnerKind::DaskWorker,
       DrainMethod::DeletePod},
      {"dask scheduler",
       labelled(
           {{"gateway.dask.org/cluster", "c"}, {"app.kubernetes.io/component", "dask-scheduler"}}),
       {},
       OwnerKind::DaskScheduler,
       DrainMethod::HoldInPlace},
      {"dask, neither of them",
       labelled({{"gateway.dask.org/cluster", "c"}}),
       {},
       OwnerKind::DaskScheduler,
       DrainMethod::HoldInPlace},
      {"Argo",
       labelled({{"workflows.argoproj.io/workflow", "w"}}),
       {},
       OwnerKind::Argo,
       DrainMethod::DeletePod},
  };
  for (const Row& row : rows) {
    check(row);
  }
}

TEST_CASE("the matrix: pods of a Job") {
  const Pod flow = pod_with(job_pod(), [](Pod& pod) {
    pod.labels = {{"prefect.io/flow-run-id", "r"}, {"prefect.io/version", "3.1.0"}};
  });
  const Pod new_flow = pod_with(flow, [](Pod& pod) { pod.labels["prefect.io/version"] = "3.9.1"; });
  const Pod odd_flow = pod_with(flow, [](Pod& pod) { pod.labels["prefect.io/version"] = "main"; });
  const auto observed = job_with([](Job& job) {
    job.labels = {{"app.kubernetes.io/managed-by", "prefect"}};
  });
  const auto ignoring = job_with(
      [](Job& job) { job.failure_rules = {rule(FailureAction::Ignore, "DisruptionTarget")}; });
  const Row rows[] = {
      {"stock Job", job_pod(), plain_job(), OwnerKind::Job, DrainMethod::ProtocolS},
      {"Job that ignores", job_pod(), ignoring, OwnerKind::Job, DrainMethod::ProtocolP},
      {"CronJob's",
       job_pod(),
       job_with([](Job& job) {
         job.controller = OwnerReference{"batch/v1", "CronJob", "c", "c"};
       }),
       OwnerKind::Job,
       DrainMethod::ProtocolS},
      {"JobSet's by its owner",
       job_pod(),
       job_with([](Job& job) {
         job.controller = OwnerReference{"jobset.x-k8s.io/v1alpha2", "JobSet", "s", "s"};
         job.failure_rules = {rule(FailureAction::Ignore, "DisruptionTarget")};
       }),
       OwnerKind::JobOfAnother,
       DrainMethod::HoldInPlace},
      {"Kueue's",
       job_pod(),
       job_with([](Job& job) {
         job.labels = {{"kueue.x-k8s.io/queue-name", "q"}};
       }),
       OwnerKind::JobOfAnother,
       DrainMethod::HoldInPlace},
      {"managedBy another",
       job_pod(),
       job_with([](Job& job) { job.managed_by = "kueue.x-k8s.io/multikueue"; }),
       OwnerKind::JobOfAnother,
       DrainMethod::HoldInPlace},
      {"managedBy the Job controller",
       job_pod(),
       job_with([](Job& job) { job.managed_by = "kubernetes.io/job-controller"; }),
       OwnerKind::Job,
       DrainMethod::ProtocolS},
      {"parallel",
       job_pod(),
       job_with([](Job& job) { job.parallelism = 3; }),
       OwnerKind::Job,
       DrainMethod::HoldInPlace},
      {"another active pod",
       job_pod(),
       job_with([](Job& job) { job.active = 2; }),
       OwnerKind::Job,
       DrainMethod::HoldInPlace},
      {"a ready pod",
       job_pod(),
       job_with([](Job& job) { job.ready = 1; }),
       OwnerKind::Job,
       DrainMethod::HoldInPlace},
      {"complete",
       job_pod(),
       job_with([](Job& job) { job.complete = true; }),
       OwnerKind::Job,
       DrainMethod::HoldInPlace},
      {"failed",
       job_pod(),
       job_with([](Job& job) { job.failed_for_good = true; }),
       OwnerKind::Job,
       DrainMethod::HoldInPlace},
      {"being deleted",
       job_pod(),
       job_with([](Job& job) { job.deleting = true; }),
       OwnerKind::Job,
       DrainMethod::HoldInPlace},
      {"suspended by somebody else",
       job_pod(),
       job_with([](Job& job) { job.suspend = true; }),
       OwnerKind::Job,
       DrainMethod::HoldInPlace},
      {"gone", job_pod(), {}, OwnerKind::Job, DrainMethod::HoldInPlace},
      {"flow run of an observer's worker",
       flow,
       observed,
       OwnerKind::PrefectFlowRun,
       DrainMethod::ProtocolS},
      {"flow run of a new version",
       new_flow,
       plain_job(),
       OwnerKind::PrefectFlowRun,
       DrainMethod::ProtocolS},
      {"flow run of a new version that ignores",
       new_flow,
       ignoring,
       OwnerKind::PrefectFlowRun,
       DrainMethod::ProtocolP},
      {"legacy flow run",
       flow,
       plain_job(),
       OwnerKind::LegacyPrefectFlowRun,
       DrainMethod::LegacyPrefectHold},
      {"legacy flow run, even where its Job ignores",
       flow,
       ignoring,
       OwnerKind::LegacyPrefectFlowRun,
       DrainMethod::LegacyPrefectHold},
      {"flow run of who knows what",
       odd_flow,
       plain_job(),
       OwnerKind::LegacyPrefectFlowRun,
       DrainMethod::LegacyPrefectHold},
  };
  for (const Row& row : rows) {
    check(row);
  }
}

TEST_CASE("podFailurePolicy: what may match before decides") {
  struct Case {
    const char* name;
    std::vector<PodFailureRule> rules;
    bool want;
  };

  const PodFailureRule ignore = rule(FailureAction::Ignore, "DisruptionTarget");
  const auto codes = [](bool in, std::vector<std::int32_t> values) {
    return PodFailureRule{
        .action = FailureAction::FailJob, .exit_codes_in = in, .exit_codes = std::move(values)};
  };
  const Case cases[] = {
      {"none", {}, false},
      {"ignores", {ignore}, true},
      {"fails on it", {rule(FailureAction::FailJob, "DisruptionTarget"), ignore}, false},
      {"counts it", {rule(FailureAction::Count, "DisruptionTarget")}, false},
      {"another exit code before", {codes(true, {42}), ignore}, true},
      {"the made-up exit code before", {codes(true, {1, 137}), ignore}, false},
      {"all but some exit codes before", {codes(false, {0, 42}), ignore}, false},
      {"all but the made-up one before", {codes(false, {137}), ignore}, true},
      {"another condition before", {rule(FailureAction::FailJob, "ConfigIssue"), ignore}, false},
      {"another ignored condition before",
       {rule(FailureAction::Ignore, "ConfigIssue"), ignore},
       true},
      {"DisruptionTarget=False",
       {{.action = FailureAction::Ignore, .conditions = {{"DisruptionTarget", "False"}}}},
       false},
      {"a newer action", {rule(FailureAction::Unknown, "DisruptionTarget")}, false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    CHECK(ignores_disruption(c.rules) == c.want);
  }
}

TEST_CASE("which Prefect versions may have a worker that counts the time") {
  struct Case {
    const char* version;
    bool want;
  };

  for (const Case& c : {Case{"2.20.4", true},
                        Case{"3.1.0", true},
                        Case{"3.3.9", true},
                        Case{"3.4.0", false},
                        Case{"3.4.0rc1", false},
                        Case{"3.10.2", false},
                        Case{"4.0.0", false},
                        Case{"3", true},
                        Case{"", true},
                        Case{"unknown", true},
                        Case{"99999999999999999999.1", false}}) {
    CAPTURE(c.version);
    const Pod pod = pod_with(job_pod(), [&](Pod& p) {
      p.labels = {{"prefect.io/flow-run-id", "r"}, {"prefect.io/version", c.version}};
    });
    CHECK(may_be_legacy_prefect(pod, nullptr) == c.want);
  }
  CHECK_FALSE(may_be_legacy_prefect(job_pod(), nullptr));
}

TEST_CASE("a pod has started as soon as one container has") {
  Pod pod{.containers = {{.name = "init", .init = true}, {.name = "main"}}};
  CHECK(has_never_started(pod));
  pod.containers[0].started = true;
  CHECK_FALSE(has_never_started(pod));
  pod.containers[0].started = false;
  pod.phase = PodPhase::Running;
  CHECK_FALSE(has_never_started(pod));
}

}  // namespace imagefs_guard::owners_test
