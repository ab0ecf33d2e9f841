#include "agent/wire/kube_json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "agent/wire/drain_json.h"
#include "agent/wire/json.h"
#include "agent/wire/quantity.h"
#include "agent/wire/time_text.h"

namespace imagefs_guard {

namespace {

/// What owners and operators say about a pod; everything else stays out of memory and traces.
constexpr std::array<std::string_view, 9> kPodAnnotationPrefixes = {
    "imagefs-guard.io/",
    "kubernetes.io/config.",
    "gateway.dask.org/",
    "workflows.argoproj.io/",
    "hub.jupyter.org/",
    "jobset.sigs.k8s.io/",
    "prefect.io/",
    "karpenter.sh/do-not-disrupt",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
};
constexpr std::array<std::string_view, 1> kOwnPrefix = {"imagefs-guard.io/"};
constexpr std::string_view kMirrorAnnotation = "kubernetes.io/config.mirror";
constexpr std::string_view kRiskConditionType = "ImageFilesystemRisk";
constexpr std::size_t kItemLimit = 256;  // containers, taints, conditions of one object

std::string string_of(JsonView view) {
  return std::string(view.text());
}

std::int32_t int32_of(JsonView view, std::int32_t otherwise) {
  const std::optional<std::int64_t> value = view.integer();
  if (!value || *value < std::numeric_limits<std::int32_t>::min() ||
      *value > std::numeric_limits<std::int32_t>::max()) {
    return otherwise;
  }
  return static_cast<std::int32_t>(*value);
}

std::map<std::string, std::string> string_map(JsonView view) {
  std::map<std::string, std::string> map;
  view.for_each_member(
      [&map](std::string_view key, JsonView value) { map.emplace(key, value.text()); });
  return map;
}

template <std::size_t kCount>
std::map<std::string, std::string> annotations_with(
    JsonView view, const std::array<std::string_view, kCount>& prefixes) {
  std::map<std::string, std::string> map;
  view.for_each_member([&](std::string_view key, JsonView value) {
    const bool wanted = std::ranges::any_of(
        prefixes, [key](std::string_view prefix) { return key.starts_with(prefix); });
    if (wanted && value.text().size() <= kAnnotationValueLimit) {
      map.emplace(key, value.text());
    }
  });
  return map;
}

std::optional<OwnerReference> controller_of(JsonView metadata) {
  const JsonView owners = metadata["ownerReferences"];
  for (std::size_t i = 0; i < std::min(owners.size(), kItemLimit); ++i) {
    const JsonView owner = owners.at(i);
    if (owner["controller"].boolean().value_or(false)) {
      return OwnerReference{.api_version = string_of(owner["apiVersion"]),
                            .kind = string_of(owner["kind"]),
                            .name = string_of(owner["name"]),
                            .uid = string_of(owner["uid"])};
    }
  }
  return std::nullopt;
}

PodPhase phase_of(std::string_view text) {
  if (text == "Running") {
    return PodPhase::Running;
  }
  if (text == "Succeeded") {
    return PodPhase::Succeeded;
  }
  if (text == "Failed") {
    return PodPhase::Failed;
  }
  return text == "Pending" || text.empty() ? PodPhase::Pending : PodPhase::Unknown;
}

/// The API server fills the policy in; where it is missing, its rule is applied here.
PullPolicy pull_policy_of(std::string_view text, std::string_view image) {
  if (text == "Always") {
    return PullPolicy::Always;
  }
  if (text == "Never") {
    return PullPolicy::Never;
  }
  if (text == "IfNotPresent" || image.find('@') != std::string_view::npos) {
    return PullPolicy::IfNotPresent;
  }
  const std::string_view last = image.substr(image.rfind('/') + 1);
  const bool latest = last.find(':') == std::string_view::npos || last.ends_with(":latest");
  return latest ? PullPolicy::Always : PullPolicy::IfNotPresent;
}

/// Has run, or runs. A container that only waits for its image has none of these.
bool has_started(JsonView status) {
  return !status["imageID"].text().empty() || status["state"]["running"].is_object() ||
         status["state"]["terminated"].is_object() || status["lastState"]["running"].is_object() ||
         status["lastState"]["terminated"].is_object() ||
         status["restartCount"].integer().value_or(0) > 0 ||
         status["started"].boolean().value_or(false);
}

JsonView status_named(JsonView statuses, std::string_view name) {
  for (std::size_t i = 0; i < std::min(statuses.size(), kItemLimit); ++i) {
    if (statuses.at(i)["name"].text() == name) {
      return statuses.at(i);
    }
  }
  return {};
}

struct ContainerLists {
  JsonView specs;
  JsonView statuses;
  bool init = false;
};

void append_containers(const ContainerLists& lists, std::vector<Container>& into) {
  for (std::size_t i = 0; i < std::min(lists.specs.size(), kItemLimit); ++i) {
    const JsonView spec = lists.specs.at(i);
    const JsonView status = status_named(lists.statuses, spec["name"].text());
    into.push_back(Container{
        .name = string_of(spec["name"]),
        .image = string_of(spec["image"]),
        .pull_policy = pull_policy_of(spec["imagePullPolicy"].text(), spec["image"].text()),
        .init = lists.init,
        .started = has_started(status),
        .waiting_reason = string_of(status["state"]["waiting"]["reason"]),
    });
  }
}

std::int64_t storage_request(JsonView resources_parent) {
  const JsonView request = resources_parent["resources"]["requests"]["ephemeral-storage"];
  const Result<std::int64_t> bytes = parse_quantity(request.scalar_text());
  return bytes ? std::max<std::int64_t>(0, *bytes) : 0;
}

std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMaximum = std::numeric_limits<std::int64_t>::max();
  return a > kMaximum - b ? kMaximum : a + b;
}

/// As the kubelet ranks: the sum of the containers, at least the largest init container, plus the
/// pod's overhead.
std::int64_t pod_storage_request(JsonView spec) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < std::min(spec["containers"].size(), kItemLimit); ++i) {
    sum = saturating_add(sum, storage_request(spec["containers"].at(i)));
  }
  for (std::size_t i = 0; i < std::min(spec["initContainers"].size(), kItemLimit); ++i) {
    sum = std::max(sum, storage_request(spec["initContainers"].at(i)));
  }
  const auto overhead = parse_quantity(spec["overhead"]["ephemeral-storage"].scalar_text());
  return overhead ? saturating_add(sum, std::max<std::int64_t>(0, *overhead)) : sum;
}

