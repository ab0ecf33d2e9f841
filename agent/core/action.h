#pragma once
/// What decide() can order. Each action is idempotent and bounded, and carries its reason in
/// words. One file per kind in agent/actions/ carries it out; a new kind must be handled in
/// action_key(), describe() and the runner to compile.

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/core/digest.h"
#include "agent/core/job.h"
#include "agent/core/node_snapshot.h"

namespace imagefs_guard {

/// Resolve an image name and fetch manifest and config.
struct FetchManifest {
  std::string image;
  std::string reason;

  bool operator==(const FetchManifest&) const = default;
};

/// Something to hold: an ingest ref and the digest that it is expected to have.
struct HoldRef {
  std::string ref;
  Digest expected;

  bool operator==(const HoldRef&) const = default;
};

/// Keep this image's pull at 0 layer bytes. Named in every decision for as long as it shall
/// live: the runner closes what the latest decision does not name.
struct HoldPull {
  Digest manifest_digest;
  std::string image;
  HoldRef config;
  /// Held instead when the config blob is here already: every missing layer.
  std::vector<HoldRef> layers;
  std::string reason;

  bool operator==(const HoldPull&) const = default;
};

/// Let a held pull go on.
struct ReleasePull {
  Digest manifest_digest;
  std::string image;
  std::string reason;

  bool operator==(const ReleasePull&) const = default;
};

/// End a pull by deleting its leases; a held one fails within 2 s at 0 bytes.
struct CancelPull {
  Digest manifest_digest;
  std::string image;
  std::vector<std::string> lease_ids;
  std::string reason;

  bool operator==(const CancelPull&) const = default;
};

/// Remove an unused image, all its names, so that its layers go; it can be pulled again.
struct ReclaimImage {
  Digest image_id;
  std::string image;  // a name for people
  std::int64_t expected_bytes = 0;
  std::string reason;

  bool operator==(const ReclaimImage&) const = default;
};

enum class TaintEffect { None, PreferNoSchedule, NoSchedule };

/// Give the node exactly this taint of ours (or none); other taints stay as they are.
struct SetTaint {
  std::string key;
  std::string value;
  TaintEffect effect = TaintEffect::None;
  std::string reason;

  bool operator==(const SetTaint&) const = default;
};

/// Labels and annotations under imagefs-guard.io/; nullopt removes one.
struct SetNodeMetadata {
  std::map<std::string, std::optional<std::string>> labels;
  std::map<std::string, std::optional<std::string>> annotations;
  std::string reason;

  bool operator==(const SetNodeMetadata&) const = default;
};

/// The node condition ImageFilesystemRisk.
struct SetCondition {
  ConditionStatus status = ConditionStatus::Unknown;
  std::string condition_reason;  // UpperCamelCase, stable
  std::string message;
  bool transition = false;  // the status changed: lastTransitionTime is now
  std::string reason;

  bool operator==(const SetCondition&) const = default;
};

/// What an Event is about.
struct ObjectReference {
  std::string api_version;
  std::string kind;
  std::string namespace_name;
  std::string name;
  std::string uid;

  bool operator==(const ObjectReference&) const = default;
};

/// An Event on a pod, a Job or the node. `note` is at most 1024 bytes.
struct EmitEvent {
  ObjectReference regarding;
  bool warning = false;
  std::string event_reason;  // UpperCamelCase, stable
  std::string event_action;
  std::string note;

  bool operator==(const EmitEvent&) const = default;
};

/// Ask for the Job that owns a pod; the answer is in NodeSnapshot::jobs.
struct FetchJob {
  std::string namespace_name;
  std::string name;
  std::string reason;

  bool operator==(const FetchJob&) const = default;
};

/// A pod or a Job, meant as this very object: whoever has its name later is not it.
struct NamedObject {
  std::string namespace_name;
  std::string name;
  std::string uid;

  bool operator==(const NamedObject&) const = default;
};

/// Suspend a Job, with the record of who resumes it and the drain record in the same write. The
/// pod is read again before; the Job must be as it was seen (resource version).
struct SuspendJob {
  NamedObject job;
  NamedObject pod;
  std::string resource_version;
  HoldRecord hold;
  std::vector<DrainRecord> drains;  // all of them, the new one last
  std::string reason;

  bool operator==(const SuspendJob&) const = default;
};

/// Let a Job go on that we have suspended, if it is still exactly so and its pod is gone.
struct ResumeJob {
  NamedObject job;
  NamedObject pod;
  std::string hold_text;  // the annotation that it must still have
  std::string reason;

  bool operator==(const ResumeJob&) const = default;
};

/// Note on a Job (or, without one, on our own Node) that a drain begins: never twice.
struct RecordDrain {
  std::optional<NamedObject> job;
  std::string resource_version;     // of the Job
  std::vector<DrainRecord> drains;  // all of them, the new one last
  std::string reason;

  bool operator==(const RecordDrain&) const = default;
};

/// Give a pod the condition DisruptionTarget, so that its Job does not count it as failed.
struct MarkDisruption {
  NamedObject pod;
  std::string message;
  std::string reason;

  bool operator==(const MarkDisruption&) const = default;
};

/// Delete a pod that has never started; read again just before.
struct DeletePod {
  NamedObject pod;
  bool leaving = false;  // being deleted already: only its grace period becomes shorter
  bool marked = false;   // only with the condition DisruptionTarget
  std::string reason;

  bool operator==(const DeletePod&) const = default;
};

/// Ask the store whether the pod is gone; the answer is in NodeSnapshot::pod_checks.
struct ConfirmPodGone {
  NamedObject pod;
  std::string reason;

  bool operator==(const ConfirmPodGone&) const = default;
};

/// Delete a Job in the foreground: only for runs that are lost already, and only by opt-in.
struct DeleteJob {
  NamedObject job;
  std::string resource_version;
  std::string reason;

  bool operator==(const DeleteJob&) const = default;
};

using Action = std::variant<FetchManifest,
                            HoldPull,
                            ReleasePull,
                            CancelPull,
                            ReclaimImage,
                            SetTaint,
                            SetNodeMetadata,
                            SetCondition,
                            EmitEvent,
                            FetchJob,
                            SuspendJob,
                            ResumeJob,
                            RecordDrain,
                            MarkDisruption,
                            DeletePod,
                            ConfirmPodGone,
                            DeleteJob>;

/// Names the action so that it is not ordered twice while it runs and its outcome finds its
/// memory: "hold:sha256:…", "taint", "event:<uid>:PullHeld".
[[nodiscard]] std::string action_key(const Action& action);

/// Log event of a step of a drain, "job_suspended"; null for every other action.
[[nodiscard]] const char* drain_event(const Action& action);

/// A step of a drain that writes to a Job, a pod or our Node's drain record.
[[nodiscard]] bool is_drain_write(const Action& action);

/// One sentence: what is done and why. Log, Event and test print the same text.
[[nodiscard]] std::string describe(const Action& action);

}  // namespace imagefs_guard
