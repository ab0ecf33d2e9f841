#pragma once
/// What deleting unused images would give back, and which of them: the least recently used first,
/// no more than it takes. Honest: an image counts with the layers that nothing else needs and whose
/// size has been measured; what is in use, pinned, young, a sandbox's or not to be had again counts
/// nothing. Blobs that a runtime keeps are left out. Computed by decide() and check once per call.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/core/memory.h"
#include "agent/core/node_snapshot.h"

namespace imagefs_guard {

struct ReclaimableImage {
  Digest image_id;
  std::string name;                 // "repo@sha256:…": what it can be pulled again by
  std::vector<std::size_t> layers;  // places in RuntimeState::snapshots

  bool operator==(const ReclaimableImage&) const = default;
};

struct ReclaimChoice {
  std::vector<const ReclaimableImage*> images;
  std::int64_t bytes = 0;  // what they give back together
};

class Reclaimable {
 public:
  /// `wanted`: images that are being pulled or wait: what they share stays. Needs the snapshot's
  /// runtime and pods; without pods nobody knows what is unused, and nothing is reclaimable.
  Reclaimable(const NodeSnapshot& snapshot,
              const Memory& memory,
              const std::vector<const ImageManifest*>& wanted);

  /// All of them together.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  /// What goes with this one even if no other does; a hint, for words.
  [[nodiscard]] std::int64_t bytes_of(const ReclaimableImage& image) const;

  /// Least recently used first.
  [[nodiscard]] const std::vector<ReclaimableImage>& images() const { return images_; }

  /// A smallest set that gives back `needed_bytes`; empty if all together don't.
  [[nodiscard]] ReclaimChoice choose(std::int64_t needed_bytes) const;

 private:
  class Finder;

  std::vector<ReclaimableImage> images_;
  std::vector<std::int64_t> layer_bytes_;  // by place; 0: kept, or not measured
  std::vector<int> users_;                 // by place: how many of images_ need the layer
  std::int64_t bytes_ = 0;
};

/// Layers of images that are here whose size nobody has asked for yet; at most `limit`.
[[nodiscard]] std::vector<Digest> unmeasured_layers(const RuntimeState& runtime, std::size_t limit);

/// Image IDs in use now: named by a bound pod, or stood on by a container. Sorted.
[[nodiscard]] std::vector<Digest> images_in_use(const NodeSnapshot& snapshot);

}  // namespace imagefs_guard
