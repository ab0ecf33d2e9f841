#pragma once
/// The agent's one event loop (sd_event): timers, signals, deferred calls, and the clock.
/// Single-threaded, run to completion. Made by main.cc (and by tests), passed to whatever waits.
/// Every source has a description, an explicit accuracy and exit-on-failure, since sd_event
/// disables a failing source silently. Callbacks must not throw.

#include <functional>
#include <memory>

#include "agent/core/result.h"
#include "agent/core/time.h"

struct sd_event;

namespace imagefs_guard {

/// A one-shot timer that can be armed again. Destroying it disarms it.
class Timer {
 public:
  virtual ~Timer() = default;
  /// Fires once, `delay` from now; replaces an earlier arming.
  virtual void arm(Duration delay) = 0;
  virtual void disarm() = 0;
};

/// Since the clock's epoch: CLOCK_MONOTONIC or CLOCK_REALTIME. For what has no loop at hand.
[[nodiscard]] Duration read_clock(clockid_t clock);

class EventLoop {
 public:
  static Result<std::unique_ptr<EventLoop>> create();
  virtual ~EventLoop() = default;

  [[nodiscard]] virtual MonotonicTime now() const = 0;
  [[nodiscard]] virtual WallTime wall_now() const = 0;

  /// Not armed yet. `description` must live as long as the loop (a literal).
  [[nodiscard]] virtual std::unique_ptr<Timer> make_timer(const char* description,
                                                          std::function<void()> callback) = 0;
  /// Calls back from the loop, soon, outside the caller's stack.
  virtual void defer(std::function<void()> callback) = 0;
  /// Blocks the signal for the process and calls back from the loop.
  virtual void on_signal(int signal_number, std::function<void()> callback) = 0;

  /// Runs until exit(); returns exit's code.
  virtual int run() = 0;
  virtual void exit(int code) = 0;

  /// For glue (curl, libmicrohttpd) that needs its own sources.
  [[nodiscard]] virtual sd_event* raw() = 0;
};

}  // namespace imagefs_guard
