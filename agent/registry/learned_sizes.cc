#include "agent/registry/learned_sizes.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace imagefs_guard {

namespace {

/// Some 150 bytes each: 600 kB.
constexpr std::size_t kHereMaximum = 4'096;
constexpr std::size_t kAskedMaximum = 8'192;
/// What is smaller can't spoil a forecast.
constexpr std::int64_t kWorthLearningBytes = std::int64_t{1} << 20;
/// Questions to the snapshotter at once: each takes it a millisecond, and there is no hurry.
constexpr std::size_t kMeasureAtOnce = 16;
constexpr Duration kAskAgain = std::chrono::minutes(1);
/// Layers don't come in milliseconds; looking at all of them takes about one.
constexpr Duration kLookEvery = std::chrono::seconds(1);

FilesystemKind kind_of_images(const NodeSnapshot& snapshot, FilesystemKind otherwise) {
  if (!snapshot.filesystems.has_value()) {
    return otherwise;
  }
  const auto found = std::ranges::find(*snapshot.filesystems, true, &Filesystem::holds_images);
  return found == snapshot.filesystems->end() ? otherwise : found->kind;
}

/// Changes when manifests come, go, get their config, or lose or gain facts.
std::uint64_t fingerprint_of(const std::vector<ImageManifest>& manifests) {
  std::uint64_t fingerprint = manifests.size();
  const auto mix = [&fingerprint](std::uint64_t value) {
    fingerprint = (fingerprint ^ value) * 0x100000001b3U;
  };
  const auto first_bytes = [](const Digest& digest) {
    std::uint64_t value = 0;
    std::memcpy(&value, digest.bytes.data(), sizeof(value));
    return value;
  };
  for (const ImageManifest& manifest : manifests) {
    mix(first_bytes(manifest.manifest_digest));
    for (const Layer& layer : manifest.layers) {
      mix(layer.facts.size());
    }
    if (!manifest.layers.empty()) {
      mix(first_bytes(manifest.layers.back().chain_id));
    }
  }
  return fingerprint;
}

SizeFact fact_of(const SizeRecord& record, SizeSource source) {
  return {.source = source,
          .bytes = record.bytes,
          .inodes = record.inodes,
          .measured_on = record.measured_on};
}

void put(Layer& layer, const SizeFact& fact) {
  const auto found = std::ranges::find(layer.facts, fact.source, &SizeFact::source);
  if (found == layer.facts.end()) {
    layer.facts.push_back(fact);
  } else {
    *found = fact;
  }
}

}  // namespace

void LearnedSizes::contribute(NodeSnapshot& snapshot) {
  taken_at_ = snapshot.taken_at;
  kind_ = kind_of_images(snapshot, kind_);
  if (snapshot.runtime.has_value() && taken_at_ - looked_at_ >= kLookEvery) {
    looked_at_ = taken_at_;
    for (const ImageManifest& manifest : snapshot.manifests) {
      for (const Layer& layer : manifest.layers) {
        look_at(layer, *snapshot.runtime);
      }
    }
  }
  if (is_told_ && fingerprint_of(snapshot.manifests) == fingerprint_) {
    return;  // 4,000 layers would take a millisecond of every tick
  }
  for (ImageManifest& manifest : snapshot.manifests) {
    for (Layer& layer : manifest.layers) {
      add_facts(layer);
    }
  }
  is_told_ = true;
  fingerprint_ = fingerprint_of(snapshot.manifests);
}

void LearnedSizes::look_at(const Layer& layer, const RuntimeState& runtime) {
  if (layer.diff_id.is_zero() || layer.compressed_bytes < kWorthLearningBytes) {
    return;
  }
  const auto here =
      std::ranges::lower_bound(runtime.snapshots, layer.chain_id, {}, &LayerSnapshot::chain_id);
  if (here == runtime.snapshots.end() || here->chain_id != layer.chain_id) {
    return;
  }
  if (here->unpacked_bytes >= 0) {
    learn({.diff_id = layer.diff_id,
           .bytes = here->unpacked_bytes,
           .inodes = std::max<std::int64_t>(here->inodes, 0),
           .measured_on = kind_},
          layer.compressed_bytes > kSharedLayerBytes);
    asked_.erase(layer.chain_id);
    return;
  }
  const auto asked = asked_.find(layer.chain_id);
  const bool again = asked == asked_.end() || taken_at_ - asked->second >= kAskAgain;
  if (again && to_measure_.size() < kMeasureAtOnce &&
      (asked != asked_.end() || asked_.size() < kAskedMaximum)) {
    asked_[layer.chain_id] = taken_at_;
    to_measure_.push_back(layer.chain_id);
  }
}

void LearnedSizes::learn(const SizeRecord& record, bool large) {
  Known& known = here_[record.diff_id];
  if (known.order != 0 && known.record == record && known.large == large) {
    return;
  }
  known = {.record = record, .order = ++order_, .large = large};
  is_told_ = false;
  version_ += large ? 1 : 0;
  if (here_.size() > kHereMaximum) {
    here_.erase(
        std::ranges::min_element(here_, {}, [](const auto& entry) { return entry.second.order; }));
  }
}

void LearnedSizes::add_facts(Layer& layer) const {
  if (layer.diff_id.is_zero()) {
    return;
  }
  if (const auto here = here_.find(layer.diff_id); here != here_.end()) {
    put(layer, fact_of(here->second.record, SizeSource::LearnedHere));
    return;
  }
  // Two searches: clang 14 can't read the subrange that ranges::equal_range gives.
  const auto first = std::ranges::lower_bound(elsewhere_, layer.diff_id, {}, &SizeRecord::diff_id);
  const auto last =
      std::ranges::upper_bound(first, elsewhere_.end(), layer.diff_id, {}, &SizeRecord::diff_id);
  if (first == last) {
    return;
  }
  const auto same_kind = std::find_if(
      first, last, [this](const SizeRecord& record) { return record.measured_on == kind_; });
  put(layer, fact_of(same_kind == last ? *first : *same_kind, SizeSource::LearnedElsewhere));
}

std::vector<Digest> LearnedSizes::to_measure() {
  return std::exchange(to_measure_, {});
}

void LearnedSizes::restore(const std::vector<SizeRecord>& records) {
  // Newest first: the last one is the oldest.
  for (std::size_t i = records.size(); i > 0; --i) {
    const SizeRecord& record = records[i - 1];
    if (!here_.contains(record.diff_id) && here_.size() < kHereMaximum) {
      here_[record.diff_id] = {.record = record, .order = ++order_, .large = true};
      is_told_ = false;
    }
  }
}

void LearnedSizes::set_elsewhere(std::vector<SizeRecord> records) {
  std::ranges::stable_sort(records, {}, &SizeRecord::diff_id);
  records.resize(std::min(records.size(), kSizeShards * kShardSizesMaximum));
  elsewhere_ = std::move(records);
  is_told_ = false;
}

std::vector<SizeRecord> LearnedSizes::to_tell() const {
  std::vector<const Known*> large;
  for (const auto& [diff_id, known] : here_) {
    if (known.large) {
      large.push_back(&known);
    }
  }
  std::ranges::sort(large, std::ranges::greater{}, &Known::order);
  large.resize(std::min(large.size(), kNodeSizesMaximum));
  std::vector<SizeRecord> records;
  records.reserve(large.size());
  for (const Known* known : large) {
    records.push_back(known->record);
  }
  return records;
}

}  // namespace imagefs_guard
