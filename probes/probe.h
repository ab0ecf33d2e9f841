#pragma once
/// What every probe is: one fact about the node, watched in the background, its answer ready.
/// A tick never waits for a slow probe: it takes what is there, with its age. One folder file
/// per fact; main.cc lists them.

#include <functional>
#include <optional>

#include "agent/core/node_snapshot.h"

namespace imagefs_guard {

class Probe {
 public:
  virtual ~Probe() = default;

  /// "pods", "runtime": the key in probe_errors, logs and metrics.
  [[nodiscard]] virtual const char* name() const = 0;

  /// Begins to watch. `changed` asks for an early tick; called from the loop, as often as it likes.
  virtual void start(std::function<void()> changed) = 0;

  /// Asks again what is not watched. `done` exactly once, also on failure; may come from inside.
  virtual void refresh(std::function<void()> done) = 0;

  /// Puts its latest answer into the snapshot: its own part and its own entry of probe_errors.
  /// The snapshot is the same object from tick to tick, so a part that has not changed is left.
  virtual void contribute(NodeSnapshot& snapshot) = 0;

  /// Since when its answer is an old one that could not be asked for again; nullopt while it is as
  /// fresh as it can be. For metrics: contribute() says what is too old to count.
  [[nodiscard]] virtual std::optional<MonotonicTime> stale_since() const { return std::nullopt; }
};

}  // namespace imagefs_guard
