#pragma once
/// Who owes which bytes: what a pull has yet to write on this node, with every blob counted once
/// per digest and every unpacked layer once per chain ID over all pulls. Built by decide() once
/// per tick; pulls claim in the order in which they go.

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "agent/core/node_snapshot.h"
#include "agent/core/unpacked_size.h"

namespace imagefs_guard {

/// Missing: to be downloaded and unpacked. Downloaded: its blob is here, or comes with another
/// layer. Unpacked: nothing to do. Promised: another pull brings it.
enum class LayerPresence { Missing, Downloaded, Unpacked, Promised };

/// "to come", "downloaded", "here", "shared": for tables.
[[nodiscard]] const char* to_string(LayerPresence presence);

/// What one layer adds; sums of these are a Demand.
struct LayerDemand {
  Digest digest;
  std::int64_t compressed_bytes = 0;
  LayerPresence presence = LayerPresence::Missing;
  std::int64_t download_bytes = 0;  // of its blob, not yet written and not with another layer
  std::int64_t here_bytes = 0;      // of its blob, counted once
  UnpackedSize size;                // the whole layer; not estimated where nothing is to be done
  std::int64_t written_bytes = 0;   // of it, unpacked already

  bool operator==(const LayerDemand&) const = default;
};

/// What one pull adds to what is here and to what others have claimed already.
struct Demand {
  std::int64_t download_bytes = 0;  // compressed, not yet written
  std::int64_t unpack_low_bytes = 0;
  std::int64_t unpack_mid_bytes = 0;
  std::int64_t unpack_high_bytes = 0;
  /// XFS: taken while the files are new, given back when they are written; see UnpackedSize.
  std::int64_t reserved_bytes = 0;
  std::int64_t inodes = 0;
  /// Blobs (here, arriving or to come) that the runtime drops when the image is unpacked.
  std::int64_t discarded_bytes = 0;
  std::int64_t here_discarded_bytes = 0;  // those of them that are here now, whole or in part
  int layers = 0;
  int layers_missing = 0;
  int layers_by_prior = 0;  // missing layers of which nobody knows the size
  /// Missing layers by where their unpacked size comes from; index: SizeSource.
  std::array<int, kSizeSources> layers_by_source{};
  std::int64_t pending_bytes = 0;  // compressed bytes of layers whose size is being asked for

  bool operator==(const Demand&) const = default;

  /// The least that is free meanwhile is so much less: what the kubelet may see.
  [[nodiscard]] std::int64_t peak_high_bytes() const {
    return lasting_high_bytes() + reserved_bytes;
  }

  /// What is written at the peak, high side.
  [[nodiscard]] std::int64_t lasting_high_bytes() const {
    return download_bytes + unpack_high_bytes;
  }

  [[nodiscard]] std::int64_t peak_mid_bytes() const { return download_bytes + unpack_mid_bytes; }

  /// What remains of the written bytes at the end: the high side.
  [[nodiscard]] std::int64_t steady_high_bytes(bool discards) const {
    return discards ? unpack_high_bytes : lasting_high_bytes();
  }
};

class Ledger {
 public:
  /// `runtime` must outlive the ledger.
  Ledger(const RuntimeState& runtime, FilesystemKind kind, bool discards);

  /// Additional demand of this image, beside what is here and what has been claimed.
  [[nodiscard]] Demand demand_of(const ImageManifest& manifest) const;

  /// The same layer by layer, all of them.
  [[nodiscard]] std::vector<LayerDemand> layers_of(const ImageManifest& manifest) const;

  /// The image's pull will write these: nobody else counts them again.
  void claim(const ImageManifest& manifest);

  /// The image's pull will have finished: its layers are here, its blobs are gone (or stay).
  void settle(const ImageManifest& manifest);

  /// Blobs of known images that lie around although their layer is unpacked: containerd's
  /// garbage collection is due to take them.
  [[nodiscard]] std::int64_t settling_bytes(const std::vector<ImageManifest>& manifests) const;

  /// What failed pulls have left: layers' blobs that nobody has unpacked and downloads without a
  /// pull. Counts as downloaded for its own image, for nobody as reclaimable. `live`: manifests
  /// that are being pulled.
  [[nodiscard]] std::int64_t leftover_bytes(const std::vector<ImageManifest>& manifests,
                                            const std::vector<Digest>& live) const;

  [[nodiscard]] bool has_chain(const Digest& chain_id) const;

  /// Whether this blob is being downloaded, be it at its first byte.
  [[nodiscard]] bool has_ingest(const Digest& blob) const;

  /// Bytes of this blob that a download has written so far.
  [[nodiscard]] std::int64_t ingest_bytes(const Digest& blob) const;

 private:
  [[nodiscard]] std::int64_t blob_bytes_here(const Digest& digest) const;
  [[nodiscard]] std::size_t first_missing(const ImageManifest& manifest) const;
  /// `repeats`: an earlier layer of the image has the same blob.
  [[nodiscard]] LayerDemand missing_layer(const Layer& layer, bool repeats) const;

  const RuntimeState& runtime_;
  FilesystemKind kind_;
  bool discards_;
  std::map<Digest, std::int64_t> ingest_bytes_;  // by blob: refs are read once, not per layer
  std::set<Digest> claimed_blobs_;
  std::set<Digest> claimed_chains_;
};

}  // namespace imagefs_guard
