// untested: replay_test.cc has its cases.
#include "agent/commands/flight_recorder.h"

#include <utility>

namespace imagefs_guard {

namespace {

/// A sign of life, with the bytes of that moment.
constexpr Duration kQuietInterval = std::chrono::seconds(60);
/// A storm of events makes many ticks a second; what is left out is decided again from the next.
constexpr int kLinesPerMinute = 60;

}  // namespace

FlightRecorder::FlightRecorder(RingFile ring, std::function<void(const Error&)> trouble)
    : ring_(std::move(ring)), trouble_(std::move(trouble)) {}

bool FlightRecorder::is_worth_a_line(const TraceTick& tick) {
  const MonotonicTime now = tick.snapshot.taken_at;
  const std::uint64_t shape = decision_shape(tick.snapshot, tick.decision);
  const bool quiet = written_at_.has_value() && shape == shape_ && tick.decision.actions.empty();
  if (quiet && now - *written_at_ < kQuietInterval) {
    return false;
  }
  if (now - minute_began_at_ >= std::chrono::minutes(1)) {
    minute_began_at_ = now;
    lines_this_minute_ = 0;
  }
  if (++lines_this_minute_ > kLinesPerMinute) {
    return false;
  }
  shape_ = shape;
  written_at_ = now;
  return true;
}

Result<void> FlightRecorder::write(const TraceTick& tick) {
  std::string line = encoder_.encode(tick);
  if (!ring_.is_empty() && !ring_.has_room(line.size())) {
    TRY(ring_.turn());
    encoder_.begin_file();
    line = encoder_.encode(tick);
  }
  return ring_.append(line);
}

void FlightRecorder::note(const TraceTick& tick) {
  if (stopped_ || !is_worth_a_line(tick)) {
    return;
  }
  const auto written = write(tick);
  if (!written) {
    stopped_ = true;
    trouble_(written.error());
  }
}

}  // namespace imagefs_guard
