#pragma once
/// Request bodies for what the agent writes to the Kubernetes API, as JSON text: patches of the
/// own node, Events. Pure; called by the runners in actions/, which do the I/O.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/action.h"
#include "agent/core/result.h"
#include "agent/core/time.h"

namespace imagefs_guard {

/// A JSON patch that gives the node exactly the wanted taint under its key, or none, and leaves
/// every other taint as it stands, fields that we don't know included. nullopt: it is so already.
/// `node_json` is a fresh GET. Node and list are pinned by `test`: if somebody writes in between,
/// the server answers 422 and nothing has happened.
[[nodiscard]] Result<std::optional<std::string>> taint_patch(std::string_view node_json,
                                                             const SetTaint& wanted);

/// A merge patch of labels and annotations; those not named stay.
[[nodiscard]] std::string metadata_patch(const SetNodeMetadata& wanted);

/// A strategic-merge patch for nodes/status: our condition alone. lastTransitionTime is sent only
/// on a transition, else the server keeps its own.
[[nodiscard]] std::string condition_patch(const SetCondition& wanted, WallTime now);

constexpr const char* kReportingController = "imagefs-guard.io/agent";

/// What an Event carries beside its content.
struct EventOrigin {
  std::string name;                // metadata.name, unique in its namespace
  std::string reporting_instance;  // this agent: node or pod name
  WallTime time{};
  std::string reporting_controller = kReportingController;
};

/// An events.k8s.io/v1 Event, its texts cut to what the API server takes.
[[nodiscard]] std::string event_body(const EmitEvent& event, const EventOrigin& origin);

/// Where Events about this object go: its namespace, or "default" for cluster-scoped ones.
[[nodiscard]] std::string event_namespace(const ObjectReference& regarding);

/// A merge patch: the same Event has happened again.
[[nodiscard]] std::string event_series_patch(std::int64_t count, WallTime now);

/// "/metadata/annotations/imagefs-guard.io~1hold": joins and escapes (`~` → `~0`, `/` → `~1`).
[[nodiscard]] std::string json_pointer(const std::vector<std::string>& path);

/// At most `limit` bytes, cut between characters; what is no UTF-8 becomes `?`.
[[nodiscard]] std::string cut_utf8(std::string_view text, std::size_t limit);

}  // namespace imagefs_guard
