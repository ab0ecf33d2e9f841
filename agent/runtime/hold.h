#pragma once
/// Keeps exactly the holds that the latest decision names. Owned by the agent; its streams die
/// with it, so whatever ends the process lets every pull go on.
/// A pull is held by the ref of its config blob, since layers start only when that is complete. If
/// the config is here already, every missing layer's ref is held instead.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/action.h"
#include "agent/core/node_snapshot.h"
#include "agent/io/loop.h"
#include "agent/runtime/containerd.h"
#include "agent/runtime/ref_hold.h"

namespace imagefs_guard {

class HoldKeeper {
 public:
  struct Observer {
    /// A pull is held for the first time since it is named; `after` = time since then.
    std::function<void(const Digest& manifest_digest, Duration after)> on_held;
    /// A pull is no longer named, or release_all() has come; `held` = how long it was held.
    std::function<void(const Digest& manifest_digest, Duration held)> on_released;
    /// Something in holds() is different.
    std::function<void()> changed;
  };

  /// Members of `observer` may be empty. They must not call back into the keeper.
  HoldKeeper(EventLoop& loop, Containerd& containerd, Observer observer);
  HoldKeeper(const HoldKeeper&) = delete;
  HoldKeeper& operator=(const HoldKeeper&) = delete;
  ~HoldKeeper();

  /// Once a tick. What is not named is released; what is named and not held is tried again.
  void set_desired(const std::vector<HoldPull>& pulls);

  /// Closes every stream at once, without any call that could fail: for the end of the process
  /// and for ticks that don't come any more.
  void release_all();

  /// Sorted by manifest digest.
  [[nodiscard]] std::vector<Hold> holds() const;

  /// The refs that are held or tried, sorted: their ingests of 0 bytes are ours.
  [[nodiscard]] std::vector<std::string> refs() const;

 private:
  struct Entry {
    HoldPull pull;
    std::shared_ptr<RefHold> config;
    std::vector<std::shared_ptr<RefHold>> layers;
    HoldState state = HoldState::Opening;
    std::string error;
    MonotonicTime since{};
    MonotonicTime named_at{};
    MonotonicTime held_at{};
    bool was_held = false;
  };

  class Sweep;

  void begin(const HoldPull& pull);
  void end(Entry& entry, bool sweep);
  void update_all();
  void update(Entry& entry);
  [[nodiscard]] bool open_layers(Entry& entry);
  /// Once the config is held no layer starts. A layer's ingest would only keep the file of a
  /// cancelled download from containerd's garbage collection.
  void drop_layers(Entry& entry);
  [[nodiscard]] std::shared_ptr<RefHold> open(const RefHold::Options& options);
  void sweep_later(const std::shared_ptr<RefHold>& hold);
  void sweep();

  EventLoop& loop_;
  Containerd& containerd_;
  Observer observer_;
  std::map<Digest, Entry> entries_;
  /// By ref: images share layers, and a second stream on one ref would meet our own first.
  std::map<std::string, std::weak_ptr<RefHold>> open_;
  std::map<std::string, std::unique_ptr<Sweep>> sweeps_;  // by ref
  std::unique_ptr<Timer> sweep_timer_;
};

}  // namespace imagefs_guard
