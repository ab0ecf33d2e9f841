#pragma once
/// The flight recorder: decisions with what they rested on, as lines of a trace in memory-backed
/// files, for `replay`. Writes when something but a number has changed, else once a minute, and
/// never often. Whatever fails here is said once and stops the recording, nothing else.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "agent/core/decision.h"
#include "agent/io/ring_file.h"
#include "agent/wire/trace.h"

namespace imagefs_guard {

class FlightRecorder {
 public:
  /// `trouble` is told why the recording has stopped.
  FlightRecorder(RingFile ring, std::function<void(const Error&)> trouble);

  /// Called after each decision.
  void note(const TraceTick& tick);

 private:
  [[nodiscard]] bool is_worth_a_line(const TraceTick& tick);
  [[nodiscard]] Result<void> write(const TraceTick& tick);

  RingFile ring_;
  std::function<void(const Error&)> trouble_;
  TraceEncoder encoder_;
  bool stopped_ = false;
  std::uint64_t shape_ = 0;
  std::optional<MonotonicTime> written_at_;
  MonotonicTime minute_began_at_{};
  int lines_this_minute_ = 0;
};

}  // namespace imagefs_guard
