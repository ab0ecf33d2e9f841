#include "agent/core/reclaim.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "agent/core/lookup.h"

namespace imagefs_guard {

namespace {

/// The kubelet's default: what came a moment ago is about to be used.
constexpr Duration kAgeMinimum = std::chrono::minutes(2);

std::optional<std::size_t> place_of(const RuntimeState& runtime, const Digest& chain_id) {
  const auto found =
      std::ranges::lower_bound(runtime.snapshots, chain_id, {}, &LayerSnapshot::chain_id);
  if (chain_id.is_zero() || found == runtime.snapshots.end() || found->chain_id != chain_id) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(found - runtime.snapshots.begin());
}

/// The layer and all below it, from the top. Bounded: no chain is longer than there are layers.
std::vector<std::size_t> chain_from(const RuntimeState& runtime, const Digest& top) {
  std::vector<std::size_t> chain;
  for (auto at = place_of(runtime, top); at.has_value() && chain.size() < runtime.snapshots.size();
       at = place_of(runtime, runtime.snapshots[*at].parent)) {
    chain.push_back(*at);
  }
  return chain;
}

/// A reference by digest at a registry. What was imported has none, and "localhost/" is nowhere.
bool is_pullable(std::string_view name) {
  const std::string_view domain = name.substr(0, name.find('/'));
  return name.find("@sha256:") != std::string_view::npos && domain.size() < name.size() &&
         domain.find_first_of(".:") != std::string_view::npos && !domain.starts_with("localhost");
}

/// All names of one image.
struct Names {
  std::vector<const LocalImage*> records;
};

std::map<Digest, Names> by_image_id(const RuntimeState& runtime) {
  std::map<Digest, Names> images;
  for (const LocalImage& image : runtime.images) {
    if (!image.image_id.is_zero()) {
      images[image.image_id].records.push_back(&image);
    }
  }
  return images;
}

/// Sorted, each once.
std::vector<std::string_view> names_of_pods(const NodeSnapshot& snapshot) {
  std::vector<std::string_view> names;
  for (const Pod& pod : *snapshot.pods) {
    for (const Container& container : pod.containers) {
      names.emplace_back(container.image);
      names.emplace_back(container.canonical_image);
    }
  }
  std::ranges::sort(names);
  // clang 14 can't read the subranges of libstdc++ 12: no ranges::unique.
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// Manifests that the pods' image names resolve to. Sorted.
std::vector<Digest> manifests_of_pods(const NodeSnapshot& snapshot,
                                      const std::vector<std::string_view>& names) {
  std::vector<Digest> digests;
  for (const ResolvedImage& resolved : snapshot.resolved) {
    if (resolved.manifest_digest.has_value() &&
        std::ranges::binary_search(names, std::string_view(resolved.image))) {
      digests.push_back(*resolved.manifest_digest);
    }
  }
  std::ranges::sort(digests);
  return digests;
}

bool is_named(const Names& image,
              const std::vector<std::string_view>& names,
              const std::vector<Digest>& manifests) {
  const std::string id = to_string(image.records.front()->image_id);
  return std::ranges::binary_search(names, std::string_view(id)) ||
         std::ranges::any_of(image.records, [&](const LocalImage* record) {
           return std::ranges::binary_search(names, std::string_view(record->name)) ||
                  std::ranges::binary_search(manifests, record->target);
         });
}

}  // namespace

std::vector<Digest> unmeasured_layers(const RuntimeState& runtime, std::size_t limit) {
  std::vector<Digest> layers;
  for (const LayerSnapshot& snapshot : runtime.snapshots) {
    if (snapshot.unpacked_bytes < 0 && layers.size() < limit) {
      layers.push_back(snapshot.chain_id);
    }
  }
  return layers;
}

std::vector<Digest> images_in_use(const NodeSnapshot& snapshot) {
  std::vector<Digest> used;
  if (!snapshot.runtime.has_value() || !snapshot.pods.has_value()) {
    return used;
  }
  const std::vector<std::string_view> names = names_of_pods(snapshot);
  const std::vector<Digest> manifests = manifests_of_pods(snapshot, names);
  for (const auto& [id, image] : by_image_id(*snapshot.runtime)) {
    const bool stood_on = std::ranges::any_of(image.records, [&](const LocalImage* record) {
      return std::ranges::binary_search(snapshot.runtime->used_chains, record->top_chain);
    });
    if (stood_on || is_named(image, names, manifests)) {
      used.push_back(id);
    }
  }
  return used;
}

/// Sorts the images into those that stay and those that could go.
class Reclaimable::Finder {
 public:
  Finder(const NodeSnapshot& snapshot, const Memory& memory)
      : snapshot_(snapshot),
        runtime_(*snapshot.runtime),
        memory_(memory),
        kept_(runtime_.snapshots.size()) {}

  void find(const std::vector<const ImageManifest*>& wanted, Reclaimable& out) {
    if (has_strange_newcomer()) {
      return;  // it may stand on any layer; a moment later it is known
    }
    for (const Digest& chain_id : runtime_.used_chains) {
      keep(chain_id);
    }
    for (const ImageManifest* manifest : wanted) {
      for (const Layer& layer : manifest->layers) {
        keep(layer.chain_id);
      }
    }
    const std::vector<Digest> used = images_in_use(snapshot_);
    std::vector<Candidate> candidates;
    for (const auto& [id, names] : by_image_id(runtime_)) {
      if (std::ranges::binary_search(used, id) || !may_go(id, names)) {
        for (const LocalImage* record : names.records) {
          keep(record->top_chain);
        }
      } else {
        candidates.push_back(candidate(id, names));
      }
    }
    std::ranges::sort(candidates, {}, [](const Candidate& one) {
      return std::tuple(one.used_at, one.created_at, one.image.image_id);
    });
    hand_over(std::move(candidates), out);
  }

