// untested: decide_test.cc and check_test.cc have its cases.
#include "agent/core/room.h"

namespace imagefs_guard {

Room::Room(const RoomSetup& setup)
    : setup_(setup),
      ledger_(setup.runtime, setup.device.kind, setup.discards),
      settled_(setup.runtime, setup.device.kind, setup.discards),
      settled_available_(setup.device.available_bytes + ledger_.settling_bytes(setup.manifests)),
      settled_inodes_(setup.device.inodes_free) {}

Demand Room::demand_of(const ImageManifest& manifest) const {
  return ledger_.demand_of(manifest);
}

Balance Room::balance(const ImageManifest& manifest, const Demand& demand) const {
  const Demand later = settled_.demand_of(manifest);
  return {.available = setup_.device.available_bytes,
          .floor = setup_.floor.bytes,
          .outstanding = outstanding_,
          .peak = demand.peak_high_bytes(),
          .steady = later.steady_high_bytes(setup_.discards),
          .reclaimable = setup_.reclaimable_bytes,
          .here_discarded = demand.here_discarded_bytes,
          .settled_available = settled_available_,
          .settled_peak = later.peak_high_bytes()};
}

Verdict Room::inodes_verdict(const Demand& demand) const {
  if (setup_.device.inodes <= 0) {
    return Verdict::Fits;  // filesystems without a fixed number of inodes report 0
  }
  return judge({.available = setup_.device.inodes_free,
                .floor = setup_.floor.inodes,
                .outstanding = outstanding_inodes_,
                .peak = demand.inodes,
                .steady = demand.inodes,
                .settled_available = settled_inodes_,
                .settled_peak = demand.inodes});
}

Room::Judgement Room::verdict(const ImageManifest& manifest, const Demand& demand) const {
  const Verdict by_bytes = judge(balance(manifest, demand));
  const Verdict both = worse(by_bytes, inodes_verdict(demand));
  return {.verdict = both, .by_inodes = both != by_bytes};
}

bool Room::fits_by_middle(const Demand& demand) const {
  return setup_.device.available_bytes - outstanding_mid_ - demand.peak_mid_bytes() >=
         setup_.floor.bytes;
}

std::int64_t Room::settled_after(const Demand& demand) const {
  return settled_available_ + demand.discarded_bytes - demand.lasting_high_bytes();
}

std::int64_t Room::smallest_volume_gib(std::int64_t peak_bytes) const {
  return imagefs_guard::smallest_volume_gib(
      {.capacity_bytes = setup_.device.capacity_bytes,
       .available_bytes = setup_.device.available_bytes - outstanding_,
       .reclaimable_bytes = setup_.reclaimable_bytes,
       .peak_bytes = peak_bytes,
       .threshold = setup_.floor.threshold,
       .floor_margin_bytes = setup_.floor_margin_bytes});
}

void Room::commit(const ImageManifest& manifest, const Demand& demand) {
  ledger_.claim(manifest);
  settled_.settle(manifest);
  outstanding_ += demand.peak_high_bytes();
  outstanding_mid_ += demand.peak_mid_bytes();
  outstanding_inodes_ += demand.inodes;
  settled_available_ += demand.discarded_bytes - demand.lasting_high_bytes();
  settled_inodes_ -= demand.inodes;
}

}  // namespace imagefs_guard
