#pragma once
/// Builds snapshots for tests in a few words: a node with its disk, images by layers, pods that
/// want them. GiB are given in tenths or hundredths so that no test needs a float.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard::testing {

/// `hundredths` of a GiB: gib(390) is 3.9 GiB.
constexpr std::int64_t gib(std::int64_t hundredths) {
  return hundredths * (std::int64_t{1} << 30) / 100;
}

/// A digest that says its own number.
inline Digest digest(unsigned number) {
  Digest result;
  for (std::size_t i = 0; i < 4; ++i) {
    result.bytes[i] = static_cast<std::uint8_t>(number >> (24 - 8 * i));
  }
  result.bytes[31] = 1;  // never the zero digest
  return result;
}

/// A layer of an own number: digest n, chain ID 1,000,000 + n; the unpacked size as a record.
inline Layer layer(unsigned number, std::int64_t compressed_bytes, std::int64_t unpacked_bytes) {
  return Layer{.digest = digest(number),
               .compressed_bytes = compressed_bytes,
               .compression = LayerCompression::Gzip,
               .diff_id = digest(2'000'000 + number),
               .chain_id = digest(1'000'000 + number),
               .facts = {{.source = SizeSource::LearnedHere, .bytes = unpacked_bytes}}};
}

struct TestPod {
  std::string name;
  std::string image;
  std::int32_t priority = 0;
  std::string namespace_name = "default";
};

/// A node with one device, containerd and pods, as EKS AL2023 has it.
class TestNode {
 public:
  TestNode(std::int64_t capacity_bytes, std::int64_t available_bytes, std::int64_t floor_bytes) {
    snapshot_.taken_at = MonotonicTime{} + std::chrono::hours(1);
    snapshot_.wall_time = WallTime{} + std::chrono::hours(24 * 365 * 50);
    snapshot_.filesystems = {{.device_id = 1,
                              .path = "/var/lib/containerd",
                              .kind = FilesystemKind::Other,  // cases count no overhead per file
                              .holds_images = true,
                              .holds_kubelet = true,
                              .capacity_bytes = capacity_bytes,
                              .available_bytes = available_bytes}};
    snapshot_.kubelet = KubeletConfig{.eviction_hard = {{.signal = EvictionSignal::NodefsAvailable,
                                                         .value = {.quantity = floor_bytes}}},
                                      .serialize_image_pulls = false};
    snapshot_.runtime = RuntimeState{.version = "2.2.9"};
    snapshot_.runtime_observed_at = snapshot_.taken_at;
    snapshot_.pods.emplace();
    snapshot_.node = Node{.name = "node-a", .uid = "node-uid"};
  }

  TestNode& image(const std::string& name, unsigned number, std::vector<Layer> layers) {
    const Digest manifest = digest(3'000'000 + number);
    const Digest config = digest(4'000'000 + number);
    insert_sorted(snapshot_.manifests,
                  ImageManifest{.manifest_digest = manifest,
                                .config_digest = config,
                                .config_ref = "config-" + to_string(config),
                                .layers = std::move(layers)},
                  &ImageManifest::manifest_digest);
    insert_sorted(
        snapshot_.resolved,
        ResolvedImage{
            .image = name, .manifest_digest = manifest, .resolved_at = snapshot_.taken_at},
        &ResolvedImage::image);
    return *this;
  }

  TestNode& pod(const TestPod& test_pod) {
    Pod pod{.namespace_name = test_pod.namespace_name,
            .name = test_pod.name,
            .uid = "uid-" + test_pod.name,
            .priority = test_pod.priority,
            .containers = {{.name = "main",
                            .image = test_pod.image,
                            .canonical_image = test_pod.image}},
            .observed_at = snapshot_.taken_at - std::chrono::seconds(60) +
                           std::chrono::seconds(snapshot_.pods->size())};
    snapshot_.pods->push_back(std::move(pod));
    return *this;
  }

  TestNode& lease(const std::string& id, unsigned image_number) {
    snapshot_.runtime->leases.push_back({.id = id,
                                         .created_at = snapshot_.wall_time,
                                         .content = {digest(3'000'000 + image_number)},
                                         .ingest_refs = {}});
    return *this;
  }

  TestNode& ingest(unsigned layer_number, std::int64_t offset_bytes, std::int64_t total_bytes) {
    snapshot_.runtime->ingests.push_back({.ref = "layer-" + to_string(digest(layer_number)),
                                          .offset_bytes = offset_bytes,
                                          .total_bytes = total_bytes});
    return *this;
  }

  TestNode& blob(unsigned layer_number, std::int64_t bytes) {
    insert_sorted(snapshot_.runtime->blobs,
                  LocalBlob{.digest = digest(layer_number), .bytes = bytes},
                  &LocalBlob::digest);
    return *this;
  }

  TestNode& unpacked(unsigned layer_number) {
    insert_sorted(snapshot_.runtime->snapshots,
                  LayerSnapshot{.chain_id = digest(1'000'000 + layer_number)},
                  &LayerSnapshot::chain_id);
    return *this;
  }

  TestNode& hold(unsigned image_number, HoldState state = HoldState::Held) {
    insert_sorted(snapshot_.holds,
                  Hold{.manifest_digest = digest(3'000'000 + image_number),
                       .state = state,
                       .since = snapshot_.taken_at},
                  &Hold::manifest_digest);
    return *this;
  }

  NodeSnapshot snapshot_;

 private:
  template <typename T, typename Key>
  static void insert_sorted(std::vector<T>& list, T value, Key key) {
    const auto at = std::ranges::lower_bound(list, value.*key, {}, key);
    list.insert(at, std::move(value));
  }
};

}  // namespace imagefs_guard::testing
