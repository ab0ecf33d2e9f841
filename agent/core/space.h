#pragma once
/// What takes the bytes of the image filesystem, as far as the runtime's records tell. Computed on
/// demand, by audit() and for the status page; no decision rests on it.

#include <cstdint>
#include <optional>

#include "agent/core/decision.h"
#include "agent/core/node_snapshot.h"

namespace imagefs_guard {

/// Parts that don't overlap; together with the free bytes they make the capacity.
struct SpaceUse {
  std::int64_t images_bytes = 0;  // unpacked layers of images that stay: in use, pinned or young
  std::optional<std::int64_t> reclaimable_bytes;  // of unused images; absent: pods not seen
  std::int64_t blobs_bytes = 0;                   // compressed layers and configs that stay
  std::int64_t in_flight_bytes = 0;               // downloads and layers of pulls under way
  std::int64_t leftover_bytes = 0;                // of no image, container or pull
  /// The rest: containers' writable layers, logs, volumes, the system, the filesystem itself.
  /// Below zero: the runtime's images are on another device.
  std::int64_t other_bytes = 0;
  int layers_unmeasured = 0;  // nobody has said their size yet: their bytes are among the others

  bool operator==(const SpaceUse&) const = default;
};

/// Absent without the filesystem or the runtime.
[[nodiscard]] std::optional<SpaceUse> account_space(const NodeSnapshot& snapshot,
                                                    const Decision& decision);

/// Bytes of the image's own layers, unpacked: `top` and all below it. Absent where one of them has
/// not been measured.
[[nodiscard]] std::optional<std::int64_t> unpacked_bytes_below(const RuntimeState& runtime,
                                                               const Digest& top);

}  // namespace imagefs_guard