/// Those of the kubelet's and the node controller's taints say nothing about ours; most pods have
/// no others.
std::vector<Toleration> tolerations_of(JsonView list) {
  std::vector<Toleration> tolerations;
  for (std::size_t i = 0; i < std::min(list.size(), kItemLimit); ++i) {
    const JsonView item = list.at(i);
    if (!item["key"].text().starts_with("node.kubernetes.io/")) {
      tolerations.push_back({.key = string_of(item["key"]),
                             .value = string_of(item["value"]),
                             .effect = string_of(item["effect"]),
                             .exists = item["operator"].text() == "Exists"});
    }
  }
  return tolerations;
}

/// DisruptionTarget as we set it; the kubelet's and the scheduler's have other reasons.
bool is_our_disruption(JsonView conditions) {
  for (std::size_t i = 0; i < std::min(conditions.size(), kItemLimit); ++i) {
    const JsonView condition = conditions.at(i);
    if (condition["type"].text() == "DisruptionTarget") {
      return condition["status"].text() == "True" &&
             condition["reason"].text() == kDisruptionReason;
    }
  }
  return false;
}

Result<Pod> to_pod(JsonView object) {
  const JsonView metadata = object["metadata"];
  const JsonView spec = object["spec"];
  const JsonView status = object["status"];
  if (metadata["name"].text().empty() || metadata["uid"].text().empty()) {
    return Error{ErrorKind::InvalidArgument, "a pod without metadata.name or metadata.uid"};
  }
  Pod pod;
  pod.namespace_name = string_of(metadata["namespace"]);
  pod.name = string_of(metadata["name"]);
  pod.uid = string_of(metadata["uid"]);
  pod.resource_version = string_of(metadata["resourceVersion"]);
  pod.phase = phase_of(status["phase"].text());
  pod.deleting = !metadata["deletionTimestamp"].is_null();
  pod.mirror = !metadata["annotations"][kMirrorAnnotation].is_null();
  pod.disruption_target = is_our_disruption(status["conditions"]);
  pod.priority = int32_of(spec["priority"], 0);
  pod.labels = string_map(metadata["labels"]);
  pod.annotations = annotations_with(metadata["annotations"], kPodAnnotationPrefixes);
  pod.controller = controller_of(metadata);
  append_containers({spec["initContainers"], status["initContainerStatuses"], true},
                    pod.containers);
  append_containers({spec["containers"], status["containerStatuses"], false}, pod.containers);
  append_containers({spec["ephemeralContainers"], status["ephemeralContainerStatuses"], false},
                    pod.containers);
  pod.tolerations = tolerations_of(spec["tolerations"]);
  pod.ephemeral_storage_request_bytes = pod_storage_request(spec);
  pod.created_at = parse_rfc3339(metadata["creationTimestamp"].text()).value_or(WallTime{});
  return pod;
}

