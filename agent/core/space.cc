#include "agent/core/space.h"

#include <algorithm>
#include <set>
#include <vector>

#include "agent/core/reclaim.h"

namespace imagefs_guard {

namespace {

const LayerSnapshot* find_layer(const RuntimeState& runtime, const Digest& chain_id) {
  const auto found =
      std::ranges::lower_bound(runtime.snapshots, chain_id, {}, &LayerSnapshot::chain_id);
  return !chain_id.is_zero() && found != runtime.snapshots.end() && found->chain_id == chain_id
             ? &*found
             : nullptr;
}

/// Layers that an image or a container stands on.
class Owned {
 public:
  explicit Owned(const RuntimeState& runtime)
      : runtime_(runtime), owned_(runtime.snapshots.size()) {
    for (const LocalImage& image : runtime.images) {
      all_known_ = all_known_ && !image.top_chain.is_zero();
      mark(image.top_chain);
    }
    for (const Digest& chain_id : runtime.used_chains) {
      mark(chain_id);
    }
  }

  /// Bytes of measured layers that nothing stands on; 0 while some image's layers aren't known.
  [[nodiscard]] std::int64_t orphan_bytes() const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; all_known_ && i < owned_.size(); ++i) {
      bytes += owned_[i] ? 0 : std::max<std::int64_t>(runtime_.snapshots[i].unpacked_bytes, 0);
    }
    return bytes;
  }

 private:
  void mark(const Digest& top) {
    for (const LayerSnapshot* layer = find_layer(runtime_, top); layer != nullptr;
         layer = find_layer(runtime_, layer->parent)) {
      const auto place = static_cast<std::size_t>(layer - runtime_.snapshots.data());
      if (owned_[place]) {
        return;  // and all below it
      }
      owned_[place] = true;
    }
  }

  const RuntimeState& runtime_;
  std::vector<bool> owned_;
  bool all_known_ = true;
};

/// Whose compressed layers lie there: those of pulls under way, and those of failed ones.
class Contents {
 public:
  Contents(const NodeSnapshot& snapshot, SpaceUse& use) : runtime_(*snapshot.runtime), use_(use) {
    for (const ImageManifest& manifest : snapshot.manifests) {
      sort_layers(manifest);
    }
  }

  void add_all() {
    for (const LocalBlob& blob : runtime_.blobs) {
      std::int64_t& part = live_.contains(blob.digest)    ? use_.in_flight_bytes
                           : stale_.contains(blob.digest) ? use_.leftover_bytes
                                                          : use_.blobs_bytes;
      part += blob.bytes;
    }
    for (const Ingest& ingest : runtime_.ingests) {
      (is_live(ingest) ? use_.in_flight_bytes : use_.leftover_bytes) += ingest.offset_bytes;
    }
    for (const ActiveExtract& extract : runtime_.extracts) {
      use_.in_flight_bytes += std::max<std::int64_t>(extract.unpacked_bytes, 0);
    }
  }

 private:
  void sort_layers(const ImageManifest& manifest) {
    const bool live = std::ranges::any_of(runtime_.leases, [&](const PullLease& lease) {
      return std::ranges::find(lease.content, manifest.manifest_digest) != lease.content.end();
    });
    for (const Layer& layer : manifest.layers) {
      if (live) {
        live_.insert(layer.digest);
      } else if (find_layer(runtime_, layer.chain_id) == nullptr) {
        stale_.insert(layer.digest);
      }
    }
  }

  [[nodiscard]] bool is_live(const Ingest& ingest) const {
    const std::optional<Digest> digest = digest_of_ref(ingest.ref);
    return (digest.has_value() && live_.contains(*digest)) ||
           std::ranges::any_of(runtime_.leases, [&](const PullLease& lease) {
             return std::ranges::find(lease.ingest_refs, ingest.ref) != lease.ingest_refs.end();
           });
  }

  const RuntimeState& runtime_;
  SpaceUse& use_;
  std::set<Digest> live_;
  std::set<Digest> stale_;
};

}  // namespace

std::optional<std::int64_t> unpacked_bytes_below(const RuntimeState& runtime, const Digest& top) {
  const LayerSnapshot* layer = find_layer(runtime, top);
  if (layer == nullptr) {
    return std::nullopt;
  }
  std::int64_t bytes = 0;
  for (std::size_t depth = 0; layer != nullptr && depth < runtime.snapshots.size(); ++depth) {
    if (layer->unpacked_bytes < 0) {
      return std::nullopt;
    }
    bytes += layer->unpacked_bytes;
    layer = find_layer(runtime, layer->parent);
  }
  return bytes;
}

std::optional<SpaceUse> account_space(const NodeSnapshot& snapshot, const Decision& decision) {
  const std::optional<Filesystem>& device = decision.node.image_filesystem;
  if (!device.has_value() || !snapshot.runtime.has_value()) {
    return std::nullopt;
  }
  SpaceUse use;
  std::int64_t layers_bytes = 0;
  for (const LayerSnapshot& layer : snapshot.runtime->snapshots) {
    use.layers_unmeasured += layer.unpacked_bytes < 0 ? 1 : 0;
    layers_bytes += std::max<std::int64_t>(layer.unpacked_bytes, 0);
  }
  if (snapshot.pods.has_value()) {
    std::vector<const ImageManifest*> wanted;
    for (const ImageManifest& manifest : snapshot.manifests) {
      if (std::ranges::find(decision.pulls,
                            manifest.manifest_digest,
                            &PullReport::manifest_digest) != decision.pulls.end()) {
        wanted.push_back(&manifest);
      }
    }
    use.reclaimable_bytes = Reclaimable(snapshot, decision.memory, wanted).bytes();
  }
  Contents(snapshot, use).add_all();
  // A layer is there before the image that it belongs to: while pulls go on it is theirs.
  const std::int64_t orphans = Owned(*snapshot.runtime).orphan_bytes();
  (snapshot.runtime->leases.empty() ? use.leftover_bytes : use.in_flight_bytes) += orphans;
  use.images_bytes = layers_bytes - orphans - use.reclaimable_bytes.value_or(0);
  use.other_bytes = device->capacity_bytes - device->available_bytes - layers_bytes -
                    use.blobs_bytes - use.in_flight_bytes - use.leftover_bytes + orphans;
  return use;
}

}  // namespace imagefs_guard
