#pragma once
/// Memory and time of this process, for /metrics. Called by main.cc for each scrape.

#include "agent/status/status_view.h"

namespace imagefs_guard {

/// From /proc/self and getrusage; 0 where the kernel does not say. `started_at` is the caller's.
[[nodiscard]] ProcessView process_usage(WallTime started_at);

}  // namespace imagefs_guard