ConditionStatus condition_status(std::string_view text) {
  if (text == "True") {
    return ConditionStatus::True;
  }
  return text == "False" ? ConditionStatus::False : ConditionStatus::Unknown;
}

void read_conditions(JsonView conditions, Node& node) {
  for (std::size_t i = 0; i < std::min(conditions.size(), kItemLimit); ++i) {
    const JsonView condition = conditions.at(i);
    const ConditionStatus status = condition_status(condition["status"].text());
    if (condition["type"].text() == "DiskPressure") {
      node.disk_pressure = status == ConditionStatus::True;
    } else if (condition["type"].text() == kRiskConditionType) {
      node.risk_condition =
          RiskCondition{.status = status,
                        .reason = string_of(condition["reason"]),
                        .message = string_of(condition["message"]),
                        .last_transition_time = string_of(condition["lastTransitionTime"])};
    }
  }
}

Result<Node> to_node(JsonView object) {
  const JsonView metadata = object["metadata"];
  if (metadata["name"].text().empty() || metadata["uid"].text().empty()) {
    return Error{ErrorKind::InvalidArgument, "a node without metadata.name or metadata.uid"};
  }
  Node node;
  node.name = string_of(metadata["name"]);
  node.uid = string_of(metadata["uid"]);
  node.resource_version = string_of(metadata["resourceVersion"]);
  node.labels = string_map(metadata["labels"]);
  node.annotations = annotations_with(metadata["annotations"], kOwnPrefix);
  const JsonView drained = metadata["annotations"][kDrainedKey];
  if (!drained.is_null()) {
    node.drained = parse_drain_records(drained.text());
  }
  const JsonView taints = object["spec"]["taints"];
  for (std::size_t i = 0; i < std::min(taints.size(), kItemLimit); ++i) {
    node.taints.push_back(Taint{.key = string_of(taints.at(i)["key"]),
                                .value = string_of(taints.at(i)["value"]),
                                .effect = string_of(taints.at(i)["effect"])});
  }
  read_conditions(object["status"]["conditions"], node);
  node.operating_system = string_of(object["status"]["nodeInfo"]["operatingSystem"]);
  node.architecture = string_of(object["status"]["nodeInfo"]["architecture"]);
  node.container_runtime = string_of(object["status"]["nodeInfo"]["containerRuntimeVersion"]);
  return node;
}

ApiStatus to_api_status(JsonView object) {
  ApiStatus status;
  status.code = int32_of(object["code"], 0);
  status.reason = string_of(object["reason"]);
  status.message = string_of(object["message"]);
  const JsonView causes = object["details"]["causes"];
  for (std::size_t i = 0; i < std::min(causes.size(), kItemLimit); ++i) {
    const JsonView reason = causes.at(i)["reason"];
    status.causes.push_back(string_of(reason ? reason : causes.at(i)["message"]));
  }
  if (const auto seconds = object["details"]["retryAfterSeconds"].integer()) {
    status.retry_after_seconds = static_cast<int>(std::clamp<std::int64_t>(*seconds, 0, 3600));
  }
  return status;
}

ListMetadata list_metadata(JsonView list) {
  return ListMetadata{.resource_version = string_of(list["metadata"]["resourceVersion"]),
                      .continue_token = string_of(list["metadata"]["continue"])};
}

