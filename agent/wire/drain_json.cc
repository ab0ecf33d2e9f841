#include "agent/wire/drain_json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "agent/wire/json.h"
#include "agent/wire/json_text.h"
#include "agent/wire/kube_json.h"
#include "agent/wire/kube_patch.h"
#include "agent/wire/time_text.h"

namespace imagefs_guard {

namespace {

using Json = nlohmann::json;

constexpr int kRecordVersion = 1;
constexpr std::size_t kRecordBytesLimit = std::size_t{16} << 10;
constexpr std::size_t kRecordsLimit = 64;
constexpr std::size_t kMessageLimit = 1024;

Json operation(const char* op, const std::string& path, const Json& value) {
  return Json{{"op", op}, {"path", path}, {"value", value}};
}

std::string annotation_path(const char* key) {
  return json_pointer({"metadata", "annotations", key});
}

std::string label_path(const char* key) {
  return json_pointer({"metadata", "labels", key});
}

Error not_as_ordered(const std::string& what) {
  return Error{ErrorKind::FailedPrecondition, what + ": left alone"};
}

std::string text_of(JsonView view) {
  return std::string(view.text());
}

/// The version, or 0 where there is none that fits.
int version_of(JsonView record) {
  const std::int64_t version = record["v"].integer().value_or(0);
  return version > 0 && version < std::numeric_limits<int>::max() ? static_cast<int>(version) : 0;
}

/// The Job as it is now, if it is the one that the action means and has not ended.
Result<Job> live_job(std::string_view job_json, const NamedObject& wanted) {
  Job job = TRY(parse_job(job_json));
  if (job.uid != wanted.uid) {
    return not_as_ordered("another Job has this name now");
  }
  if (job.deleting || job.complete || job.failed_for_good) {
    return not_as_ordered("the Job has ended");
  }
  return job;
}

/// The tests that pin the object, and the maps that must be there before a member is added.
Json patch_head(std::string_view job_json, const Job& job) {
  Json patch = Json::array();
  patch.push_back(test_operation("/metadata/uid", job.uid));
  patch.push_back(test_operation("/metadata/resourceVersion", job.resource_version));
  const Result<JsonDocument> document = parse_kube_object(job_json);
  for (const char* map : {"annotations", "labels"}) {
    if (!document || !document->root()["metadata"][map].is_object()) {
      patch.push_back(operation("add", json_pointer({"metadata", map}), Json::object()));
    }
  }
  return patch;
}

Json delete_options(const DeletePreconditions& preconditions) {
  Json pinned = {{"uid", preconditions.uid}};
  if (!preconditions.resource_version.empty()) {
    pinned["resourceVersion"] = preconditions.resource_version;
  }
  return Json{{"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"preconditions", pinned}};
}

}  // namespace

HoldRecord parse_hold_record(std::string_view text) {
  HoldRecord record{.version = 0};
  const Result<JsonDocument> document = parse_json(text, {.bytes = kRecordBytesLimit, .depth = 4});
  if (!document || !document->root().is_object()) {
    return record;
  }
  const JsonView root = document->root();
  const int version = version_of(root);
  const auto since = parse_rfc3339(root["since"].text());
  const auto resume_by = parse_rfc3339(root["resumeBy"].text());
  if (version != kRecordVersion || !since.has_value() || !resume_by.has_value()) {
    record.version = version == kRecordVersion ? 0 : version;
    return record;
  }
  return {.version = version,
          .token = text_of(root["token"]),
          .node = text_of(root["node"]),
          .node_uid = text_of(root["nodeUID"]),
          .pod = text_of(root["pod"]),
          .pod_uid = text_of(root["podUID"]),
          .since = *since,
          .resume_by = *resume_by,
          .image = text_of(root["image"])};
}

std::string hold_record_text(const HoldRecord& record) {
  return compact_text(Json{{"v", record.version},
                           {"token", record.token},
                           {"node", record.node},
                           {"nodeUID", record.node_uid},
                           {"pod", record.pod},
                           {"podUID", record.pod_uid},
                           {"since", format_rfc3339(record.since)},
                           {"resumeBy", format_rfc3339(record.resume_by)},
                           {"image", record.image}});
}

DrainRecords parse_drain_records(std::string_view text) {
  DrainRecords records{.readable = false, .drains = {}};
  const Result<JsonDocument> document = parse_json(text, {.bytes = kRecordBytesLimit, .depth = 8});
  if (!document || version_of(document->root()) != kRecordVersion) {
    return records;
  }
  const JsonView drains = document->root()["drains"];
  if (!drains.is_array() || drains.size() > kRecordsLimit) {
    return records;
  }
  for (std::size_t i = 0; i < drains.size(); ++i) {
    const JsonView drain = drains.at(i);
    const auto digest = parse_digest(drain["digest"].text());
    const auto capacity = drain["capacityBytes"].integer();
    if (!digest.has_value() || !capacity.has_value() || *capacity < 0) {
      return {.readable = false, .drains = {}};
    }
    records.drains.push_back({.digest = *digest,
                              .capacity_bytes = *capacity,
                              .owner_uid = text_of(drain["ownerUID"]),
                              .pod_uid = text_of(drain["podUID"])});
  }
  records.readable = true;
  return records;
}

std::string drain_records_text(const std::vector<DrainRecord>& drains) {
  Json list = Json::array();
  for (const DrainRecord& drain : drains) {
    list.push_back(Json{{"digest", to_string(drain.digest)},
                        {"capacityBytes", drain.capacity_bytes},
                        {"ownerUID", drain.owner_uid},
                        {"podUID", drain.pod_uid}});
  }
  return compact_text(Json{{"v", kRecordVersion}, {"drains", list}});
}

Result<std::string> suspend_patch(std::string_view job_json, const SuspendJob& action) {
  const Job job = TRY(live_job(job_json, action.job));
  if (job.resource_version != action.resource_version) {
    return Error{ErrorKind::Aborted, "the Job has changed since it was seen"};
  }
  if (job.suspend || !job.hold_text.empty()) {
    return not_as_ordered("somebody has suspended the Job");
  }
  Json patch = patch_head(job_json, job);
  patch.push_back(operation("add", annotation_path(kHoldKey), hold_record_text(action.hold)));
  patch.push_back(
      operation("add", annotation_path(kDrainedKey), drain_records_text(action.drains)));
  patch.push_back(operation("add", label_path(kHoldKey), "true"));
  patch.push_back(operation("add", "/spec/suspend", true));
  return compact_text(patch);
}

Result<std::string> resume_patch(std::string_view job_json, const ResumeJob& action) {
  const Job job = TRY(live_job(job_json, action.job));
  if (!job.suspend || job.hold_text != action.hold_text) {
    return not_as_ordered("the Job's hold is not the one that was seen");
  }
  Json patch = Json::array();
  patch.push_back(test_operation("/metadata/uid", job.uid));
  patch.push_back(test_operation(annotation_path(kHoldKey), action.hold_text));
  patch.push_back(test_operation("/spec/suspend", true));
  patch.push_back(operation("replace", "/spec/suspend", false));
  patch.push_back(Json{{"op", "remove"}, {"path", annotation_path(kHoldKey)}});
  patch.push_back(operation("add", annotation_path(kLastHoldKey), action.hold_text));
  if (job.labels.contains(kHoldKey)) {
    patch.push_back(Json{{"op", "remove"}, {"path", label_path(kHoldKey)}});
  }
  return compact_text(patch);
}

Result<std::string> drain_record_patch(std::string_view job_json, const RecordDrain& action) {
  if (!action.job.has_value()) {
    return Error{ErrorKind::Internal, "a drain record without its Job"};
  }
  const Job job = TRY(live_job(job_json, *action.job));
  if (job.resource_version != action.resource_version) {
    return Error{ErrorKind::Aborted, "the Job has changed since it was seen"};
  }
  Json patch = patch_head(job_json, job);
  patch.push_back(
      operation("add", annotation_path(kDrainedKey), drain_records_text(action.drains)));
  return compact_text(patch);
}

std::string node_drain_record_patch(const RecordDrain& action) {
  Json annotations = Json::object();
  annotations[kDrainedKey] = drain_records_text(action.drains);
  Json metadata = Json::object();
  metadata["annotations"] = annotations;
  return compact_text(Json{{"metadata", metadata}});
}

std::string disruption_patch(const MarkDisruption& action, WallTime now) {
  const Json condition = {{"type", "DisruptionTarget"},
                          {"status", "True"},
                          {"reason", kDisruptionReason},
                          {"message", cut_utf8(action.message, kMessageLimit)},
                          {"lastTransitionTime", format_rfc3339(now)}};
  Json status = Json::object();
  status["conditions"] = Json::array({condition});
  return compact_text(Json{{"metadata", {{"uid", action.pod.uid}}}, {"status", status}});
}

std::string delete_pod_body(const DeletePreconditions& preconditions) {
  Json body = delete_options(preconditions);
  body["gracePeriodSeconds"] = 1;
  return compact_text(body);
}

std::string delete_job_body(const DeletePreconditions& preconditions) {
  Json body = delete_options(preconditions);
  body["propagationPolicy"] = "Foreground";
  return compact_text(body);
}

}  // namespace imagefs_guard
