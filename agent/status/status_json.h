#pragma once
/// What the agent sees and why it decides so, as one JSON object: /status.json, the status page and
/// `imagefs-guard status` all show this. Pure. Never above kStatusBytesMaximum: of what there are
/// too many, the rest is counted ("pullsMore").

#include <cstddef>
#include <string>

#include "agent/status/status_view.h"

namespace imagefs_guard {

constexpr std::size_t kStatusBytesMaximum = 60 << 10;

enum class StatusDetail {
  Now,          // without the hours before
  WithHistory,  // all
};

/// "v": 1; keys sorted, bytes as integers; what is not known is null. Valid UTF-8 whatever the API
/// said.
[[nodiscard]] std::string status_json(const StatusView& view, StatusDetail detail);

}  // namespace imagefs_guard
