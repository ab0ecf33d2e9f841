#pragma once
/// Image names to manifests, from any Registry v2: reference → index → platform manifest → config,
/// every body checked against its digest. Asked by ManifestStore and, for layer bytes, by the size
/// sources. Each reference and each digest is fetched once at a time, and a digest once for good.
/// Makes no retries and knows no schedule: the planner does.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"
#include "agent/io/http.h"
#include "agent/io/loop.h"
#include "agent/registry/manifest_cache.h"
#include "agent/registry/registry_http.h"
#include "agent/wire/manifest.h"

namespace imagefs_guard {

struct RegistrySetup {
  Policy policy;
  CredentialEnvironment environment;
  Platform platform = build_platform();
  std::uint64_t seed = 0;  // of the jitter: main.cc gives a random one
};

struct ResolveHandlers {
  /// As soon as the config digest is known: enough to hold the pull. Comes at most once, and not
  /// at all where the config is at hand already. Layers have no diff or chain IDs yet.
  std::function<void(const ImageManifest&)> on_manifest;
  /// The whole of it. An Error after on_manifest is about the config alone.
  Done<ImageManifest> done;
};

struct BlobRange {
  Digest digest;
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

class RegistryClient {
 public:
  RegistryClient(EventLoop& loop, HttpTransport& http, RegistrySetup setup);
  ~RegistryClient();
  RegistryClient(const RegistryClient&) = delete;
  RegistryClient& operator=(const RegistryClient&) = delete;

  /// Handlers may be called from inside.
  void resolve(const std::string& image, ResolveHandlers handlers);

  /// Exactly `length` bytes of a layer of the image, at most 1 MiB. Unimplemented if the registry
  /// ignores Range, FailedPrecondition if the policy forbids it.
  void blob_range(const std::string& image, BlobRange range, Done<std::string> done);

  [[nodiscard]] ManifestCache& cache() { return cache_; }

  /// In force for the requests that begin from now on; logins are read again.
  void set_policy(const Policy& policy);

 private:
  class Resolution;

  struct Tag {
    Digest digest;
    MonotonicTime resolved_at{};
  };

  void finish(const std::string& key);
  [[nodiscard]] std::optional<Digest> known_digest(const ImageReference& reference);
  void remember_tag(const std::string& key, const Digest& digest);

  EventLoop& loop_;
  RegistrySetup setup_;
  std::mt19937_64 random_;
  RegistryHttp http_;
  ManifestCache cache_;
  std::map<std::string, Tag> tags_;  // by canonical name; at most kTagLimit
  std::map<std::string, std::unique_ptr<Resolution>> resolutions_;  // by canonical name
  std::vector<std::unique_ptr<Resolution>> finished_;
  /// Resolutions that wait for another one's fetch of the same digest.
  std::map<Digest, std::vector<std::function<void()>>> fetching_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace imagefs_guard
