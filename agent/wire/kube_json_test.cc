#include "agent/wire/kube_json.h"

#include <doctest/doctest.h>

#include <string>

namespace imagefs_guard::kube_json_test {

namespace {

constexpr const char* kPod = R"({
  "kind":"Pod","apiVersion":"v1",
  "metadata":{"name":"etl-x","namespace":"flows","uid":"u1","resourceVersion":"42",
    "creationTimestamp":"2026-01-02T03:04:05Z",
    "managedFields":[{"manager":"kubectl"}],
    "labels":{"app":"etl","odd":7},
    "annotations":{"imagefs-guard.io/protect":"true","workflows.argoproj.io/workflow":"w",
                   "kubectl.kubernetes.io/last-applied-configuration":"{}"},
    "ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"x"},
                       {"apiVersion":"batch/v1","kind":"Job","name":"etl","uid":"j",
                        "controller":true}]},
  "spec":{"nodeName":"n1","priority":2000001000,"somethingNew":{"a":[1]},
    "tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists"},
                   {"operator":"Exists","effect":"NoSchedule"},
                   {"key":"team","operator":"Equal","value":"a"}],
    "initContainers":[{"name":"init","image":"busybox","imagePullPolicy":"Always",
                       "resources":{"requests":{"ephemeral-storage":"2Gi"}}}],
    "containers":[{"name":"main","image":"123456789012.dkr.ecr.us-east-2.amazonaws.com/a:1",
                   "resources":{"requests":{"ephemeral-storage":"500Mi"}}},
                  {"name":"side","image":"x@sha256:0",
                   "resources":{"requests":{"ephemeral-storage":"1Gi"}}}],
    "ephemeralContainers":[{"name":"debug","image":"tools","imagePullPolicy":"IfNotPresent"}]},
  "status":{"phase":"Pending",
    "initContainerStatuses":[{"name":"init","image":"busybox","imageID":"",
        "restartCount":0,"started":false,"state":{"waiting":{"reason":"PodInitializing"}}}],
    "containerStatuses":[
      {"name":"side","imageID":"","state":{"waiting":{"reason":"ImagePullBackOff"}}},
      {"name":"main","imageID":"sha256:1","state":{"waiting":{"reason":"ContainerCreating"}}}]}})";

/// A container status that makes, or does not make, its container a started one.
struct StartedCase {
  const char* status;
  bool started;
};

}  // namespace

