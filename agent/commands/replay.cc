#include "agent/commands/replay.h"

#include <vector>

#include "agent/core/decide.h"
#include "agent/wire/time_text.h"
#include "agent/wire/trace.h"

namespace imagefs_guard {

namespace {

constexpr std::size_t kDifferencesShown = 40;
/// Of all: enough to see what it is about.
constexpr std::size_t kTextBytesMaximum = std::size_t{1} << 20;

std::string plain(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      c = '?';
    }
  }
  return text;
}

/// Cuts the next line off; an error where its end is missing.
Result<std::string_view> next_line(std::string_view& trace, std::size_t number) {
  const std::size_t end = trace.find('\n');
  if (end == std::string_view::npos) {
    return Error{ErrorKind::InvalidArgument,
                 "line " + std::to_string(number) + ": it is cut off, its end is missing"};
  }
  const std::string_view line = trace.substr(0, end);
  trace.remove_prefix(end + 1);
  return line;
}

/// Calls back with each line and what it says, in their order.
template <typename Visit>
Result<void> read_trace(std::string_view trace, Visit visit) {
  if (trace.empty()) {
    return Error{ErrorKind::InvalidArgument, "the trace is empty"};
  }
  TraceDecoder decoder;
  for (std::size_t number = 1; !trace.empty(); ++number) {
    const std::string_view line = TRY(next_line(trace, number));
    const auto decoded = decoder.decode(line);
    if (!decoded) {
      return with_context(decoded.error(), "line " + std::to_string(number));
    }
    visit(line, **decoded);
  }
  return {};
}

void add_differences(const TraceLine& recorded, const std::string& decided, std::string& text) {
  text += "tick " + std::to_string(recorded.number) + " (" +
          format_rfc3339(recorded.snapshot.wall_time) + "):\n";
  for (const std::string& difference :
       decision_differences(recorded.decision, decided, kDifferencesShown)) {
    text += "  " + plain(difference) + "\n";
  }
}

}  // namespace

Result<ReplayReport> replay_trace(std::string_view trace, const std::optional<Policy>& policy) {
  ReplayReport report;
  TRY(read_trace(trace, [&](std::string_view, const TraceLine& recorded) {
    const std::string decided = encode_decision(
        decide(recorded.snapshot, recorded.memory, policy.has_value() ? *policy : recorded.policy));
    ++report.decisions;
    if (decided == recorded.decision) {
      return;
    }
    ++report.differing;
    if (report.text.size() < kTextBytesMaximum) {
      add_differences(recorded, decided, report.text);
    }
  }));
  report.text +=
      std::to_string(report.decisions) + (report.decisions == 1 ? " decision, " : " decisions, ") +
      (report.differing == 0 ? "all the same" : std::to_string(report.differing) + " differ") +
      "\n";
  return report;
}

Result<std::string> renew_trace(std::string_view trace) {
  std::string renewed;
  TRY(read_trace(trace, [&](std::string_view line, const TraceLine& recorded) {
    // The decision is the last member: its text and a brace end the line.
    renewed += line.substr(0, line.size() - 1 - recorded.decision.size());
    renewed += encode_decision(decide(recorded.snapshot, recorded.memory, recorded.policy)) + "}\n";
  }));
  return renewed;
}

}  // namespace imagefs_guard
