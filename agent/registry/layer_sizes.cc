#include "agent/registry/layer_sizes.h"

#include <algorithm>
#include <utility>

#include "agent/core/unpacked_size.h"

namespace imagefs_guard {

namespace {

/// Blocks that a filesystem can have; anything else is taken for the usual one.
constexpr std::int64_t kBlockMinimum = 512;
constexpr std::int64_t kBlockUsual = 4096;
constexpr std::int64_t kBlockMaximum = 65'536;
/// Layers asked about at once: enough to hide round trips, few enough to be polite.
constexpr std::size_t kProbesAtOnce = 6;
constexpr std::size_t kQueueMaximum = 1024;
constexpr std::size_t kKnownMaximum = 20'000;
/// A pull may be held for the answer so long: a registry that is slower gets judged by the prior.
constexpr Duration kWorthWaiting = std::chrono::seconds(3);
/// Even a few kilobytes can be zeros for megabytes; below this there is not even a tar.
constexpr std::int64_t kWorthAsking = 64;

/// A table of contents comes in up to 64 pieces; what is not there by then makes room for others.
constexpr Duration kProbeDeadline = std::chrono::seconds(60);
constexpr Duration kRetryPause = std::chrono::seconds(30);
/// Where the registry or the policy says no, asking again soon changes nothing.
constexpr Duration kFinalPause = std::chrono::hours(6);

bool is_final(ErrorKind kind) {
  return kind == ErrorKind::Unimplemented || kind == ErrorKind::FailedPrecondition ||
         kind == ErrorKind::PermissionDenied || kind == ErrorKind::NotFound;
}

bool has_source(const Layer& layer, SizeSource source) {
  return std::ranges::find(layer.facts, source, &SizeFact::source) != layer.facts.end();
}

/// Nothing that can be believed is known but what its manifest claims. The filesystem's kind does
/// not matter for that.
bool is_guess(const Layer& layer) {
  const SizeSource source = estimate_unpacked(layer, FilesystemKind::Other).source;
  return source == SizeSource::Prior || source == SizeSource::Annotation;
}

std::int64_t block_bytes_of(const NodeSnapshot& snapshot) {
  if (snapshot.filesystems.has_value()) {
    const auto found = std::ranges::find(*snapshot.filesystems, true, &Filesystem::holds_images);
    if (found != snapshot.filesystems->end() && found->block_bytes >= kBlockMinimum &&
        found->block_bytes <= kBlockMaximum) {
      return found->block_bytes;
    }
  }
  return kBlockUsual;
}

bool is_here(const RuntimeState& runtime, const ImageManifest& manifest) {
  return manifest.layers.empty() ||
         std::ranges::binary_search(
             runtime.snapshots, manifest.layers.back().chain_id, {}, &LayerSnapshot::chain_id);
}

}  // namespace

LayerSizes::LayerSizes(RegistryClient& client, std::function<void()> changed)
    : client_(client), changed_(std::move(changed)) {}

void LayerSizes::contribute(NodeSnapshot& snapshot) {
  has_news_ = false;
  taken_at_ = snapshot.taken_at;
  ended_.clear();
  block_bytes_ = block_bytes_of(snapshot);
  end_overdue();
  if (snapshot.runtime.has_value()) {
    want_missing(snapshot);
    next();
  }
  for (ImageManifest& manifest : snapshot.manifests) {
    for (Layer& layer : manifest.layers) {
      const auto known = known_.find(layer.digest);
      if (known != known_.end() && known->second.fact.has_value() &&
          !has_source(layer, known->second.fact->source)) {
        layer.facts.push_back(*known->second.fact);
      }
      const auto asked = asked_.find(layer.digest);
      layer.size_pending = asked != asked_.end() && taken_at_ - asked->second < kWorthWaiting;
    }
  }
}

void LayerSizes::want_missing(const NodeSnapshot& snapshot) {
  for (const ResolvedImage& image : snapshot.resolved) {
    if (!image.manifest_digest.has_value()) {
      continue;
    }
    const auto manifest = std::ranges::lower_bound(
        snapshot.manifests, *image.manifest_digest, {}, &ImageManifest::manifest_digest);
    if (manifest != snapshot.manifests.end() &&
        manifest->manifest_digest == *image.manifest_digest &&
        !is_here(*snapshot.runtime, *manifest)) {
      want(image, *manifest);
    }
  }
}

void LayerSizes::want(const ResolvedImage& image, const ImageManifest& manifest) {
  std::vector<const Layer*> layers;
  for (const Layer& layer : manifest.layers) {
    const bool readable =
        layer.compression == LayerCompression::Gzip || layer.compression == LayerCompression::Zstd;
    if (readable && layer.compressed_bytes >= kWorthAsking && !layer.foreign &&
        !asked_.contains(layer.digest) && may_ask(layer.digest) && is_guess(layer)) {
      layers.push_back(&layer);
    }
  }
  // The large ones decide: first.
  std::ranges::stable_sort(layers, std::ranges::greater{}, &Layer::compressed_bytes);
  const CachedManifest* cached = client_.cache().find(manifest.manifest_digest);
  for (const Layer* layer : layers) {
    if (queue_.size() >= kQueueMaximum || !asked_.emplace(layer->digest, taken_at_).second) {
      continue;
    }
    const auto index = static_cast<std::size_t>(layer - manifest.layers.data());
    LayerHints hints;
    if (cached != nullptr && index < cached->parsed.hints.size()) {
      hints = cached->parsed.hints[index];
    }
    queue_.push_back({.image = image.image,
                      .digest = layer->digest,
                      .compressed_bytes = layer->compressed_bytes,
                      .compression = layer->compression,
                      .hints = std::move(hints),
                      .block_bytes = block_bytes_});
  }
}

void LayerSizes::next() {
  while (running_.size() < kProbesAtOnce && !queue_.empty()) {
    const Digest digest = queue_.front().digest;
    auto probe = std::make_unique<LayerProbe>(
        client_, std::move(queue_.front()), [this, digest](Result<SizeFact> fact) {
          finish(digest, std::move(fact));
        });
    queue_.pop_front();
    LayerProbe& started = *probe;
    running_[digest] = {.probe = std::move(probe), .since = taken_at_};
    started.start();
  }
}

/// A registry that drips must not keep a place for ever.
void LayerSizes::end_overdue() {
  std::vector<Digest> overdue;
  for (const auto& [digest, running] : running_) {
    if (taken_at_ - running.since >= kProbeDeadline) {
      overdue.push_back(digest);
    }
  }
  for (const Digest& digest : overdue) {
    finish(digest, Error{ErrorKind::DeadlineExceeded, "the layer's registry is too slow"});
  }
  ended_.clear();  // not on the stack here: silent from now on
}

void LayerSizes::finish(const Digest& digest, Result<SizeFact> fact) {
  if (known_.size() >= kKnownMaximum) {
    known_.clear();  // only means that something is asked twice
  }
  Known& known = known_[digest];
  asked_.erase(digest);
  const auto running = running_.find(digest);
  if (running != running_.end()) {
    ended_.push_back(std::move(running->second.probe));
    running_.erase(running);
  }
  if (fact) {
    known.fact = *fact;
  } else {
    known.ask_again = taken_at_ + (is_final(fact.error().kind) ? kFinalPause : kRetryPause);
  }
  // Also without a fact: a pull may be held until its last layer has been asked about.
  if (!has_news_) {
    has_news_ = true;
    changed_();
  }
  next();
}

bool LayerSizes::may_ask(const Digest& digest) const {
  const auto known = known_.find(digest);
  return known == known_.end() ||
         (!known->second.fact.has_value() && known->second.ask_again <= taken_at_);
}

}  // namespace imagefs_guard
