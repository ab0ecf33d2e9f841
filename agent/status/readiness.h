#pragma once
/// Whether the agent lives, and whether it can do its work on this node: /livez and /readyz. Pure.

#include <string>
#include <vector>

#include "agent/status/status_view.h"

namespace imagefs_guard {

/// Decisions go on. Depends on nobody else.
[[nodiscard]] bool is_alive(const StatusView& view);

struct ReadyPart {
  std::string name;
  bool ok = false;
  bool required = false;  // without it the agent is not ready
  std::string reason;     // why not; empty where ok

  bool operator==(const ReadyPart&) const = default;
};

[[nodiscard]] std::vector<ReadyPart> readiness_parts(const StatusView& view);

[[nodiscard]] bool is_ready(const std::vector<ReadyPart>& parts);

}  // namespace imagefs_guard
