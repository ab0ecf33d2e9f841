#pragma once
/// The room on the image filesystem while pulls take it one after the other: what is free, what is
/// promised, what comes back, and the verdict of the next one. One ledger for decide() and for
/// `check`, so that both say the same of the same pulls.

#include <cstdint>
#include <vector>

#include "agent/core/floor.h"
#include "agent/core/ledger.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/verdict.h"

namespace imagefs_guard {

/// What a room is made of; all of it outlives the room.
struct RoomSetup {
  const RuntimeState& runtime;
  const std::vector<ImageManifest>& manifests;
  const Filesystem& device;
  const Floor& floor;
  bool discards = true;                 // unpacked layers' blobs go away
  std::int64_t floor_margin_bytes = 0;  // part of floor.bytes
  std::int64_t reclaimable_bytes = 0;   // unused images
};

class Room {
 public:
  explicit Room(const RoomSetup& setup);

  /// What the pull adds to what is here and to what is promised.
  [[nodiscard]] Demand demand_of(const ImageManifest& manifest) const;

  /// The same layer by layer, all of them.
  [[nodiscard]] std::vector<LayerDemand> layers_of(const ImageManifest& manifest) const {
    return ledger_.layers_of(manifest);
  }

  [[nodiscard]] bool has_chain(const Digest& chain_id) const { return ledger_.has_chain(chain_id); }

  /// Bytes as the pull meets them. `demand` is demand_of(manifest).
  [[nodiscard]] Balance balance(const ImageManifest& manifest, const Demand& demand) const;

  /// Bytes and inodes together: the worse of the two.
  struct Judgement {
    Verdict verdict = Verdict::Unknown;
    bool by_inodes = false;
  };

  [[nodiscard]] Judgement verdict(const ImageManifest& manifest, const Demand& demand) const;
  /// Whether the middle of the bands fits: enough for a pull that is under way.
  [[nodiscard]] bool fits_by_middle(const Demand& demand) const;
  /// What will be free when all that is promised has settled, and this pull has been at its peak.
  [[nodiscard]] std::int64_t settled_after(const Demand& demand) const;
  /// The smallest volume that takes what is promised and these bytes; 0 = none.
  [[nodiscard]] std::int64_t smallest_volume_gib(std::int64_t peak_bytes) const;

  /// See Ledger; asked before anything is committed.
  [[nodiscard]] std::int64_t leftover_bytes(const std::vector<Digest>& live) const {
    return ledger_.leftover_bytes(setup_.manifests, live);
  }

  /// The pull's bytes are promised from here on.
  void commit(const ImageManifest& manifest, const Demand& demand);

  /// Bytes of a pull that is being ended: nobody else may have them before it has.
  void reserve(const Demand& demand) { outstanding_ += demand.peak_high_bytes(); }

  /// Promised and not yet written, high side.
  [[nodiscard]] std::int64_t outstanding_bytes() const { return outstanding_; }

  [[nodiscard]] std::int64_t available_bytes() const { return setup_.device.available_bytes; }

 private:
  [[nodiscard]] Verdict inodes_verdict(const Demand& demand) const;

  RoomSetup setup_;
  Ledger ledger_;
  Ledger settled_;
  std::int64_t outstanding_ = 0;
  std::int64_t outstanding_mid_ = 0;
  std::int64_t outstanding_inodes_ = 0;
  std::int64_t settled_available_ = 0;
  std::int64_t settled_inodes_ = 0;
};

}  // namespace imagefs_guard
