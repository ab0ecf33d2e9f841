#pragma once
/// Asks registries what layers will be once unpacked: the gzip trailer (the tar's size) and the
/// headers at the tar's beginning, by Range requests of a few bytes. Only for layers of images that
/// pods of this node wait for, of which nothing better is known, and only if the policy allows
/// blob access. Facts are kept by layer digest for good.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/node_snapshot.h"
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
  struct Probe {
    std::string image;
    Digest digest;
    std::int64_t compressed_bytes = 0;
  };

  void want_missing(const NodeSnapshot& snapshot);
  void want(const ResolvedImage& image, const ImageManifest& manifest);
  [[nodiscard]] bool may_ask(const Digest& digest) const;
  void next();
  void on_trailer(const Probe& probe, Result<std::string> bytes);
  void on_head(const Probe& probe, SizeFact fact, Result<std::string> bytes);
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
  std::deque<Probe> queue_;
  int running_ = 0;
  bool has_news_ = false;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace imagefs_guard
