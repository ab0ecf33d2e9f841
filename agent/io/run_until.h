#pragma once
/// For tests only: turns the loop until something has happened. EventLoop::run() can run but once,
/// and a test has many steps.

#include <systemd/sd-event.h>

#include <functional>

#include "agent/core/time.h"
#include "agent/core/verify.h"
#include "agent/io/loop.h"

namespace imagefs_guard {

/// False when `limit` has passed first.
inline bool run_until(EventLoop& loop,
                      const std::function<bool()>& condition,
                      Duration limit = std::chrono::seconds(20)) {
  const MonotonicTime end = loop.now() + limit;
  while (!condition()) {
    const Duration left = end - loop.now();
    if (left <= Duration{0}) {
      return false;
    }
    VERIFY(sd_event_run(loop.raw(), static_cast<std::uint64_t>(left.count())) >= 0);
  }
  return true;
}

/// Lets the loop do what it has to do for that long.
inline void run_for(EventLoop& loop, Duration time) {
  run_until(
      loop, [] { return false; }, time);
}

}  // namespace imagefs_guard
