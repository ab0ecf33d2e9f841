// untested: text; decide_test.cc, drain_test.cc and tests/sim read it.
#include "agent/core/action.h"

#include "agent/core/words.h"

namespace imagefs_guard {

namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

const char* effect_name(TaintEffect effect) {
  switch (effect) {
    case TaintEffect::None:
      return "none";
    case TaintEffect::PreferNoSchedule:
      return "PreferNoSchedule";
    case TaintEffect::NoSchedule:
      return "NoSchedule";
  }
  return "none";
}

const char* status_name(ConditionStatus status) {
  switch (status) {
    case ConditionStatus::True:
      return "True";
    case ConditionStatus::False:
      return "False";
    case ConditionStatus::Unknown:
      return "Unknown";
  }
  return "Unknown";
}

std::string full_name(const NamedObject& object) {
  return object.namespace_name + "/" + object.name;
}

}  // namespace

std::string action_key(const Action& action) {
  return std::visit(
      Overloaded{
          [](const FetchManifest& a) { return "fetch:" + a.image; },
          [](const HoldPull& a) { return "hold:" + to_string(a.manifest_digest); },
          [](const ReleasePull& a) { return "release:" + to_string(a.manifest_digest); },
          [](const CancelPull& a) { return "cancel:" + to_string(a.manifest_digest); },
          [](const ReclaimImage& a) { return "reclaim:" + to_string(a.image_id); },
          [](const SetTaint&) { return std::string("taint"); },
          [](const SetNodeMetadata&) { return std::string("metadata"); },
          [](const SetCondition&) { return std::string("condition"); },
          [](const EmitEvent& a) { return "event:" + a.regarding.uid + ":" + a.event_reason; },
          [](const FetchJob& a) { return "fetch_job:" + a.namespace_name + "/" + a.name; },
          [](const SuspendJob& a) { return "suspend:" + a.job.uid; },
          [](const ResumeJob& a) { return "resume:" + a.job.uid; },
          [](const RecordDrain& a) { return "record:" + (a.job ? a.job->uid : "node"); },
          [](const MarkDisruption& a) { return "mark:" + a.pod.uid; },
          [](const DeletePod& a) { return "delete_pod:" + a.pod.uid; },
          [](const ConfirmPodGone& a) { return "confirm:" + a.pod.uid; },
          [](const DeleteJob& a) { return "delete_job:" + a.job.uid; },
      },
      action);
}

const char* drain_event(const Action& action) {
  return std::visit(Overloaded{
                        [](const FetchManifest&) -> const char* { return nullptr; },
                        [](const HoldPull&) -> const char* { return nullptr; },
                        [](const ReleasePull&) -> const char* { return nullptr; },
                        [](const CancelPull&) -> const char* { return nullptr; },
                        [](const ReclaimImage&) -> const char* { return nullptr; },
                        [](const SetTaint&) -> const char* { return nullptr; },
                        [](const SetNodeMetadata&) -> const char* { return nullptr; },
                        [](const SetCondition&) -> const char* { return nullptr; },
                        [](const EmitEvent&) -> const char* { return nullptr; },
                        [](const FetchJob&) { return "job_asked"; },
                        [](const SuspendJob&) { return "job_suspended"; },
                        [](const ResumeJob&) { return "job_resumed"; },
                        [](const RecordDrain&) { return "drain_recorded"; },
                        [](const MarkDisruption&) { return "pod_marked"; },
                        [](const DeletePod&) { return "pod_deleted"; },
                        [](const ConfirmPodGone&) { return "pod_gone_asked"; },
                        [](const DeleteJob&) { return "job_deleted"; },
                    },
                    action);
}

bool is_drain_write(const Action& action) {
  return drain_event(action) != nullptr && !std::holds_alternative<FetchJob>(action) &&
         !std::holds_alternative<ConfirmPodGone>(action);
}

std::string describe(const Action& action) {
  return std::visit(
      Overloaded{
          [](const FetchManifest& a) {
            return "fetch the manifest of " + a.image + ": " + a.reason;
          },
          [](const HoldPull& a) { return "hold the pull of " + a.image + ": " + a.reason; },
          [](const ReleasePull& a) { return "release the pull of " + a.image + ": " + a.reason; },
          [](const CancelPull& a) {
            return "cancel the pull of " + a.image + " (" + std::to_string(a.lease_ids.size()) +
                   (a.lease_ids.size() == 1 ? " lease): " : " leases): ") + a.reason;
          },
          [](const ReclaimImage& a) {
            return "remove the unused image " + a.image + ", some " + gib_text(a.expected_bytes) +
                   " GiB: " + a.reason;
          },
          [](const SetTaint& a) {
            return a.effect == TaintEffect::None
                       ? "remove the taint " + a.key + ": " + a.reason
                       : "set the taint " + a.key + ":" + effect_name(a.effect) + ": " + a.reason;
          },
          [](const SetNodeMetadata& a) { return "label and annotate the node: " + a.reason; },
          [](const SetCondition& a) {
            return std::string("set the condition ImageFilesystemRisk=") + status_name(a.status) +
                   ": " + a.reason;
          },
          [](const EmitEvent& a) {
            return "tell " + a.regarding.kind + " " + a.regarding.namespace_name + "/" +
                   a.regarding.name + " " + a.event_reason + ": " + a.note;
          },
          [](const FetchJob& a) {
            return "read the Job " + a.namespace_name + "/" + a.name + ": " + a.reason;
          },
          [](const SuspendJob& a) {
            return "suspend the Job " + full_name(a.job) + ": " + a.reason;
          },
          [](const ResumeJob& a) { return "resume the Job " + full_name(a.job) + ": " + a.reason; },
          [](const RecordDrain& a) {
            return "record the drain on " +
                   (a.job ? "the Job " + full_name(*a.job) : std::string("this node")) + ": " +
                   a.reason;
          },
          [](const MarkDisruption& a) {
            return "mark the pod " + full_name(a.pod) + " as disrupted: " + a.reason;
          },
          [](const DeletePod& a) { return "delete the pod " + full_name(a.pod) + ": " + a.reason; },
          [](const ConfirmPodGone& a) {
            return "ask whether the pod " + full_name(a.pod) + " is gone: " + a.reason;
          },
          [](const DeleteJob& a) { return "delete the Job " + full_name(a.job) + ": " + a.reason; },
      },
      action);
}

}  // namespace imagefs_guard