 private:
  struct Candidate {
    ReclaimableImage image;
    MonotonicTime used_at{};  // the earliest time: never seen in use
    WallTime created_at{};
  };

  /// What stands below a kept layer is kept already.
  void keep(const Digest& top) {
    for (auto at = place_of(runtime_, top); at.has_value() && !kept_[*at];
         at = place_of(runtime_, runtime_.snapshots[*at].parent)) {
      kept_[*at] = true;
    }
  }

  /// An image so new that it isn't known yet what it consists of.
  [[nodiscard]] bool has_strange_newcomer() const {
    return std::ranges::any_of(runtime_.images, [&](const LocalImage& image) {
      return image.image_id.is_zero() && snapshot_.wall_time - image.created_at < kAgeMinimum;
    });
  }

  [[nodiscard]] bool may_go(const Digest& id, const Names& names) const {
    const Duration age =
        snapshot_.kubelet.has_value() ? snapshot_.kubelet->image_minimum_gc_age : kAgeMinimum;
    const auto used_at = memory_.image_used_at.find(id);
    if (used_at != memory_.image_used_at.end() && snapshot_.taken_at - used_at->second < age) {
      return false;
    }
    const auto backoff = memory_.backoff.find("reclaim:" + to_string(id));
    if (backoff != memory_.backoff.end() && backoff->second.not_before > snapshot_.taken_at) {
      return false;  // it would not go just now
    }
    const bool stays = std::ranges::any_of(names.records, [&](const LocalImage* record) {
      return record->pinned || record->top_chain.is_zero() || is_sandbox_image(record->name) ||
             snapshot_.wall_time - record->created_at < age;
    });
    return !stays && std::ranges::any_of(names.records, [](const LocalImage* record) {
      return is_pullable(record->name);
    });
  }

  [[nodiscard]] Candidate candidate(const Digest& id, const Names& names) const {
    Candidate candidate;
    candidate.image.image_id = id;
    candidate.image.layers = chain_from(runtime_, names.records.front()->top_chain);
    candidate.created_at = names.records.front()->created_at;
    for (const LocalImage* record : names.records) {
      candidate.created_at = std::max(candidate.created_at, record->created_at);
      if (is_pullable(record->name)) {
        candidate.image.name = record->name;
      }
    }
    const auto used_at = memory_.image_used_at.find(id);
    if (used_at != memory_.image_used_at.end()) {
      candidate.used_at = used_at->second;
    }
    return candidate;
  }

  void hand_over(std::vector<Candidate> candidates, Reclaimable& out) const {
    out.users_.resize(runtime_.snapshots.size());
    out.layer_bytes_.resize(runtime_.snapshots.size());
    for (Candidate& one : candidates) {
      for (const std::size_t place : one.image.layers) {
        if (kept_[place]) {
          continue;
        }
        if (out.users_[place]++ == 0) {
          out.layer_bytes_[place] =
              std::max<std::int64_t>(runtime_.snapshots[place].unpacked_bytes, 0);
          out.bytes_ += out.layer_bytes_[place];
        }
      }
      out.images_.push_back(std::move(one.image));
    }
  }

  const NodeSnapshot& snapshot_;
  const RuntimeState& runtime_;
  const Memory& memory_;
  std::vector<bool> kept_;
};

Reclaimable::Reclaimable(const NodeSnapshot& snapshot,
                         const Memory& memory,
                         const std::vector<const ImageManifest*>& wanted) {
  if (snapshot.runtime.has_value() && snapshot.pods.has_value()) {
    Finder(snapshot, memory).find(wanted, *this);
  }
}

std::int64_t Reclaimable::bytes_of(const ReclaimableImage& image) const {
  std::int64_t bytes = 0;
  for (const std::size_t place : image.layers) {
    bytes += users_[place] == 1 ? layer_bytes_[place] : 0;
  }
  return bytes;
}

ReclaimChoice Reclaimable::choose(std::int64_t needed_bytes) const {
  ReclaimChoice choice;
  if (needed_bytes <= 0 || bytes_ < needed_bytes) {
    return choice;
  }
  // A layer comes back with the last image that needs it.
  std::vector<int> left = users_;
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < images_.size() && choice.bytes < needed_bytes; ++i) {
    chosen.push_back(i);
    for (const std::size_t place : images_[i].layers) {
      choice.bytes += --left[place] == 0 ? layer_bytes_[place] : 0;
    }
  }
  // What came in before a larger one may not be needed any more: the latest used stay first.
  for (std::size_t at = chosen.size(); at > 0; --at) {
    std::int64_t lost = 0;
    const ReclaimableImage& image = images_[chosen[at - 1]];
    for (const std::size_t place : image.layers) {
      lost += left[place] == 0 ? layer_bytes_[place] : 0;
    }
    if (choice.bytes - lost < needed_bytes) {
      continue;
    }
    choice.bytes -= lost;
    for (const std::size_t place : image.layers) {
      ++left[place];
    }
    chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(at) - 1);
  }
  for (const std::size_t i : chosen) {
    choice.images.push_back(&images_[i]);
  }
  return choice;
}

}  // namespace imagefs_guard
