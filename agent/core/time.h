#pragma once
/// Time as core sees it: tags without now(). The shell stamps a snapshot once, just before
/// deciding; core can only compare and add. Monotonic for every decision (a wall clock that is
/// set back must not shorten or lengthen a wait), wall time only for timestamps that are published.

#include <chrono>
#include <cstdint>

namespace imagefs_guard {

using Duration = std::chrono::microseconds;

/// CLOCK_MONOTONIC, as a tag: it has no now().
struct MonotonicClock {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<MonotonicClock>;
  static constexpr bool is_steady = true;
};

/// CLOCK_REALTIME, as a tag: it has no now().
struct WallClock {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<WallClock>;
  static constexpr bool is_steady = false;
};

using MonotonicTime = MonotonicClock::time_point;
using WallTime = WallClock::time_point;

}  // namespace imagefs_guard
