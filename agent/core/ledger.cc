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

}  // namespace

Ledger::Ledger(const RuntimeState& runtime, FilesystemKind kind, bool discards)
    : runtime_(runtime), kind_(kind), discards_(discards) {}

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
  for (const Ingest& ingest : runtime_.ingests) {
    if (ingest.offset_bytes > 0 && digest_of_ref(ingest.ref) == digest) {
      return ingest.offset_bytes;
    }
  }
  return 0;
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

Demand Ledger::demand_of(const ImageManifest& manifest) const {
  Demand demand;
  demand.layers = static_cast<int>(manifest.layers.size());
  std::set<Digest> own;
  for (std::size_t i = first_missing(manifest); i < manifest.layers.size(); ++i) {
    const Layer& layer = manifest.layers[i];
    ++demand.layers_missing;
    const bool first_use = own.insert(layer.digest).second;
    if (first_use && !claimed_blobs_.contains(layer.digest)) {
      const std::int64_t here = std::min(blob_bytes_here(layer.digest), layer.compressed_bytes);
      demand.download_bytes += layer.compressed_bytes - here;
      if (discards_) {
        demand.discarded_bytes += layer.compressed_bytes;
        demand.here_discarded_bytes += here;
      }
    }
    const UnpackedSize size = estimate_unpacked(layer, kind_);
    ++demand.layers_by_source[static_cast<std::size_t>(size.source)];
    demand.layers_by_prior += size.source == SizeSource::Prior ? 1 : 0;
    demand.pending_bytes += layer.size_pending ? layer.compressed_bytes : 0;
    std::int64_t written = 0;
    if (const ActiveExtract* extract =
            find_sorted(runtime_.extracts, layer.chain_id, &ActiveExtract::chain_id)) {
      written = std::max<std::int64_t>(extract->unpacked_bytes, 0);
    }
    demand.unpack_low_bytes += std::max<std::int64_t>(size.low_bytes - written, 0);
    demand.unpack_mid_bytes += std::max<std::int64_t>(size.mid_bytes - written, 0);
    demand.unpack_high_bytes += std::max<std::int64_t>(size.high_bytes - written, 0);
    demand.inodes += size.inodes;
  }
  return demand;
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
