#pragma once
/// What the drain writes to Jobs and pods and reads back, as JSON text: the hold and drain records
/// (annotations), JSON patches with their tests, delete options. Pure; called by kube_json and by
/// the runners in actions/, which do the I/O.

#include <string>
#include <string_view>

#include "agent/core/action.h"
#include "agent/core/job.h"
#include "agent/core/result.h"
#include "agent/core/time.h"

namespace imagefs_guard {

constexpr const char* kHoldKey = "imagefs-guard.io/hold";  // annotation, and label "true"
constexpr const char* kLastHoldKey = "imagefs-guard.io/last-hold";
constexpr const char* kDrainedKey = "imagefs-guard.io/drained";
/// Reason of the condition DisruptionTarget that the agent sets.
constexpr const char* kDisruptionReason = "ImagePullExceedsDisk";

/// Never fails: what can't be read has `version` 0, what is of another version has only that.
[[nodiscard]] HoldRecord parse_hold_record(std::string_view text);
[[nodiscard]] std::string hold_record_text(const HoldRecord& record);

/// Never fails: what can't be read, or is of another version, is not `readable`.
[[nodiscard]] DrainRecords parse_drain_records(std::string_view text);
[[nodiscard]] std::string drain_records_text(const std::vector<DrainRecord>& drains);

/// The bodies below are made from a fresh GET of the object (`job_json`). FailedPrecondition, in
/// words: the object is not what the action was ordered for, nothing must be written.

/// Hold record, drain record, label and suspend in one JSON patch, pinned to uid and version.
[[nodiscard]] Result<std::string> suspend_patch(std::string_view job_json,
                                                const SuspendJob& action);

/// Ends the hold: only if it is byte for byte the one that was seen.
[[nodiscard]] Result<std::string> resume_patch(std::string_view job_json, const ResumeJob& action);

/// The drain record alone.
[[nodiscard]] Result<std::string> drain_record_patch(std::string_view job_json,
                                                     const RecordDrain& action);

/// A merge patch: the drain record on our own Node.
[[nodiscard]] std::string node_drain_record_patch(const RecordDrain& action);

/// A strategic-merge patch of pods/status; another uid is a 409.
[[nodiscard]] std::string disruption_patch(const MarkDisruption& action, WallTime now);

struct DeletePreconditions {
  std::string uid;
  std::string resource_version;
};

/// Grace of 1 s: the least that is no force.
[[nodiscard]] std::string delete_pod_body(const DeletePreconditions& preconditions);

/// In the foreground: the Job goes after its pods.
[[nodiscard]] std::string delete_job_body(const DeletePreconditions& preconditions);

}  // namespace imagefs_guard
