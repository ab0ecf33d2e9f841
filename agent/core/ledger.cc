// untested: decide_test.cc has its cases.
#include "agent/core/ledger.h"

#include <algorithm>

#include "agent/core/unpacked_size.h"

namespace imagefs_guard {

namespace {

/// Lookup in a vector that is sorted by `key`.
template <typename T, typename Key>
const T* find_sorted(const std::vector<T>& list, const Digest& digest, Key key) {
  const auto found = std::ranges::lower_bound(list, digest, {}, key);
  return found != list.end() && (*found).*key == digest ? &*found : nullptr;
}

/// Of what is reserved for a layer's files: the share of those that are not there yet. What is
/// reserved for the others is missing in what is available already.
std::int64_t still_reserved(const UnpackedSize& size, std::int64_t written_bytes) {
  constexpr std::int64_t kPermille = 1000;
  const std::int64_t whole = std::max<std::int64_t>(size.mid_bytes / kPermille, 1);
  const std::int64_t written = std::clamp<std::int64_t>(written_bytes / whole, 0, kPermille);
  return size.reserved_bytes / kPermille * (kPermille - written);
}

}  // namespace

const char* to_string(LayerPresence presence) {
  switch (presence) {
    case LayerPresence::Missing:
      return "to come";
    case LayerPresence::Downloaded:
      return "downloaded";
    case LayerPresence::Unpacked:
      return "here";
    case LayerPresence::Promised:
      return "shared";
  }
  return "unknown";
}

Ledger::Ledger(const RuntimeState& runtime, FilesystemKind kind, bool discards)
    : runtime_(runtime), kind_(kind), discards_(discards) {
  for (const Ingest& ingest : runtime.ingests) {
    if (const std::optional<Digest> digest = digest_of_ref(ingest.ref)) {
      std::int64_t& bytes = ingest_bytes_[*digest];
      if (bytes == 0) {  // of several the first that has bytes
        bytes = std::max<std::int64_t>(ingest.offset_bytes, 0);
      }
    }
  }
}

bool Ledger::has_ingest(const Digest& blob) const {
  return ingest_bytes_.contains(blob);
}

std::int64_t Ledger::ingest_bytes(const Digest& blob) const {
  const auto found = ingest_bytes_.find(blob);
  return found != ingest_bytes_.end() ? found->second : 0;
}

bool Ledger::has_chain(const Digest& chain_id) const {
  if (chain_id.is_zero()) {
    return false;  // the config does not say: not here, as far as anybody can tell
  }
  return find_sorted(runtime_.snapshots, chain_id, &LayerSnapshot::chain_id) != nullptr ||
         claimed_chains_.contains(chain_id);
}

std::int64_t Ledger::blob_bytes_here(const Digest& digest) const {
  if (const LocalBlob* blob = find_sorted(runtime_.blobs, digest, &LocalBlob::digest)) {
    return blob->bytes;
  }
  return ingest_bytes(digest);
}

std::size_t Ledger::first_missing(const ImageManifest& manifest) const {
  // A chain ID names a layer with everything below it, so the topmost that is here decides.
  for (std::size_t i = manifest.layers.size(); i > 0; --i) {
    if (has_chain(manifest.layers[i - 1].chain_id)) {
      return i;
    }
  }
  return 0;
}

LayerDemand Ledger::missing_layer(const Layer& layer, bool repeats) const {
  LayerDemand demand{.digest = layer.digest,
                     .compressed_bytes = layer.compressed_bytes,
                     .size = estimate_unpacked(layer, kind_)};
  const bool comes_with_another = repeats || claimed_blobs_.contains(layer.digest);
  if (!comes_with_another) {
    demand.here_bytes = std::min(blob_bytes_here(layer.digest), layer.compressed_bytes);
    demand.download_bytes = layer.compressed_bytes - demand.here_bytes;
  }
  if (demand.download_bytes == 0) {
    demand.presence = LayerPresence::Downloaded;
  }
  if (const ActiveExtract* extract =
          find_sorted(runtime_.extracts, layer.chain_id, &ActiveExtract::chain_id)) {
    demand.written_bytes = std::max<std::int64_t>(extract->unpacked_bytes, 0);
  }
  return demand;
}

Demand Ledger::demand_of(const ImageManifest& manifest) const {
  Demand demand;
  demand.layers = static_cast<int>(manifest.layers.size());
  std::set<Digest> own;
  for (std::size_t i = first_missing(manifest); i < manifest.layers.size(); ++i) {
    const Layer& layer = manifest.layers[i];
    const LayerDemand missing = missing_layer(layer, !own.insert(layer.digest).second);
    ++demand.layers_missing;
    demand.download_bytes += missing.download_bytes;
    if (discards_) {
      demand.discarded_bytes += missing.download_bytes + missing.here_bytes;
      demand.here_discarded_bytes += missing.here_bytes;
    }
    const UnpackedSize& size = missing.size;
    ++demand.layers_by_source[static_cast<std::size_t>(size.source)];
    demand.layers_by_prior += size.source == SizeSource::Prior ? 1 : 0;
    demand.pending_bytes += layer.size_pending ? layer.compressed_bytes : 0;
    const std::int64_t written = missing.written_bytes;
    demand.unpack_low_bytes += std::max<std::int64_t>(size.low_bytes - written, 0);
    demand.unpack_mid_bytes += std::max<std::int64_t>(size.mid_bytes - written, 0);
    demand.unpack_high_bytes += std::max<std::int64_t>(size.high_bytes - written, 0);
    demand.reserved_bytes += still_reserved(size, written);
    demand.inodes += size.inodes;
  }
  return demand;
}

std::vector<LayerDemand> Ledger::layers_of(const ImageManifest& manifest) const {
  std::vector<LayerDemand> layers;
  const std::size_t missing = first_missing(manifest);
  std::set<Digest> own;
  for (std::size_t i = 0; i < manifest.layers.size(); ++i) {
    const Layer& layer = manifest.layers[i];
    if (i >= missing) {
      layers.push_back(missing_layer(layer, !own.insert(layer.digest).second));
      continue;
    }
    const bool here =
        find_sorted(runtime_.snapshots, layer.chain_id, &LayerSnapshot::chain_id) != nullptr;
    const bool promised = !here && claimed_chains_.contains(layer.chain_id);
    layers.push_back({.digest = layer.digest,
                      .compressed_bytes = layer.compressed_bytes,
                      .presence = promised ? LayerPresence::Promised : LayerPresence::Unpacked});
  }
  return layers;
}

void Ledger::claim(const ImageManifest& manifest) {
  for (std::size_t i = first_missing(manifest); i < manifest.layers.size(); ++i) {
    claimed_blobs_.insert(manifest.layers[i].digest);
  }
  settle(manifest);
}

void Ledger::settle(const ImageManifest& manifest) {
  for (const Layer& layer : manifest.layers) {
    if (!layer.chain_id.is_zero()) {
      claimed_chains_.insert(layer.chain_id);
    }
  }
}

std::int64_t Ledger::leftover_bytes(const std::vector<ImageManifest>& manifests,
                                    const std::vector<Digest>& live) const {
  std::set<Digest> seen;
  for (const ImageManifest& manifest : manifests) {
    if (std::ranges::find(live, manifest.manifest_digest) != live.end()) {
      for (const Layer& layer : manifest.layers) {
        seen.insert(layer.digest);
      }
    }
  }
  std::int64_t bytes = 0;
  for (const Ingest& ingest : runtime_.ingests) {
    const bool leased = std::ranges::any_of(runtime_.leases, [&](const PullLease& lease) {
      return std::ranges::find(lease.ingest_refs, ingest.ref) != lease.ingest_refs.end();
    });
    const std::optional<Digest> digest = digest_of_ref(ingest.ref);
    bytes += leased || (digest && seen.contains(*digest)) ? 0 : ingest.offset_bytes;
  }
  for (const ImageManifest& manifest : manifests) {
    for (const Layer& layer : manifest.layers) {
      const LocalBlob* blob = find_sorted(runtime_.blobs, layer.digest, &LocalBlob::digest);
      if (blob != nullptr && !has_chain(layer.chain_id) && seen.insert(layer.digest).second) {
        bytes += blob->bytes;
      }
    }
  }
  return bytes;
}

std::int64_t Ledger::settling_bytes(const std::vector<ImageManifest>& manifests) const {
  if (!discards_) {
    return 0;
  }
  std::set<Digest> seen;
  std::int64_t bytes = 0;
  for (const ImageManifest& manifest : manifests) {
    for (const Layer& layer : manifest.layers) {
      const LocalBlob* blob = find_sorted(runtime_.blobs, layer.digest, &LocalBlob::digest);
      if (blob != nullptr && has_chain(layer.chain_id) && seen.insert(layer.digest).second) {
        bytes += blob->bytes;
      }
    }
  }
  return bytes;
}

}  // namespace imagefs_guard