Result<JsonDocument> parse_object(std::string_view json) {
  JsonDocument document = TRY(parse_kube_object(json));
  if (!document.root().is_object()) {
    return Error{ErrorKind::InvalidArgument,
                 std::string("expected an object, got ") + document.root().type_name()};
  }
  return document;
}

/// The items of a list. What is no list at all (a Status, an HTML page) is refused, since an
/// empty answer would read as "no pods".
Result<JsonView> list_items(JsonView list) {
  const JsonView items = list["items"];
  if (!list["kind"].text().ends_with("List") || (items && !items.is_array())) {
    return Error{ErrorKind::InvalidArgument,
                 "expected a list, got kind \"" + string_of(list["kind"]) + "\""};
  }
  if (items.size() > kPodLimit) {
    return Error{ErrorKind::ResourceExhausted,
                 "a list of " + std::to_string(items.size()) + " items"};
  }
  return items;
}

/// What all watches share; the object itself is left to the caller for the first three types.
template <typename Event>
Result<bool> read_watch_event(JsonView line, Event& event) {
  const std::string_view type = line["type"].text();
  const JsonView object = line["object"];
  event.resource_version = string_of(object["metadata"]["resourceVersion"]);
  if (type == "ERROR") {
    event.type = WatchEventType::Error;
    event.status = to_api_status(object);
    return false;
  }
  if (type == "BOOKMARK") {
    event.type = WatchEventType::Bookmark;
    return false;
  }
  if (type == "ADDED") {
    event.type = WatchEventType::Added;
  } else if (type == "MODIFIED") {
    event.type = WatchEventType::Modified;
  } else if (type == "DELETED") {
    event.type = WatchEventType::Deleted;
  } else {
    return Error{ErrorKind::InvalidArgument,
                 "watch event of type \"" + std::string(type.substr(0, 40)) + "\""};
  }
  return true;
}

FailureAction failure_action(std::string_view text) {
  if (text == "Ignore") {
    return FailureAction::Ignore;
  }
  if (text == "FailJob") {
    return FailureAction::FailJob;
  }
  if (text == "FailIndex") {
    return FailureAction::FailIndex;
  }
  return text == "Count" ? FailureAction::Count : FailureAction::Unknown;
}

