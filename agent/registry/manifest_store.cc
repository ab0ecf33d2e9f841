#include "agent/registry/manifest_store.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace imagefs_guard {

namespace {

constexpr int kFetchesAtOnce = 8;
constexpr std::size_t kImageLimit = 512;
/// Longer than any planner waits before it asks again for what it still needs.
constexpr Duration kUnusedLifetime = std::chrono::minutes(30);
constexpr Duration kSweepInterval = std::chrono::minutes(1);

}  // namespace

ManifestStore::ManifestStore(EventLoop& loop, RegistryClient& client, std::function<void()> changed)
    : loop_(loop), client_(client), changed_(std::move(changed)) {}

void ManifestStore::fetch(const std::string& image,
                          std::function<void(std::optional<Error>)> done) {
  if (entries_.size() >= kImageLimit && !entries_.contains(image)) {
    drop_unused();
  }
  if (entries_.size() >= kImageLimit && !entries_.contains(image)) {
    loop_.defer([done = std::move(done)] {
      done(Error{ErrorKind::ResourceExhausted,
                 "more than " + std::to_string(kImageLimit) + " images at once"});
    });
    return;
  }
  Entry& entry = entries_[image];
  entry.resolved.image = image;
  entry.resolved.in_flight = true;
  entry.used_at = loop_.now();
  ++version_;
  queue_.push_back({image, std::move(done)});
  // From the loop: the caller need not expect its answer inside its own call.
  loop_.defer([this, alive = std::weak_ptr<char>(alive_)] {
    while (!alive.expired() && running_ < kFetchesAtOnce && !queue_.empty()) {
      Waiting waiting = std::move(queue_.front());
      queue_.pop_front();
      start(std::move(waiting));
    }
  });
}

void ManifestStore::start(Waiting waiting) {
  ++running_;
  const std::string image = waiting.image;
  client_.resolve(
      image,
      ResolveHandlers{
          .on_manifest =
              [this, alive = std::weak_ptr<char>(alive_), image](const ImageManifest& manifest) {
                if (!alive.expired()) {
                  take_manifest(image, manifest);
                }
              },
          .done =
              [this, alive = std::weak_ptr<char>(alive_), waiting = std::move(waiting)](
                  const Result<ImageManifest>& result) {
                if (alive.expired()) {
                  return;
                }
                take_result(waiting.image, result);
                finish(waiting, result ? std::nullopt : std::optional<Error>(result.error()));
              }});
}

void ManifestStore::take_manifest(const std::string& image, const ImageManifest& manifest) {
  Entry& entry = entries_[image];
  entry.resolved.manifest_digest = manifest.manifest_digest;
  entry.resolved.error.reset();
  entry.resolved.resolved_at = loop_.now();
  note_change();
}

void ManifestStore::take_result(const std::string& image, const Result<ImageManifest>& result) {
  ResolvedImage& resolved = entries_[image].resolved;
  resolved.in_flight = false;
  resolved.resolved_at = loop_.now();
  if (result) {
    resolved.manifest_digest = result->manifest_digest;
    resolved.error.reset();
    resolved.failures = 0;
  } else {
    resolved.error = result.error();
    ++resolved.failures;
  }
  note_change();
}

void ManifestStore::finish(const Waiting& waiting, std::optional<Error> error) {
  --running_;
  if (!queue_.empty()) {
    loop_.defer([this, alive = std::weak_ptr<char>(alive_)] {
      if (!alive.expired() && running_ < kFetchesAtOnce && !queue_.empty()) {
        Waiting next = std::move(queue_.front());
        queue_.pop_front();
        start(std::move(next));
      }
    });
  }
  waiting.done(std::move(error));
}

void ManifestStore::add_from_content_store(ImageManifest image) {
  ParsedManifest parsed;
  if (const CachedManifest* known = client_.cache().find(image.manifest_digest)) {
    parsed = known->parsed;  // the registry's had annotations
  }
  parsed.hints.resize(image.layers.size());
  parsed.image = std::move(image);
  client_.cache().add(std::move(parsed), true, loop_.now());
  note_change();
}

bool ManifestStore::is_complete(const Digest& manifest_digest) const {
  const CachedManifest* known = client_.cache().find(manifest_digest);
  return known != nullptr && known->complete;
}

void ManifestStore::note_change() {
  ++version_;
  changed_();
}

void ManifestStore::contribute(NodeSnapshot& snapshot) {
  if (loop_.now() - swept_at_ >= kSweepInterval) {
    swept_at_ = loop_.now();
    note_used(snapshot);
    drop_unused();
  }
  const ManifestCache& cache = client_.cache();
  const bool same = version_ == contributed_version_ &&
                    cache.version() == contributed_cache_version_ &&
                    snapshot.resolved.size() == entries_.size() &&
                    snapshot.manifests.size() == cache.manifests().size();
  if (same) {
    return;
  }
  contributed_version_ = version_;
  contributed_cache_version_ = cache.version();
  snapshot.resolved.clear();
  for (const auto& [image, entry] : entries_) {
    snapshot.resolved.push_back(entry.resolved);
  }
  snapshot.manifests.clear();
  for (const auto& [digest, manifest] : cache.manifests()) {
    snapshot.manifests.push_back(manifest.parsed.image);
  }
}

void ManifestStore::note_used(const NodeSnapshot& snapshot) {
  const MonotonicTime now = loop_.now();
  if (snapshot.pods) {
    for (const Pod& pod : *snapshot.pods) {
      for (const Container& container : pod.containers) {
        const auto found = entries_.find(container.image);
        if (found != entries_.end()) {
          found->second.used_at = now;
        }
      }
    }
  }
  for (const auto& [image, entry] : entries_) {
    if (entry.resolved.manifest_digest) {
      client_.cache().touch(*entry.resolved.manifest_digest, entry.used_at);
    }
  }
  if (snapshot.runtime) {
    std::vector<Digest> named;
    for (const LocalImage& image : snapshot.runtime->images) {
      named.push_back(image.target);
    }
    for (const PullLease& lease : snapshot.runtime->leases) {
      named.insert(named.end(), lease.content.begin(), lease.content.end());
    }
    std::ranges::sort(named);
    for (const auto& [digest, manifest] : client_.cache().manifests()) {
      if (std::ranges::binary_search(named, digest) ||
          std::ranges::binary_search(named, manifest.parsed.image.index_digest)) {
        client_.cache().touch(digest, now);
      }
    }
  }
}

void ManifestStore::drop_unused() {
  const MonotonicTime oldest = loop_.now() - kUnusedLifetime;
  const std::size_t dropped = std::erase_if(entries_, [oldest](const auto& entry) {
    return !entry.second.resolved.in_flight && entry.second.used_at < oldest;
  });
  version_ += dropped == 0 ? 0 : 1;
  client_.cache().drop_unused_since(oldest);
}

}  // namespace imagefs_guard
