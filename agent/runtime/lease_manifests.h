#pragma once
/// Manifests of pulls that are under way already, read from the node's own content store: what the
/// agent meets after a restart, or when the registry can't be asked. Looks at the small blobs of
/// each lease it has not seen, and hands over those that are a platform manifest with its config.

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>

#include "agent/core/node_snapshot.h"
#include "agent/runtime/containerd.h"
#include "agent/wire/manifest.h"

namespace imagefs_guard {

class LeaseManifests {
 public:
  using Found = std::function<void(ImageManifest)>;

  /// `containerd` outlives it. `found` comes from the loop.
  LeaseManifests(Containerd& containerd, Found found);

  /// Once a tick: begins to read what is new. `is_known` says whether a manifest is at hand.
  void look(const NodeSnapshot& snapshot, const std::function<bool(const Digest&)>& is_known);

  /// Whether all that look() has seen is read.
  [[nodiscard]] bool is_idle() const { return call_ == nullptr && queue_.empty(); }

 private:
  void next();
  void on_blob(const Digest& digest, Result<std::string> blob);
  void on_config(ImageManifest manifest, Result<std::string> blob);
  void remember(const Digest& digest);

  Containerd& containerd_;
  Found found_;
  std::set<Digest> examined_;
  std::deque<Digest> queue_;
  Containerd::Call call_;
};

}  // namespace imagefs_guard
