#pragma once
/// What has happened since the agent's start, for /metrics: counted by agent.cc as it happens,
/// decides nothing.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "agent/core/action.h"
#include "agent/core/decision.h"
#include "agent/wire/metrics_text.h"

namespace imagefs_guard {

/// Owner kind, method and result: "Prefect flow run", "S", "ok".
struct DrainLabels {
  std::string owner_kind;
  std::string method;
  std::string result;

  auto operator<=>(const DrainLabels&) const = default;
};

class AgentCounters {
 public:
  void count_tick(Duration decide_time);

  void count_hold_begun(Duration bind_to_hold);
  void count_hold_ended(Duration held);

  /// `reports` are those of the decision that ordered the action, to tell a pod's owner.
  /// `result`: "ok", "skipped" (observe mode), or the kind of its error.
  void count_outcome(const Action& action,
                     const std::vector<DrainReport>& reports,
                     const std::string& result);

  [[nodiscard]] std::uint64_t ticks() const { return ticks_; }

  [[nodiscard]] const DurationHistogram& decide_times() const { return decide_times_; }

  [[nodiscard]] const DurationHistogram& hold_times() const { return hold_times_; }

  [[nodiscard]] const DurationHistogram& bind_to_hold_times() const { return bind_to_hold_; }

  /// By result.
  [[nodiscard]] const std::map<std::string, std::uint64_t>& cancels() const { return cancels_; }

  [[nodiscard]] const std::map<DrainLabels, std::uint64_t>& drains() const { return drains_; }

 private:
  std::uint64_t ticks_ = 0;
  // Around the targets of 1 ms for a decision and 30 ms from bind to hold.
  DurationHistogram decide_times_{{std::chrono::microseconds(100),
                                   std::chrono::microseconds(250),
                                   std::chrono::microseconds(500),
                                   std::chrono::milliseconds(1),
                                   std::chrono::microseconds(2500),
                                   std::chrono::milliseconds(10),
                                   std::chrono::milliseconds(100)}};
  DurationHistogram hold_times_{{std::chrono::milliseconds(100),
                                 std::chrono::seconds(1),
                                 std::chrono::seconds(10),
                                 std::chrono::minutes(1),
                                 std::chrono::minutes(5),
                                 std::chrono::minutes(15),
                                 std::chrono::hours(1)}};
  DurationHistogram bind_to_hold_{{std::chrono::milliseconds(10),
                                   std::chrono::milliseconds(30),
                                   std::chrono::milliseconds(100),
                                   std::chrono::milliseconds(300),
                                   std::chrono::seconds(1),
                                   std::chrono::seconds(10)}};
  std::map<std::string, std::uint64_t> cancels_;
  std::map<DrainLabels, std::uint64_t> drains_;
};

}  // namespace imagefs_guard
