#pragma once
/// When a watched part still counts as seen: once it was, and for a while after the server has
/// stopped answering. Shared by probes/pods and probes/node.

#include <optional>
#include <string>

#include "agent/core/time.h"
#include "agent/kube/watch.h"

namespace imagefs_guard {

/// Without the API server no pod is bound and no taint is set, so the last answer stays true for
/// the most part; but pods end, and a hold must not rest on them for ever.
constexpr Duration kWatchStaleAfter = std::chrono::minutes(5);

/// Why the part must be absent; nullopt = use the last answer.
[[nodiscard]] inline std::optional<std::string> why_absent(const Watch& watch, MonotonicTime now) {
  if (!watch.synced()) {
    return watch.error().empty() ? "not listed yet" : watch.error();
  }
  const std::optional<MonotonicTime> since = watch.failing_since();
  if (since.has_value() && now - *since > kWatchStaleAfter) {
    const auto minutes = std::chrono::duration_cast<std::chrono::minutes>(now - *since).count();
    return "no answer for " + std::to_string(minutes) + " min: " + watch.error();
  }
  return std::nullopt;
}

}  // namespace imagefs_guard
