#pragma once
/// Which layers registries are asked about, and what they have said: layers of images that pods of
/// this node wait for, of which nothing better is known, largest first, if the policy allows blob
/// access. What is asked is in layer_probe.h. Facts are kept by layer digest for good.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/node_snapshot.h"
#include "agent/registry/layer_probe.h"
#include "agent/registry/registry_client.h"

namespace imagefs_guard {

class LayerSizes {
 public:
  /// `changed` asks for an early tick. `client` outlives it.
  LayerSizes(RegistryClient& client, std::function<void()> changed);

  /// Once a tick, after the manifests are in the snapshot: adds what is known to their layers,
  /// and asks for what is not, for images that are not here.
  void contribute(NodeSnapshot& snapshot);

 private:
  void want_missing(const NodeSnapshot& snapshot);
  void want(const ResolvedImage& image, const ImageManifest& manifest);
  [[nodiscard]] bool may_ask(const Digest& digest) const;
  void next();
  void end_overdue();
  void finish(const Digest& digest, Result<SizeFact> fact);

  RegistryClient& client_;
  std::function<void()> changed_;

  struct Known {
    std::optional<SizeFact> fact;  // none: asked, nothing to be had
    MonotonicTime ask_again{};
  };

  std::map<Digest, Known> known_;
  MonotonicTime taken_at_{};
  std::map<Digest, MonotonicTime> asked_;  // under way, since when

  struct Running {
    std::unique_ptr<LayerProbe> probe;
    MonotonicTime since{};
  };

  std::deque<LayerQuestion> queue_;
  std::map<Digest, Running> running_;
  std::vector<std::unique_ptr<LayerProbe>> ended_;  // may still be on the stack
  std::int64_t block_bytes_ = 4096;
  bool has_news_ = false;
};

}  // namespace imagefs_guard