TEST_CASE("pod: everything that is read") {
  const auto parsed = parse_pod(kPod);
  REQUIRE(parsed);
  const Pod& pod = *parsed;
  CHECK(pod.namespace_name == "flows");
  CHECK(pod.name == "etl-x");
  CHECK(pod.uid == "u1");
  CHECK(pod.resource_version == "42");
  CHECK(pod.phase == PodPhase::Pending);
  CHECK(!pod.deleting);
  CHECK(!pod.mirror);
  CHECK(pod.priority == 2'000'001'000);
  CHECK(pod.labels.at("app") == "etl");
  CHECK(pod.annotations.size() == 2);
  CHECK(pod.annotations.contains("workflows.argoproj.io/workflow"));
  REQUIRE(pod.controller);
  CHECK(*pod.controller == OwnerReference{"batch/v1", "Job", "etl", "j"});
  CHECK(pod.created_at == WallTime(std::chrono::seconds(1'767'323'045)));
  CHECK(pod.ephemeral_storage_request_bytes == std::int64_t{2} << 30);
  CHECK(pod.tolerations == std::vector<Toleration>{{.effect = "NoSchedule", .exists = true},
                                                   {.key = "team", .value = "a"}});
  REQUIRE(pod.containers.size() == 4);
  CHECK(pod.containers[0].name == "init");
  CHECK(pod.containers[0].init);
  CHECK(!pod.containers[0].started);
  CHECK(pod.containers[0].pull_policy == PullPolicy::Always);
  CHECK(pod.containers[0].waiting_reason == "PodInitializing");
  CHECK(pod.containers[1].name == "main");
  CHECK(pod.containers[1].started);  // its image ID is known: it had been created before
  CHECK(pod.containers[1].pull_policy == PullPolicy::IfNotPresent);
  CHECK(pod.containers[2].waiting_reason == "ImagePullBackOff");
  CHECK(pod.containers[2].pull_policy == PullPolicy::IfNotPresent);
  CHECK(pod.containers[3].name == "debug");
  CHECK(!pod.containers[3].init);
}

TEST_CASE("pod: started is having run, not waiting") {
  for (const StartedCase& c : {
           StartedCase{R"({"name":"c"})", false},
           StartedCase{R"({"name":"c","state":{"waiting":{"reason":"ContainerCreating"}}})", false},
           StartedCase{R"({"name":"c","started":false,"restartCount":0,"lastState":{}})", false},
           StartedCase{R"({"name":"c","state":{"running":{"startedAt":"x"}}})", true},
           StartedCase{R"({"name":"c","state":{"running":{}}})", true},
           StartedCase{R"({"name":"c","state":{"terminated":{"exitCode":0}}})", true},
           StartedCase{R"({"name":"c","state":{"waiting":{}},"lastState":{"terminated":{}}})",
                       true},
           StartedCase{R"({"name":"c","restartCount":1})", true},
           StartedCase{R"({"name":"c","imageID":"sha256:2"})", true},
           StartedCase{R"({"name":"other","restartCount":1})", false},
       }) {
    CAPTURE(c.status);
    const auto pod = parse_pod(
        std::string(R"({"metadata":{"name":"p","uid":"u"},"spec":{"containers":[{"name":"c",)") +
        R"("image":"i"}]},"status":{"containerStatuses":[)" + c.status + "]}}");
    REQUIRE(pod);
    CHECK(pod->containers[0].started == c.started);
  }
}

TEST_CASE("pod: pull policy where the API server has not filled it in") {
  struct Case {
    const char* image;
    PullPolicy want;
  };

  for (const Case& c : {Case{"nginx", PullPolicy::Always},
                        Case{"nginx:latest", PullPolicy::Always},
                        Case{"localhost:5000/nginx", PullPolicy::Always},
                        Case{"localhost:5000/nginx:1", PullPolicy::IfNotPresent},
                        Case{"nginx@sha256:00", PullPolicy::IfNotPresent}}) {
    CAPTURE(c.image);
    const auto pod = parse_pod(
        std::string(R"({"metadata":{"name":"p","uid":"u"},"spec":{"containers":[{"name":"c",)") +
        R"("image":")" + c.image + R"("}]}})");
    REQUIRE(pod);
    CHECK(pod->containers[0].pull_policy == c.want);
  }
}

TEST_CASE("pod: mirror, deleting, odd values") {
  const auto pod = parse_pod(
      R"({"metadata":{"name":"p","uid":"u","deletionTimestamp":"2026-01-02T03:04:05Z",
          "annotations":{"kubernetes.io/config.mirror":"h"},"creationTimestamp":null},
          "spec":{"priority":99999999999,"containers":"none",
                  "overhead":{"ephemeral-storage":"1Ki"}},"status":{"phase":"Odd"}})");
  REQUIRE(pod);
  CHECK(pod->deleting);
  CHECK(pod->mirror);
  CHECK(pod->priority == 0);
  CHECK(pod->containers.empty());
  CHECK(pod->phase == PodPhase::Unknown);
  CHECK(pod->created_at == WallTime{});
  CHECK(pod->ephemeral_storage_request_bytes == 1024);
  CHECK(!parse_pod("{}"));
  CHECK(!parse_pod("[]"));
  CHECK(!parse_pod("<html>"));
}

TEST_CASE("pod list: metadata, pages, and what is no list") {
  const auto list =
      parse_pod_list(std::string(R"({"kind":"PodList","metadata":{)") +
                     R"("resourceVersion":"7","continue":"next"},"items":[)" + kPod + "]}");
  REQUIRE(list);
  CHECK(list->metadata == ListMetadata{"7", "next"});
  CHECK(list->pods.size() == 1);
  CHECK(parse_pod_list(R"({"kind":"PodList","metadata":{},"items":null})")->pods.empty());
  CHECK(!parse_pod_list(R"({"kind":"Status","code":403})"));
  CHECK(!parse_pod_list(R"({"kind":"PodList","items":[{"metadata":{}}]})"));
  CHECK(!parse_pod_list("not json"));
}

TEST_CASE("watch: every type of event") {
  const auto added =
      parse_pod_watch_event(std::string(R"({"type":"ADDED","object":)") + kPod + "}");
  REQUIRE(added);
  CHECK(added->type == WatchEventType::Added);
  CHECK(added->resource_version == "42");
  CHECK(added->pod.name == "etl-x");
  CHECK(parse_pod_watch_event(std::string(R"({"type":"DELETED","object":)") + kPod + "}")->type ==
        WatchEventType::Deleted);
  const auto bookmark = parse_pod_watch_event(
      R"({"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"99"}}})");
  REQUIRE(bookmark);
  CHECK(bookmark->type == WatchEventType::Bookmark);
  CHECK(bookmark->resource_version == "99");
  const auto gone = parse_node_watch_event(
      R"({"type":"ERROR","object":{"kind":"Status","code":410,
          "reason":"Expired","message":"old"}})");
  REQUIRE(gone);
  CHECK(gone->type == WatchEventType::Error);
  CHECK(gone->status.code == 410);
  CHECK(gone->status.reason == "Expired");
  CHECK(!parse_pod_watch_event(R"({"type":"NEW","object":{}})"));
  CHECK(!parse_pod_watch_event(R"({"type":"ADDED","object":{}})"));
  CHECK(!parse_pod_watch_event(""));
}

