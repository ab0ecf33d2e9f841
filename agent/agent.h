#pragma once
/// One tick: probe → decide → record → act. Made by main.cc, which hands it everything concrete.
/// A timer drives it, events (a pod is bound, a manifest has arrived, a hold is acknowledged) only
/// make the next tick come sooner. Should ticks stop, every hold is released.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/actions/action_runner.h"
#include "agent/core/decision.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"
#include "agent/io/loop.h"
#include "agent/status/counters.h"
#include "agent/status/status_view.h"
#include "agent/wire/trace.h"
#include "probes/probe.h"

namespace imagefs_guard {

/// What the agent needs of the world; all of it outlives the agent.
struct AgentParts {
  EventLoop* loop = nullptr;
  Policy policy;
  std::vector<Probe*> probes;
  /// The holds that shall live from now on; every other one is closed.
  std::function<void(std::vector<HoldPull>)> set_holds;
  /// True while pulls are about: the runtime is looked at more often.
  std::function<void(bool)> set_watchful;
  /// A pod's image name as the runtime spells it.
  std::function<std::string(const std::string&)> canonical_image;
  /// Starts an action other than HoldPull and ReleasePull; `done` exactly once.
  std::function<void(const Action&, ActionDone)> run_action;
  /// The flight recorder; may be empty.
  std::function<void(const TraceTick&)> record;
};

class Agent {
 public:
  explicit Agent(AgentParts parts);
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Starts the probes and the ticks. The first decision waits for every probe's first answer,
  /// but no longer than two seconds.
  void start();

  /// Ends the ticks, cancels the held pulls so that they come back to the next agent, then calls
  /// back. Takes at most a few seconds.
  void shut_down(std::function<void()> done);

  [[nodiscard]] const Decision& decision() const { return decision_; }

  [[nodiscard]] const NodeSnapshot& snapshot() const { return snapshot_; }

  /// In force from the next tick on, which comes at once.
  void set_policy(Policy policy);

  // For the pages of agent/status.
  [[nodiscard]] const AgentCounters& counters() const { return counters_; }

  [[nodiscard]] bool has_decided() const { return started_ && tick_count_ > 0; }

  /// Since the last decision, or since start().
  [[nodiscard]] Duration decision_age() const;
  /// A decision older than this means that ticks have stopped.
  [[nodiscard]] Duration decision_age_limit() const;
  [[nodiscard]] std::vector<ProbeView> probe_views() const;

 private:
  void on_timer();
  void refresh_probes();
  void request_tick();
  void tick();
  void assemble();
  void act();
  void start_action(const Action& action);
  void on_outcome(const Action& action,
                  const std::vector<DrainReport>& reports,
                  std::optional<Error> error);
  void log_changes();
  void log_holds();
  void log_hold(const Hold& hold);
  void log_verdicts();
  void log_blind_spots();
  void log_findings();
  void check_alive();
  [[nodiscard]] bool is_busy() const;

  AgentParts parts_;
  NodeSnapshot snapshot_;
  Memory memory_;
  Decision decision_;
  std::vector<ActionOutcome> outcomes_;
  std::map<std::string, int> running_;
  std::unique_ptr<Timer> tick_timer_;
  std::unique_ptr<Timer> alive_timer_;
  std::unique_ptr<Timer> shutdown_timer_;
  MonotonicTime started_at_{};
  MonotonicTime decided_at_{};
  int refreshing_ = 0;
  std::uint64_t refresh_round_ = 0;
  std::uint64_t tick_count_ = 0;
  bool started_ = false;  // the first decision is made
  bool tick_requested_ = false;
  bool stopping_ = false;
  std::map<Digest, Hold> logged_holds_;
  std::map<Digest, std::string> held_images_;

  struct LoggedVerdict {
    Verdict verdict = Verdict::Unknown;
    bool sizes_pending = false;  // some layer's size was still being asked for
  };

  std::map<std::string, LoggedVerdict> logged_verdicts_;
  std::map<std::string, std::string> logged_errors_;
  std::vector<FindingKind> logged_findings_;
  std::map<std::string, MonotonicTime> seen_at_;  // by probe: when its part was there
  AgentCounters counters_;
};

}  // namespace imagefs_guard
