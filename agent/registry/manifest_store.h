#pragma once
/// What the agent knows about images: fetches what FetchManifest orders, keeps the answers, good
/// and bad, and writes them into the snapshot. The face of registry/ towards agent.cc.
///
/// A resolved image can be in one of these states:
/// - in_flight, no digest: asked, nothing known yet
/// - in_flight, with a digest and a manifest without chain IDs: enough to hold the pull; its
///   demand counts every layer as missing until the config has come
/// - a digest, no error: complete
/// - a digest with an error: the config can't be had; the manifest stays as it is, ask again
/// - no digest, an error: nothing is known, ask again
/// Earlier answers stay while a new one is awaited.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/core/node_snapshot.h"
#include "agent/io/loop.h"
#include "agent/registry/registry_client.h"

namespace imagefs_guard {

class ManifestStore {
 public:
  /// `changed` asks for an early tick; called from the loop, as often as it likes.
  ManifestStore(EventLoop& loop, RegistryClient& client, std::function<void()> changed);

  /// `done` exactly once, from the loop: an error where nothing or not everything could be had.
  /// At most kFetchesAtOnce run, the others wait their turn.
  void fetch(const std::string& image, std::function<void(std::optional<Error>)> done);

  /// A manifest with its config that was read from the node's own content store.
  void add_from_content_store(ImageManifest image);

  /// Whether the digest's manifest is here with its config: nothing to read from anywhere.
  [[nodiscard]] bool is_complete(const Digest& manifest_digest) const;

  /// Fills `resolved` and `manifests`, and leaves them if nothing has changed since the last call
  /// with this snapshot. Call it after the probes: images of the pods in the snapshot, and
  /// manifests that its images and leases name, count as used. What has not been used for
  /// kUnusedLifetime is dropped.
  void contribute(NodeSnapshot& snapshot);

 private:
  struct Entry {
    ResolvedImage resolved;
    MonotonicTime used_at{};
  };

  struct Waiting {
    std::string image;
    std::function<void(std::optional<Error>)> done;
  };

  void start(Waiting waiting);
  void take_manifest(const std::string& image, const ImageManifest& manifest);
  void take_result(const std::string& image, const Result<ImageManifest>& result);
  void finish(const Waiting& waiting, std::optional<Error> error);
  void note_change();
  void note_used(const NodeSnapshot& snapshot);
  void drop_unused();

  EventLoop& loop_;
  RegistryClient& client_;
  std::function<void()> changed_;
  std::map<std::string, Entry> entries_;  // at most kImageLimit
  std::deque<Waiting> queue_;
  int running_ = 0;
  std::size_t version_ = 1;
  std::size_t contributed_version_ = 0;
  std::size_t contributed_cache_version_ = 0;
  MonotonicTime swept_at_{};
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace imagefs_guard