TEST_CASE("node: taints, conditions, own annotations only") {
  const auto node = parse_node(
      R"({"metadata":{"name":"n1","uid":"u","resourceVersion":"5","labels":{"a":"b"},
           "annotations":{"imagefs-guard.io/status":"{}","other":"x"}},
          "spec":{"taints":[{"key":"k","effect":"NoSchedule","timeAdded":"t"},
                            {"key":"k2","value":"v","effect":"NoExecute"}]},
          "status":{"conditions":[{"type":"DiskPressure","status":"True"},
             {"type":"ImageFilesystemRisk","status":"False","reason":"R","message":"M",
              "lastTransitionTime":"T"}],
           "nodeInfo":{"operatingSystem":"linux","architecture":"arm64",
                       "containerRuntimeVersion":"containerd://2.2.9"}}})");
  REQUIRE(node);
  CHECK(node->taints == std::vector<Taint>{{"k", "", "NoSchedule"}, {"k2", "v", "NoExecute"}});
  CHECK(node->disk_pressure);
  CHECK(node->risk_condition == RiskCondition{ConditionStatus::False, "R", "M", "T"});
  CHECK(node->annotations.size() == 1);
  CHECK(node->architecture == "arm64");
  CHECK(node->container_runtime == "containerd://2.2.9");
  const auto list = parse_node_list(
      R"({"kind":"NodeList","metadata":{"resourceVersion":"9"},
          "items":[{"metadata":{"name":"n","uid":"u"}}]})");
  REQUIRE(list);
  CHECK(list->nodes[0].name == "n");
  CHECK(!list->nodes[0].disk_pressure);
}

TEST_CASE("job: what the owner policy needs") {
  const auto job = parse_job(
      R"({"metadata":{"name":"j","namespace":"n","uid":"u","labels":{"l":"v"}},
          "spec":{"suspend":true,"backoffLimit":0,"managedBy":"kueue.x-k8s.io/multikueue",
            "podFailurePolicy":{"rules":[
              {"action":"FailJob","onExitCodes":{"operator":"In","values":[42]}},
              {"action":"Ignore","onPodConditions":[{"type":"DisruptionTarget"}]}]}},
          "status":{"active":1,"failed":2,"conditions":[{"type":"Complete","status":"True"}]}})");
  REQUIRE(job);
  CHECK(job->suspend);
  CHECK(job->backoff_limit == 0);
  CHECK(job->managed_by == "kueue.x-k8s.io/multikueue");
  CHECK(job->failure_rules ==
        std::vector<PodFailureRule>{
            {.action = FailureAction::FailJob, .exit_codes_in = true, .exit_codes = {42}},
            {.action = FailureAction::Ignore, .conditions = {{"DisruptionTarget", "True"}}}});
  CHECK(job->parallelism == 1);
  CHECK(job->active == 1);
  CHECK(job->failed == 2);
  CHECK(job->complete);
  CHECK(!job->failed_for_good);
  const auto begun = parse_job(
      R"({"metadata":{"name":"j","uid":"u"},"spec":{"parallelism":2,"activeDeadlineSeconds":60},
          "status":{"ready":1,"startTime":"2026-01-02T03:04:05Z",
                    "conditions":[{"type":"FailureTarget","status":"True"}]}})");
  REQUIRE(begun);
  CHECK(begun->parallelism == 2);
  CHECK(begun->ready == 1);
  CHECK(begun->active_deadline_seconds == 60);
  CHECK(begun->start_time.has_value());
  CHECK(begun->failed_for_good);
  CHECK_FALSE(begun->hold.has_value());
  CHECK(begun->drained == DrainRecords{});
}

TEST_CASE("api status: a Status, or whatever came instead") {
  const ApiStatus status = parse_api_status(
      R"({"kind":"Status","code":422,"reason":"Invalid","message":"m",
          "details":{"causes":[{"reason":"FieldValueInvalid","message":"a"},{"message":"b"}],
                     "retryAfterSeconds":7}})");
  CHECK(status == ApiStatus{422, "Invalid", "m", {"FieldValueInvalid", "b"}, 7});
  CHECK(parse_api_status("upstream connect error").message == "upstream connect error");
  CHECK(parse_api_status(std::string(5000, 'x')).message.size() == 200);
}

}  // namespace imagefs_guard::kube_json_test
