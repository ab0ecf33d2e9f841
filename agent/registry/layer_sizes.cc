#include "agent/registry/layer_sizes.h"

#include <algorithm>
#include <utility>

#include "agent/wire/tar_sample.h"

namespace imagefs_guard {

namespace {

/// Layers asked about at once: enough to hide round trips, few enough to be polite.
constexpr int kProbesAtOnce = 6;
constexpr std::size_t kQueueMaximum = 1024;
constexpr std::size_t kKnownMaximum = 20'000;
/// CRC32 and ISIZE end a gzip member.
constexpr std::int64_t kTrailerBytes = 8;
/// Inflates to some hundred headers of small files, or to the one header of a big one.
constexpr std::int64_t kHeadBytes = 32 * 1024;
/// A pull may be held for the answer so long: a registry that is slower gets judged by the prior.
constexpr Duration kWorthWaiting = std::chrono::seconds(3);
/// Even a few kilobytes can be zeros for megabytes; below this there is not even a tar.
constexpr std::int64_t kWorthAsking = 64;

constexpr Duration kRetryPause = std::chrono::seconds(30);
/// Where the registry or the policy says no, asking again soon changes nothing.
constexpr Duration kFinalPause = std::chrono::hours(6);

bool is_final(ErrorKind kind) {
  return kind == ErrorKind::Unimplemented || kind == ErrorKind::FailedPrecondition ||
         kind == ErrorKind::PermissionDenied || kind == ErrorKind::NotFound;
}

std::int64_t little_endian(std::string_view bytes) {
  std::int64_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) {
    value = value * 256 + static_cast<unsigned char>(bytes[i - 1]);
  }
  return value;
}

bool has_fact(const Layer& layer) {
  return std::ranges::any_of(
      layer.facts, [](const SizeFact& fact) { return fact.source != SizeSource::Annotation; });
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
  if (snapshot.runtime.has_value()) {
    want_missing(snapshot);
    next();
  }
  for (ImageManifest& manifest : snapshot.manifests) {
    for (Layer& layer : manifest.layers) {
      const auto known = known_.find(layer.digest);
      if (known != known_.end() && known->second.fact.has_value() && !has_fact(layer)) {
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
    if (layer.compression == LayerCompression::Gzip && layer.compressed_bytes >= kWorthAsking &&
        !layer.foreign && !has_fact(layer) && !asked_.contains(layer.digest) &&
        may_ask(layer.digest)) {
      layers.push_back(&layer);
    }
  }
  // The large ones decide: first.
  std::ranges::stable_sort(layers, std::ranges::greater{}, &Layer::compressed_bytes);
  for (const Layer* layer : layers) {
    if (queue_.size() < kQueueMaximum && asked_.emplace(layer->digest, taken_at_).second) {
      queue_.push_back({.image = image.image,
                        .digest = layer->digest,
                        .compressed_bytes = layer->compressed_bytes});
    }
  }
}

void LayerSizes::next() {
  while (running_ < kProbesAtOnce && !queue_.empty()) {
    const Probe probe = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    // A small blob is asked for as a whole: its end is the trailer, its beginning the headers.
    const bool small = probe.compressed_bytes <= kHeadBytes;
    const std::int64_t offset = small ? 0 : probe.compressed_bytes - kTrailerBytes;
    client_.blob_range(
        probe.image,
        {.digest = probe.digest, .offset = offset, .length = probe.compressed_bytes - offset},
        [this, probe, alive = std::weak_ptr<char>(alive_)](Result<std::string> bytes) {
          if (!alive.expired()) {
            on_trailer(probe, std::move(bytes));
          }
        });
  }
}

void LayerSizes::on_trailer(const Probe& probe, Result<std::string> bytes) {
  if (!bytes || bytes->size() < static_cast<std::size_t>(kTrailerBytes)) {
    finish(probe.digest, bytes ? Error{ErrorKind::Internal, "short trailer"} : bytes.error());
    return;
  }
  const SizeFact fact{.source = SizeSource::GzipTrailer,
                      .bytes = little_endian(std::string_view(*bytes).substr(bytes->size() - 4))};
  if (probe.compressed_bytes <= kHeadBytes) {
    on_head(probe, fact, std::move(bytes));
    return;
  }
  client_.blob_range(
      probe.image,
      {.digest = probe.digest, .offset = 0, .length = std::min(kHeadBytes, probe.compressed_bytes)},
      [this, probe, fact, alive = std::weak_ptr<char>(alive_)](Result<std::string> head) {
        if (!alive.expired()) {
          on_head(probe, fact, std::move(head));
        }
      });
}

void LayerSizes::on_head(const Probe& probe, SizeFact fact, Result<std::string> bytes) {
  if (bytes) {
    if (const auto sample = sample_gzip_tar(*bytes); sample && sample->tar_bytes > 0) {
      fact.sampled_tar_bytes = sample->tar_bytes;
      fact.sampled_disk_bytes = sample->disk_bytes;
      fact.inodes = sample->inodes;
    }
  }
  finish(probe.digest, fact);
}

void LayerSizes::finish(const Digest& digest, Result<SizeFact> fact) {
  if (known_.size() >= kKnownMaximum) {
    known_.clear();  // only means that something is asked twice
  }
  Known& known = known_[digest];
  asked_.erase(digest);
  --running_;
  if (fact) {
    known.fact = *fact;
    if (!has_news_) {
      has_news_ = true;
      changed_();
    }
  } else {
    known.ask_again = taken_at_ + (is_final(fact.error().kind) ? kFinalPause : kRetryPause);
  }
  next();
}

bool LayerSizes::may_ask(const Digest& digest) const {
  const auto known = known_.find(digest);
  return known == known_.end() ||
         (!known->second.fact.has_value() && known->second.ask_again <= taken_at_);
}

}  // namespace imagefs_guard
