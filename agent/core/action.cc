#include "agent/core/action.h"

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

}  // namespace

std::string action_key(const Action& action) {
  return std::visit(
      Overloaded{
          [](const FetchManifest& a) { return "fetch:" + a.image; },
          [](const HoldPull& a) { return "hold:" + to_string(a.manifest_digest); },
          [](const ReleasePull& a) { return "release:" + to_string(a.manifest_digest); },
          [](const CancelPull& a) { return "cancel:" + to_string(a.manifest_digest); },
          [](const SetTaint&) { return std::string("taint"); },
          [](const SetNodeMetadata&) { return std::string("metadata"); },
          [](const SetCondition&) { return std::string("condition"); },
          [](const EmitEvent& a) { return "event:" + a.regarding.uid + ":" + a.event_reason; },
      },
      action);
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
      },
      action);
}

}  // namespace imagefs_guard
