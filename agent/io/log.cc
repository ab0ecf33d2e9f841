// untested: log_line_test.cc has the text; this writes it.
#include "agent/io/log.h"

#include <time.h>
#include <unistd.h>

#include <chrono>
#include <map>

#include "agent/core/time.h"
#include "agent/io/log_line.h"
#include "agent/io/loop.h"

namespace imagefs_guard {

namespace {

// A full node's 110 pods may all be judged at once, and again when their sizes are known.
constexpr std::int64_t kRecordsPerWindow = 250;
constexpr std::chrono::seconds kWindow{10};
// Events are literals in the code; this only bounds what a mistake could cost.
constexpr std::size_t kEventLimit = 256;

struct EventBudget {
  Duration window_start{};
  std::int64_t written = 0;
  std::int64_t dropped = 0;
};

/// The process has one stderr, so it has one log.
struct LogState {
  LogFormat format = LogFormat::Json;
  LogLevel level = LogLevel::Info;
  std::string node;
  std::map<std::string, EventBudget, std::less<>> budgets;
};

LogState& state() {
  static LogState log_state;
  return log_state;
}

EventBudget& budget_of(std::string_view event) {
  auto& budgets = state().budgets;
  auto found = budgets.find(event);
  if (found == budgets.end()) {
    if (budgets.size() >= kEventLimit) {
      budgets.clear();
    }
    found = budgets.emplace(event, EventBudget{}).first;
  }
  return found->second;
}

}  // namespace

void configure_log(LogFormat format, LogLevel level, std::string node) {
  state().format = format;
  state().level = level;
  state().node = std::move(node);
}

void log(const LogRecord& record) {
  if (record.level < state().level) {
    return;
  }
  EventBudget& budget = budget_of(record.event);
  const Duration now = read_clock(CLOCK_MONOTONIC);
  if (budget.written == 0 || now - budget.window_start >= kWindow) {
    budget.window_start = now;
    budget.written = 0;
  }
  if (budget.written >= kRecordsPerWindow && record.level != LogLevel::Error) {
    ++budget.dropped;
    return;
  }
  ++budget.written;
  const std::string line = format_log_line(record,
                                           {.format = state().format,
                                            .node = state().node,
                                            .time = WallTime(read_clock(CLOCK_REALTIME)),
                                            .dropped = budget.dropped});
  budget.dropped = 0;
  // One write per line, so that lines never mix. Who reads stderr may be gone: nothing to do then.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

std::optional<LogLevel> parse_log_level(std::string_view text) {
  if (text == "debug") {
    return LogLevel::Debug;
  }
  if (text == "info") {
    return LogLevel::Info;
  }
  if (text == "warn") {
    return LogLevel::Warn;
  }
  if (text == "error") {
    return LogLevel::Error;
  }
  return std::nullopt;
}

}  // namespace imagefs_guard
