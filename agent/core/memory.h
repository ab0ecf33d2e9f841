#pragma once
/// What decide() remembers from one tick to the next. An empty one is always safe: it is what a
/// restarted agent begins with, and everything that must survive stands in Kubernetes.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/finding.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/verdict.h"

namespace imagefs_guard {

/// Clear: all is well. Warn: pulls queue (PreferNoSchedule). Guard: the node can't take what
/// waits, or is near its floor (NoSchedule). StandDown: the kubelet is evicting already.
enum class Stage { Clear, Warn, Guard, StandDown };

/// "clear", "warn", "guard", "standdown": the label's values.
[[nodiscard]] const char* to_string(Stage stage);

struct StageState {
  Stage stage = Stage::Clear;
  /// Since when nothing has spoken for the stage; the way down takes policy.clear_after.
  std::optional<MonotonicTime> calm_since;
  bool started = false;  // false: take the stage from the node's taint first

  bool operator==(const StageState&) const = default;
};

struct PullMemory {
  MonotonicTime first_seen{};
  std::optional<MonotonicTime> released_at;  // let go by us; its bytes are promised
  bool admitted = false;                     // was let go, or fitted when it was found under way
  /// Since when an admitted pull under way has looked too large, at every look.
  std::optional<MonotonicTime> short_since;
  /// Leases whose deletion was ordered, and when: the same one is ordered again only later.
  std::vector<std::string> cancelled_leases;
  MonotonicTime cancelled_at{};

  bool operator==(const PullMemory&) const = default;
};

struct Backoff {
  int failures = 0;
  MonotonicTime not_before{};

  bool operator==(const Backoff&) const = default;
};

/// What has been written to Kubernetes, to write only what has changed, and seldom enough.
struct Published {
  std::optional<MonotonicTime> metadata_at;
  std::int64_t status_available_bytes = -1;
  std::optional<MonotonicTime> condition_at;
  /// Event key -> when it was ordered. Bounded: the oldest go first.
  std::map<std::string, MonotonicTime> events;

  bool operator==(const Published&) const = default;
};

/// Bytes in use that no image explains, at one moment.
struct GrowthSample {
  MonotonicTime at{};
  std::int64_t bytes = 0;

  bool operator==(const GrowthSample&) const = default;
};

/// What audit() remembers; what it found stands here until it looks again.
struct AuditMemory {
  std::optional<MonotonicTime> looked_at;
  bool whole = false;             // nothing was missing then
  std::vector<Finding> findings;  // in the order of their kinds
  /// Since when it has looked so, for kinds that have to last before they are findings.
  std::map<FindingKind, MonotonicTime> suspected_since;
  /// Kinds that were told, and when they were last so: told again only if they come back later.
  std::map<FindingKind, MonotonicTime> told;
  std::vector<GrowthSample> growth;  // oldest first, bounded

  bool operator==(const AuditMemory&) const = default;
};

struct Memory {
  StageState stage;
  std::map<Digest, PullMemory> pulls;
  std::map<std::string, Backoff> backoff;  // by action_key()
  Published published;
  /// Steps of drains by action_key(), and when: none is ordered twice before it can show.
  std::map<std::string, MonotonicTime> drain_steps;
  /// When images were last seen in use, by image ID; without it they are as old as their record.
  std::map<Digest, MonotonicTime> image_used_at;
  /// Removals ordered last: measured before the next ones.
  std::optional<MonotonicTime> reclaimed_at;
  /// Since when a part of the picture is missing without which nothing can be judged.
  std::optional<MonotonicTime> blind_since;
  AuditMemory audit;

  bool operator==(const Memory&) const = default;
};

}  // namespace imagefs_guard
