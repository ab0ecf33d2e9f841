#pragma once
/// Paths to pages: /livez, /healthz, /readyz, /metrics, /status.json and the status page at /.
/// Pure; called by main.cc for each request of the HTTP server.

#include "agent/io/http_server.h"
#include "agent/status/status_view.h"

namespace imagefs_guard {

[[nodiscard]] PageReply answer_page(const PageRequest& request, const StatusView& view);

}  // namespace imagefs_guard
