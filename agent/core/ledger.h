#pragma once
/// Who owes which bytes: what a pull has yet to write on this node, with every blob counted once
/// per digest and every unpacked layer once per chain ID over all pulls. Built by decide() once
/// per tick; pulls claim in the order in which they go.

#include <array>
#include <cstdint>
#include <set>

#include "agent/core/node_snapshot.h"

namespace imagefs_guard {

/// What one pull adds to what is here and to what others have claimed already.
struct Demand {
  std::int64_t download_bytes = 0;  // compressed, not yet written
  std::int64_t unpack_low_bytes = 0;
  std::int64_t unpack_mid_bytes = 0;
  std::int64_t unpack_high_bytes = 0;
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

  [[nodiscard]] std::int64_t peak_high_bytes() const { return download_bytes + unpack_high_bytes; }

  [[nodiscard]] std::int64_t peak_mid_bytes() const { return download_bytes + unpack_mid_bytes; }

  /// What remains of the written bytes at the end: the high side.
  [[nodiscard]] std::int64_t steady_high_bytes(bool discards) const {
    return discards ? unpack_high_bytes : peak_high_bytes();
  }
};

class Ledger {
 public:
  /// `runtime` must outlive the ledger.
  Ledger(const RuntimeState& runtime, FilesystemKind kind, bool discards);

  /// Additional demand of this image, beside what is here and what has been claimed.
  [[nodiscard]] Demand demand_of(const ImageManifest& manifest) const;

  /// The image's pull will write these: nobody else counts them again.
  void claim(const ImageManifest& manifest);

  /// The image's pull will have finished: its layers are here, its blobs are gone (or stay).
  void settle(const ImageManifest& manifest);

  /// Blobs of known images that lie around although their layer is unpacked: containerd's
  /// garbage collection is due to take them.
  [[nodiscard]] std::int64_t settling_bytes(const std::vector<ImageManifest>& manifests) const;

  [[nodiscard]] bool has_chain(const Digest& chain_id) const;

 private:
  [[nodiscard]] std::int64_t blob_bytes_here(const Digest& digest) const;
  [[nodiscard]] std::size_t first_missing(const ImageManifest& manifest) const;

  const RuntimeState& runtime_;
  FilesystemKind kind_;
  bool discards_;
  std::set<Digest> claimed_blobs_;
  std::set<Digest> claimed_chains_;
};

}  // namespace imagefs_guard