std::vector<PodFailureRule> failure_rules(JsonView list) {
  std::vector<PodFailureRule> rules;
  for (std::size_t i = 0; i < std::min(list.size(), kItemLimit); ++i) {
    const JsonView view = list.at(i);
    PodFailureRule rule{.action = failure_action(view["action"].text())};
    const JsonView on_exit_codes = view["onExitCodes"];
    if (on_exit_codes.is_object()) {
      rule.exit_codes_in = on_exit_codes["operator"].text() != "NotIn";
      const JsonView values = on_exit_codes["values"];
      for (std::size_t k = 0; k < std::min(values.size(), kItemLimit); ++k) {
        rule.exit_codes.push_back(int32_of(values.at(k), 0));
      }
    }
    const JsonView conditions = view["onPodConditions"];
    for (std::size_t k = 0; k < std::min(conditions.size(), kItemLimit); ++k) {
      const std::string_view status = conditions.at(k)["status"].text();
      rule.conditions.push_back({.type = string_of(conditions.at(k)["type"]),
                                 .status = status.empty() ? "True" : std::string(status)});
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

/// Whether a condition of this type is True.
bool is_true(JsonView conditions, std::string_view type) {
  for (std::size_t i = 0; i < std::min(conditions.size(), kItemLimit); ++i) {
    if (conditions.at(i)["type"].text() == type) {
      return conditions.at(i)["status"].text() == "True";
    }
  }
  return false;
}

void read_job_spec(JsonView spec, Job& job) {
  job.suspend = spec["suspend"].boolean().value_or(false);
  job.parallelism = int32_of(spec["parallelism"], 1);
  job.backoff_limit = int32_of(spec["backoffLimit"], 6);
  job.active_deadline_seconds = spec["activeDeadlineSeconds"].integer();
  job.managed_by = string_of(spec["managedBy"]);
  job.failure_rules = failure_rules(spec["podFailurePolicy"]["rules"]);
}

void read_job_status(JsonView status, Job& job) {
  job.active = int32_of(status["active"], 0);
  job.ready = int32_of(status["ready"], 0);
  job.succeeded = int32_of(status["succeeded"], 0);
  job.failed = int32_of(status["failed"], 0);
  job.start_time = parse_rfc3339(status["startTime"].text());
  const JsonView conditions = status["conditions"];
  job.complete = is_true(conditions, "Complete") || is_true(conditions, "SuccessCriteriaMet");
  job.failed_for_good = is_true(conditions, "Failed") || is_true(conditions, "FailureTarget");
}

void read_job_records(JsonView annotations, Job& job) {
  job.hold_text = string_of(annotations[kHoldKey]);
  if (!job.hold_text.empty()) {
    job.hold = parse_hold_record(job.hold_text);
  }
  const JsonView drained = annotations[kDrainedKey];
  if (!drained.is_null()) {
    job.drained = parse_drain_records(drained.text());
  }
}

Result<Job> to_job(JsonView object) {
  const JsonView metadata = object["metadata"];
  if (metadata["name"].text().empty() || metadata["uid"].text().empty()) {
    return Error{ErrorKind::InvalidArgument, "a Job without metadata.name or metadata.uid"};
  }
  Job job;
  job.namespace_name = string_of(metadata["namespace"]);
  job.name = string_of(metadata["name"]);
  job.uid = string_of(metadata["uid"]);
  job.resource_version = string_of(metadata["resourceVersion"]);
  job.labels = string_map(metadata["labels"]);
  job.annotations = annotations_with(metadata["annotations"], kPodAnnotationPrefixes);
  job.controller = controller_of(metadata);
  job.deleting = !metadata["deletionTimestamp"].is_null();
  read_job_spec(object["spec"], job);
  read_job_status(object["status"], job);
  read_job_records(metadata["annotations"], job);
  return job;
}

}  // namespace

Result<Pod> parse_pod(std::string_view json) {
  const JsonDocument document = TRY(parse_object(json));
  return to_pod(document.root());
}

Result<PodList> parse_pod_list(std::string_view json) {
  const JsonDocument document = TRY(parse_object(json));
  const JsonView items = TRY(list_items(document.root()));
  PodList list;
  list.metadata = list_metadata(document.root());
  list.pods.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    list.pods.push_back(TRY(to_pod(items.at(i))));
  }
  return list;
}

Result<PodWatchEvent> parse_pod_watch_event(std::string_view line) {
  const JsonDocument document = TRY(parse_object(line));
  PodWatchEvent event;
  if (TRY(read_watch_event(document.root(), event))) {
    event.pod = TRY(to_pod(document.root()["object"]));
  }
  return event;
}

Result<Node> parse_node(std::string_view json) {
  const JsonDocument document = TRY(parse_object(json));
  return to_node(document.root());
}

Result<NodeList> parse_node_list(std::string_view json) {
  const JsonDocument document = TRY(parse_object(json));
  const JsonView items = TRY(list_items(document.root()));
  NodeList list;
  list.metadata = list_metadata(document.root());
  for (std::size_t i = 0; i < items.size(); ++i) {
    list.nodes.push_back(TRY(to_node(items.at(i))));
  }
  return list;
}

Result<NodeWatchEvent> parse_node_watch_event(std::string_view line) {
  const JsonDocument document = TRY(parse_object(line));
  NodeWatchEvent event;
  if (TRY(read_watch_event(document.root(), event))) {
    event.node = TRY(to_node(document.root()["object"]));
  }
  return event;
}

Result<Job> parse_job(std::string_view json) {
  const JsonDocument document = TRY(parse_object(json));
  return to_job(document.root());
}

Result<JobList> parse_job_list(std::string_view json) {
  const JsonDocument document = TRY(parse_object(json));
  const JsonView items = TRY(list_items(document.root()));
  JobList list;
  list.metadata = list_metadata(document.root());
  list.jobs.reserve(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    list.jobs.push_back(TRY(to_job(items.at(i))));
  }
  return list;
}

ApiStatus parse_api_status(std::string_view body) {
  const Result<JsonDocument> document = parse_kube_object(body);
  if (document && document->root()["kind"].text() == "Status") {
    return to_api_status(document->root());
  }
  constexpr std::size_t kExcerpt = 200;
  ApiStatus status;
  status.message = std::string(body.substr(0, kExcerpt));
  return status;
}

}  // namespace imagefs_guard
