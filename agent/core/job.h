#pragma once
/// A batch/v1 Job as the drain needs it, with the records that the agent keeps on it. Part of the
/// snapshot: fetched on demand, one GET per pod that may have to move, never watched.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/digest.h"
#include "agent/core/result.h"
#include "agent/core/time.h"

namespace imagefs_guard {

struct OwnerReference {
  std::string api_version;
  std::string kind;
  std::string name;
  std::string uid;

  bool operator==(const OwnerReference&) const = default;
};

/// "Suspended by whom, for which pod, until when": written in the same request as the suspend, so
/// that whoever finds the Job later knows who resumes it. Times are whole seconds.
struct HoldRecord {
  int version = 1;    // 0 = can't be read; anything but 1 is somebody newer's
  std::string token;  // a checksum of the other fields: see hold_token()
  std::string node;
  std::string node_uid;
  std::string pod;
  std::string pod_uid;
  WallTime since{};
  WallTime resume_by{};
  std::string image;

  bool operator==(const HoldRecord&) const = default;
};

/// One drain that was begun: this image had to leave a node of this capacity. Never twice.
struct DrainRecord {
  Digest digest;
  std::int64_t capacity_bytes = 0;
  std::string owner_uid;
  std::string pod_uid;

  bool operator==(const DrainRecord&) const = default;
};

/// The annotation imagefs-guard.io/drained of a Job or of a Node.
struct DrainRecords {
  bool readable = true;  // false: edited by hand, or of a newer version
  std::vector<DrainRecord> drains;

  bool operator==(const DrainRecords&) const = default;
};

enum class FailureAction { Ignore, FailJob, FailIndex, Count, Unknown };

struct PodConditionPattern {
  std::string type;
  std::string status = "True";

  bool operator==(const PodConditionPattern&) const = default;
};

/// One rule of a podFailurePolicy.
struct PodFailureRule {
  FailureAction action = FailureAction::Unknown;
  std::optional<bool> exit_codes_in;  // operator In (true) or NotIn; absent: no onExitCodes
  std::vector<std::int32_t> exit_codes;
  std::vector<PodConditionPattern> conditions;

  bool operator==(const PodFailureRule&) const = default;
};

struct Job {
  std::string namespace_name;
  std::string name;
  std::string uid;
  std::string resource_version;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;  // only those of owners and our own
  std::optional<OwnerReference> controller;
  bool suspend = false;
  bool deleting = false;
  std::int32_t parallelism = 1;
  std::int32_t backoff_limit = 6;
  std::optional<std::int64_t> active_deadline_seconds;
  std::string managed_by;
  std::vector<PodFailureRule> failure_rules;
  std::int32_t active = 0;
  std::int32_t ready = 0;
  std::int32_t succeeded = 0;
  std::int32_t failed = 0;
  bool complete = false;         // Complete, or SuccessCriteriaMet
  bool failed_for_good = false;  // Failed, or FailureTarget
  std::optional<WallTime> start_time;
  std::string hold_text;           // annotation imagefs-guard.io/hold, byte for byte
  std::optional<HoldRecord> hold;  // the same, read
  DrainRecords drained;

  bool operator==(const Job&) const = default;
};

/// What the agent last heard of a Job that it asked for.
struct JobState {
  std::string namespace_name;
  std::string name;
  std::optional<Job> job;  // absent: there is no such Job
  MonotonicTime observed_at{};
  bool doubtful = false;  // a write has failed or not been answered since: to be read again

  bool operator==(const JobState&) const = default;
};

/// The answer to "is this pod gone?", read from the API server's store, not from its cache.
struct PodCheck {
  std::string namespace_name;
  std::string name;
  std::string uid;
  bool gone = false;  // 404, or another pod of that name: a uid never comes back
  MonotonicTime observed_at{};

  bool operator==(const PodCheck&) const = default;
};

}  // namespace imagefs_guard
