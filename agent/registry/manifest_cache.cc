#include "agent/registry/manifest_cache.h"

#include <algorithm>
#include <utility>

namespace imagefs_guard {

namespace {

/// More than a node has images. A layer takes some 200 bytes: 20 MiB at the very most.
constexpr std::size_t kManifestLimit = 512;
constexpr std::size_t kLayerTotalLimit = 100'000;
constexpr std::size_t kIndexLimit = 1024;

}  // namespace

const CachedManifest* ManifestCache::find(const Digest& digest) const {
  const auto found = manifests_.find(digest);
  return found == manifests_.end() ? nullptr : &found->second;
}

const ImageIndex* ManifestCache::find_index(const Digest& digest) const {
  const auto found = indexes_.find(digest);
  return found == indexes_.end() ? nullptr : &found->second;
}

void ManifestCache::add(ParsedManifest parsed, bool complete, MonotonicTime now) {
  CachedManifest& slot = manifests_[parsed.image.manifest_digest];
  slot.used_at = now;
  if (slot.complete && !complete) {
    return;
  }
  if (parsed.image.index_digest.is_zero()) {
    parsed.image.index_digest = slot.parsed.image.index_digest;
  }
  layers_ += parsed.image.layers.size();
  layers_ -= slot.parsed.image.layers.size();
  if (slot.parsed != parsed) {
    slot.parsed = std::move(parsed);
    ++version_;
  }
  slot.complete = complete;
  keep_within_limits();
}

void ManifestCache::add_index(const Digest& digest, ImageIndex index) {
  if (indexes_.size() >= kIndexLimit) {
    indexes_.clear();  // cheap to have again, and manifests don't depend on it
  }
  indexes_[digest] = std::move(index);
}

void ManifestCache::touch(const Digest& digest, MonotonicTime time) {
  const auto found = manifests_.find(digest);
  if (found != manifests_.end()) {
    found->second.used_at = std::max(found->second.used_at, time);
  }
}

void ManifestCache::set_index(const Digest& digest, const Digest& index_digest) {
  const auto found = manifests_.find(digest);
  if (found != manifests_.end() && found->second.parsed.image.index_digest != index_digest) {
    found->second.parsed.image.index_digest = index_digest;
    ++version_;
  }
}

void ManifestCache::drop_unused_since(MonotonicTime time) {
  for (auto it = manifests_.begin(); it != manifests_.end();) {
    if (it->second.used_at >= time) {
      ++it;
      continue;
    }
    layers_ -= it->second.parsed.image.layers.size();
    it = manifests_.erase(it);
    ++version_;
  }
}

void ManifestCache::keep_within_limits() {
  while (manifests_.size() > 1 &&
         (manifests_.size() > kManifestLimit || layers_ > kLayerTotalLimit)) {
    const auto oldest = std::ranges::min_element(
        manifests_, {}, [](const auto& entry) { return entry.second.used_at; });
    layers_ -= oldest->second.parsed.image.layers.size();
    manifests_.erase(oldest);
    ++version_;
  }
}

}  // namespace imagefs_guard
