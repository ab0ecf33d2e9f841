// untested: wiring of the tick; tests/integration runs the whole agent.
#include "agent/agent.h"

#include <algorithm>
#include <utility>

#include "agent/core/decide.h"
#include "agent/core/words.h"
#include "agent/io/log.h"

namespace imagefs_guard {

namespace {

/// While pulls are about, space and pulls are looked at this often.
constexpr Duration kBusyInterval = std::chrono::seconds(1);
constexpr Duration kFirstAnswerDeadline = std::chrono::seconds(2);
/// No decision for this long: whatever is wrong, no pull may wait for it any longer.
constexpr Duration kDeadManDelay = std::chrono::seconds(30);
/// A waiting pull notices within this time that its lease is gone.
constexpr Duration kCancelSettles = std::chrono::milliseconds(2200);

std::int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

/// Actions that change the node or its pulls; observe mode skips them, but for those that only
/// take back what an agent in mode enforce has left.
bool is_intervention(const Action& action) {
  if (const auto* taint = std::get_if<SetTaint>(&action)) {
    return taint->effect != TaintEffect::None;
  }
  return std::holds_alternative<CancelPull>(action) ||
         std::holds_alternative<ReclaimImage>(action) ||
         (is_drain_write(action) && !std::holds_alternative<ResumeJob>(action));
}

const char* event_of(const Action& action) {
  if (const auto* taint = std::get_if<SetTaint>(&action)) {
    return taint->effect == TaintEffect::None ? "taint_removed" : "taint_set";
  }
  if (std::holds_alternative<CancelPull>(action)) {
    return "pull_cancelled";
  }
  if (std::holds_alternative<ReclaimImage>(action)) {
    return "image_removal_ordered";
  }
  if (std::holds_alternative<ReleasePull>(action)) {
    return "pull_release_ordered";
  }
  if (std::holds_alternative<EmitEvent>(action)) {
    return "event_told";
  }
  if (std::holds_alternative<FetchManifest>(action)) {
    return "manifest_asked";
  }
  if (const char* event = drain_event(action)) {
    return event;
  }
  return "node_published";
}

LogLevel level_of(const Action& action) {
  return is_intervention(action) || std::holds_alternative<ReleasePull>(action) ? LogLevel::Info
                                                                                : LogLevel::Debug;
}

/// Which pull or taint the action is about, as fields to search for.
std::vector<LogField> fields_of(const Action& action) {
  if (const auto* release = std::get_if<ReleasePull>(&action)) {
    return {{"digest", to_string(release->manifest_digest)}, {"image", release->image}};
  }
  if (const auto* cancel = std::get_if<CancelPull>(&action)) {
    return {{"digest", to_string(cancel->manifest_digest)},
            {"image", cancel->image},
            {"leases", static_cast<std::int64_t>(cancel->lease_ids.size())}};
  }
  if (const auto* taint = std::get_if<SetTaint>(&action)) {
    const char* effect = taint->effect == TaintEffect::NoSchedule         ? "NoSchedule"
                         : taint->effect == TaintEffect::PreferNoSchedule ? "PreferNoSchedule"
                                                                          : "";
    return {{"taint", taint->key}, {"effect", std::string(effect)}};
  }
  if (const auto* reclaim = std::get_if<ReclaimImage>(&action)) {
    return {{"image", reclaim->image}, {"bytes_expected", reclaim->expected_bytes}};
  }
  if (const auto* fetch = std::get_if<FetchManifest>(&action)) {
    return {{"image", fetch->image}};
  }
  return {};
}

}  // namespace

Agent::Agent(AgentParts parts) : parts_(std::move(parts)) {
  tick_timer_ = parts_.loop->make_timer("tick", [this] { on_timer(); });
  alive_timer_ = parts_.loop->make_timer("dead man", [this] { check_alive(); });
}

void Agent::start() {
  started_at_ = parts_.loop->now();
  decided_at_ = started_at_;
  for (Probe* probe : parts_.probes) {
    probe->start([this] { request_tick(); });
  }
  alive_timer_->arm(kDeadManDelay / 3);
  tick_timer_->arm(kFirstAnswerDeadline);
  refresh_probes();
}

bool Agent::is_busy() const {
  return !decision_.pulls.empty() || !snapshot_.holds.empty() ||
         decision_.node.stage != Stage::Clear;
}

void Agent::on_timer() {
  tick_timer_->arm(started_ && is_busy() ? std::min(kBusyInterval, parts_.policy.tick_interval)
                                         : parts_.policy.tick_interval);
  if (stopping_) {
    return;
  }
  if (refreshing_ > 0) {
    // Some probe is slow: its late answer belongs to no tick, this one takes what is there.
    refreshing_ = 0;
    ++refresh_round_;
    tick();
    return;
  }
  refresh_probes();
}

void Agent::refresh_probes() {
  const std::uint64_t round = ++refresh_round_;
  refreshing_ = static_cast<int>(parts_.probes.size());
  for (Probe* probe : parts_.probes) {
    probe->refresh([this, round] {
      if (round == refresh_round_ && refreshing_ > 0 && --refreshing_ == 0) {
        started_ = true;
        request_tick();
      }
    });
  }
}

void Agent::request_tick() {
  if (tick_requested_ || stopping_ || !started_) {
    return;
  }
  tick_requested_ = true;
  parts_.loop->defer([this] {
    tick_requested_ = false;
    if (!stopping_) {
      tick();
    }
  });
}

void Agent::assemble() {
  for (Probe* probe : parts_.probes) {
    probe->contribute(snapshot_);
    if (!snapshot_.probe_errors.contains(probe->name())) {
      seen_at_[probe->name()] = parts_.loop->now();
    }
  }
  if (snapshot_.pods.has_value()) {
    for (Pod& pod : *snapshot_.pods) {
      for (Container& container : pod.containers) {
        if (container.canonical_image.empty()) {
          container.canonical_image = parts_.canonical_image(container.image);
        }
      }
    }
  }
  snapshot_.outcomes = std::exchange(outcomes_, {});
  snapshot_.running.clear();
  for (const auto& [key, count] : running_) {
    snapshot_.running.push_back(key);
  }
  snapshot_.taken_at = parts_.loop->now();
  snapshot_.wall_time = parts_.loop->wall_now();
}

void Agent::tick() {
  started_ = true;
  ++tick_count_;
  assemble();
  decision_ = decide(snapshot_, memory_, parts_.policy);
  counters_.count_tick(parts_.loop->now() - snapshot_.taken_at);
  if (parts_.record) {
    parts_.record({.number = tick_count_,
                   .snapshot = snapshot_,
                   .memory = memory_,
                   .policy = parts_.policy,
                   .decision = decision_});
  }
  memory_ = decision_.memory;
  decided_at_ = snapshot_.taken_at;
  log_changes();
  act();
  parts_.set_watchful(is_busy());
  if (is_busy()) {
    // An event may have come early in a long idle interval.
    tick_timer_->arm(std::min(kBusyInterval, parts_.policy.tick_interval));
  }
}

void Agent::act() {
  std::vector<HoldPull> holds;
  for (const Action& action : decision_.actions) {
    if (const auto* hold = std::get_if<HoldPull>(&action)) {
      held_images_[hold->manifest_digest] = hold->image;
      holds.push_back(*hold);
    }
  }
  if (parts_.policy.mode == Mode::Observe) {
    holds.clear();
  }
  parts_.set_holds(std::move(holds));
  for (const Action& action : decision_.actions) {
    if (!std::holds_alternative<HoldPull>(action)) {
      start_action(action);
    }
  }
}

void Agent::start_action(const Action& action) {
  log({.level = level_of(action),
       .event = event_of(action),
       .logger = "agent",
       .message = describe(action),
       .fields = fields_of(action)});
  if (std::holds_alternative<ReleasePull>(action)) {
    return;  // not naming the hold has released it
  }
  const std::string key = action_key(action);
  if (parts_.policy.mode == Mode::Observe && is_intervention(action)) {
    outcomes_.push_back({.key = key, .error = {}, .skipped = true});
    counters_.count_outcome(action, decision_.drains, "skipped");
    return;
  }
  ++running_[key];
  parts_.run_action(action, [this, action, reports = decision_.drains](std::optional<Error> error) {
    on_outcome(action, reports, std::move(error));
  });
}

void Agent::on_outcome(const Action& action,
                       const std::vector<DrainReport>& reports,
                       std::optional<Error> error) {
  const std::string key = action_key(action);
  counters_.count_outcome(
      action, reports, error.has_value() ? std::string(to_string(error->kind)) : "ok");
  const auto running = running_.find(key);
  if (running != running_.end() && --running->second == 0) {
    running_.erase(running);
  }
  if (error.has_value()) {
    log({.level = LogLevel::Warn,
         .event = "action_failed",
         .logger = "agent",
         .message = key + ": " + error->message,
         .fields = {{"err", std::string(to_string(error->kind))}}});
  }
  outcomes_.push_back({.key = key, .error = std::move(error)});
  // Bounded: a decision takes them all; without ticks they must not pile up.
  constexpr std::size_t kOutcomesMaximum = 1024;
  if (outcomes_.size() > kOutcomesMaximum) {
    outcomes_.erase(outcomes_.begin());
  }
}

void Agent::log_changes() {
  log_blind_spots();
  log_verdicts();
  log_holds();
  log_findings();
}

void Agent::log_findings() {
  std::vector<FindingKind> kinds;
  for (const Finding& finding : decision_.memory.audit.findings) {
    kinds.push_back(finding.kind);
    if (std::ranges::find(logged_findings_, finding.kind) == logged_findings_.end()) {
      log({.level = LogLevel::Warn,
           .event = "finding",
           .logger = "agent",
           .message = finding.sentence + "; " + finding.advice,
           .fields = {{"finding", std::string(to_string(finding.kind))}}});
    }
  }
  for (const FindingKind kind : logged_findings_) {
    if (std::ranges::find(kinds, kind) == kinds.end()) {
      log({.level = LogLevel::Info,
           .event = "finding_gone",
           .logger = "agent",
           .message = std::string("no longer found: ") + to_string(kind),
           .fields = {{"finding", std::string(to_string(kind))}}});
    }
  }
  logged_findings_ = std::move(kinds);
}

void Agent::log_blind_spots() {
  for (const auto& [part, error] : snapshot_.probe_errors) {
    if (logged_errors_[part] != error) {
      log({.level = LogLevel::Warn,
           .event = "probe_failed",
           .logger = "agent",
           .message = "can't see " + part + ": " + error,
           .fields = {{"probe", part}}});
    }
  }
  for (const auto& [part, error] : logged_errors_) {
    if (!error.empty() && !snapshot_.probe_errors.contains(part)) {
      log({.level = LogLevel::Info,
           .event = "probe_recovered",
           .logger = "agent",
           .message = "sees " + part + " again",
           .fields = {{"probe", part}}});
    }
  }
  logged_errors_ = snapshot_.probe_errors;
}

void Agent::log_verdicts() {
  std::map<std::string, LoggedVerdict> verdicts;
  for (const PullReport& pull : decision_.pulls) {
    const std::string key =
        pull.manifest_digest.is_zero() ? pull.image : to_string(pull.manifest_digest);
    const bool pending = pull.demand.pending_bytes > 0;
    verdicts[key] = {.verdict = pull.verdict, .sizes_pending = pending};
    const auto logged = logged_verdicts_.find(key);
    // Once more when the sizes are known, though they may not have changed it: its numbers have.
    const bool same = logged != logged_verdicts_.end() && logged->second.verdict == pull.verdict;
    if (same && (pending || !logged->second.sizes_pending)) {
      continue;
    }
    const auto& device = decision_.node.image_filesystem;
    log({.level = pull.verdict == Verdict::Fits ? LogLevel::Info : LogLevel::Warn,
         .event = "verdict",
         .logger = "agent",
         .message = pull.image + " " + pull.sentence,
         .fields = {{"image", pull.image},
                    {"digest", key},
                    {"verdict", std::string(to_string(pull.verdict))},
                    {"pull_state", std::string(to_string(pull.state))},
                    {"bytes_needed", pull.demand.peak_high_bytes()},
                    {"bytes_needed_mid", pull.demand.peak_mid_bytes()},
                    {"size_sources", size_sources_text(pull.demand)},
                    {"bytes_available", device ? device->available_bytes : std::int64_t{-1}},
                    {"bytes_floor", decision_.node.floor.bytes},
                    {"bytes_outstanding", pull.outstanding_bytes}}});
  }
  logged_verdicts_ = std::move(verdicts);
}

void Agent::log_hold(const Hold& hold) {
  const std::string image = held_images_[hold.manifest_digest];
  LogRecord record{.level = LogLevel::Info,
                   .event = "hold_state",
                   .logger = "agent",
                   .message = {},
                   .fields = {{"digest", to_string(hold.manifest_digest)}, {"image", image}}};
  switch (hold.state) {
    case HoldState::Opening:
      record.level = LogLevel::Debug;
      record.message = "asks containerd for the hold of " + image;
      break;
    case HoldState::Held: {
      record.event = "pull_held";
      record.message = "holds the pull of " + image;
      const auto pull =
          std::ranges::find(decision_.pulls, hold.manifest_digest, &PullReport::manifest_digest);
      if (pull != decision_.pulls.end()) {
        record.fields.push_back({"bind_to_hold_ms", milliseconds(hold.since - pull->arrival)});
        counters_.count_hold_begun(hold.since - pull->arrival);
        if (!pull->pods.empty()) {
          const std::size_t slash = pull->pods.front().find('/');
          record.fields.push_back({"namespace", pull->pods.front().substr(0, slash)});
          record.fields.push_back({"pod", pull->pods.front().substr(slash + 1)});
        }
      }
      break;
    }
    case HoldState::TooLate:
      record.message = "too late to hold the pull of " + image;
      break;
    case HoldState::NothingToHold:
      record.message = "every blob is here already, can't hold the pull of " + image;
      break;
    case HoldState::Failed:
      record.level = LogLevel::Warn;
      record.message = "can't hold the pull of " + image + ": " + hold.error;
      break;
  }
  log(record);
}

void Agent::log_holds() {
  std::map<Digest, Hold> holds;
  for (const Hold& hold : snapshot_.holds) {
    holds[hold.manifest_digest] = hold;
    const auto logged = logged_holds_.find(hold.manifest_digest);
    if (logged == logged_holds_.end() || logged->second.state != hold.state) {
      log_hold(hold);
    }
  }
  for (const auto& [digest, hold] : logged_holds_) {
    if (holds.contains(digest)) {
      continue;
    }
    const std::string& image = held_images_[digest];
    if (hold.state == HoldState::Held) {
      counters_.count_hold_ended(snapshot_.taken_at - hold.since);
      log({.level = LogLevel::Info,
           .event = "pull_released",
           .logger = "agent",
           .message = "the hold of " + image + " is gone",
           .fields = {{"digest", to_string(digest)},
                      {"image", image},
                      {"held_ms", milliseconds(snapshot_.taken_at - hold.since)}}});
    }
    held_images_.erase(digest);
  }
  logged_holds_ = std::move(holds);
}

void Agent::check_alive() {
  alive_timer_->arm(kDeadManDelay / 3);
  if (stopping_ || decision_age() < decision_age_limit()) {
    return;
  }
  log({.level = LogLevel::Error,
       .event = "ticks_stopped",
       .logger = "agent",
       .message = "no decision for too long: every hold is released",
       .fields = {}});
  parts_.set_holds({});
}

void Agent::set_policy(Policy policy) {
  parts_.policy = std::move(policy);
  request_tick();
}

Duration Agent::decision_age() const {
  return parts_.loop->now() - decided_at_;
}

Duration Agent::decision_age_limit() const {
  return std::max<Duration>(kDeadManDelay, 3 * parts_.policy.tick_interval);
}

std::vector<ProbeView> Agent::probe_views() const {
  const MonotonicTime now = parts_.loop->now();
  std::vector<ProbeView> views;
  for (const Probe* probe : parts_.probes) {
    ProbeView view{.name = probe->name(), .error = {}, .age = {}};
    const auto error = snapshot_.probe_errors.find(view.name);
    if (error != snapshot_.probe_errors.end()) {
      view.error = error->second.empty() ? "not seen" : error->second;
    } else if (tick_count_ == 0) {
      view.error = "not asked yet";
    }
    std::optional<MonotonicTime> since = probe->stale_since();
    if (!since.has_value() && !view.error.empty()) {
      const auto seen = seen_at_.find(view.name);
      since = seen == seen_at_.end() ? started_at_ : seen->second;
    }
    view.age = since.has_value() ? now - *since : Duration{};
    views.push_back(std::move(view));
  }
  return views;
}

void Agent::shut_down(std::function<void()> done) {
  stopping_ = true;
  tick_timer_->disarm();
  bool cancelled = false;
  for (const Hold& hold : snapshot_.holds) {
    const auto leases = std::ranges::find_if(decision_.pulls, [&](const PullReport& pull) {
      return pull.manifest_digest == hold.manifest_digest;
    });
    if (hold.state != HoldState::Held || leases == decision_.pulls.end() ||
        !snapshot_.runtime.has_value()) {
      continue;
    }
    CancelPull cancel{.manifest_digest = hold.manifest_digest,
                      .image = leases->image,
                      .lease_ids = {},
                      .reason = "the agent stops, the next one shall meet the retry"};
    for (const PullLease& lease : snapshot_.runtime->leases) {
      if (std::ranges::find(lease.content, hold.manifest_digest) != lease.content.end()) {
        cancel.lease_ids.push_back(lease.id);
      }
    }
    if (!cancel.lease_ids.empty()) {
      cancelled = true;
      start_action(cancel);
    }
  }
  shutdown_timer_ = parts_.loop->make_timer("shutdown", [this, done = std::move(done)] {
    parts_.set_holds({});
    done();
  });
  shutdown_timer_->arm(cancelled ? kCancelSettles : Duration::zero());
}

}  // namespace imagefs_guard
