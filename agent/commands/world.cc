// untested: the model of a node; tests/sim plays it.
#include "agent/commands/world.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "agent/core/threshold.h"
#include "agent/core/verify.h"

namespace imagefs_guard {

namespace {

constexpr Duration kKubeletPass = std::chrono::seconds(10);
constexpr Duration kBackOffFirst = std::chrono::seconds(10);
constexpr Duration kBackOffMaximum = std::chrono::seconds(300);
constexpr Duration kConfigFetch = std::chrono::milliseconds(100);
constexpr Duration kFailureFreesAfter = std::chrono::milliseconds(500);
/// A waiting pull tries its lock again within this time.
constexpr Duration kWaitRetry = std::chrono::seconds(2);
const WallTime kEpoch = WallTime{} + std::chrono::hours(24 * 365 * 50);
const MonotonicTime kStart = MonotonicTime{} + std::chrono::hours(1);

std::int64_t bytes_in(std::int64_t per_second, Duration step) {
  return per_second / 1000 * (step.count() / 1000);
}

}  // namespace

World::World(WorldConfig config, Policy policy)
    : config_(std::move(config)),
      policy_(std::move(policy)),
      prng_(config_.seed),
      pods_(config_.pods.size()) {
  lowest_available_ = config_.capacity_bytes;
  next_kubelet_pass_ = kKubeletPass;
}

std::size_t World::image_index(const std::string& name) const {
  const auto found = std::ranges::find(config_.images, name, &WorldImage::name);
  VERIFY(found != config_.images.end());
  return static_cast<std::size_t>(found - config_.images.begin());
}

std::int64_t World::used_bytes() const {
  std::int64_t used = 0;
  for (const WorldFiller& filler : config_.fillers) {
    if (filler.at <= now_) {
      used = filler.bytes;
    }
  }
  for (const PodStatus& pod : pods_) {
    used += pod.written_bytes;
  }
  for (const auto& [chain, layer] : committed_) {
    used += layer.bytes;
  }
  for (const LooseBlob& blob : loose_blobs_) {
    used += blob.bytes;
  }
  for (const RunningPull& pull : pulls_) {
    for (const LayerProgress& layer : pull.layers) {
      used += layer.downloaded + layer.unpacked;
    }
  }
  return used;
}

std::int64_t World::available_bytes() const {
  return std::max<std::int64_t>(config_.capacity_bytes - used_bytes(), 0);
}

std::int64_t World::eviction_quantity() const {
  std::int64_t quantity = 0;
  for (const EvictionThreshold& threshold : config_.kubelet.eviction_hard) {
    if (threshold.signal == EvictionSignal::NodefsAvailable ||
        threshold.signal == EvictionSignal::ImagefsAvailable) {
      quantity = std::max(quantity, threshold_quantity(threshold.value, config_.capacity_bytes));
    }
  }
  return quantity;
}

bool World::is_layer_present(const Layer& layer) const {
  return committed_.contains(layer.chain_id);
}

bool World::is_present(std::size_t image) const {
  return present_images_.contains(image);
}

bool World::is_held(std::size_t image) const {
  const auto hold = holds_.find(config_.images[image].manifest.manifest_digest);
  return hold != holds_.end() && hold->second == HoldState::Held;
}

bool World::is_running(const std::string& pod) const {
  const auto found = std::ranges::find(config_.pods, pod, &WorldPod::name);
  VERIFY(found != config_.pods.end());
  const auto& status = pods_[static_cast<std::size_t>(found - config_.pods.begin())];
  return status.state == PodState::Running || status.state == PodState::Done;
}

void World::arrive_and_leave() {
  for (std::size_t i = 0; i < pods_.size(); ++i) {
    const WorldPod& pod = config_.pods[i];
    PodStatus& status = pods_[i];
    if (status.state == PodState::Absent && now_ >= pod.arrives && !pod.deleted.has_value()) {
      status.state = PodState::Bound;
    } else if (status.state == PodState::Absent && now_ >= pod.arrives && now_ < *pod.deleted) {
      status.state = PodState::Bound;
    }
    if (status.state == PodState::Bound && status.starts_pull_at == Duration{}) {
      status.since = now_;
      // The sandbox comes first: measured 0.13 to 0.46 s.
      status.starts_pull_at =
          now_ + std::chrono::milliseconds(130 + static_cast<int>(prng_.below(330)));
    }
    if (pod.deleted.has_value() && now_ >= *pod.deleted && status.state != PodState::Absent) {
      status.deleting = true;
    }
    if (status.state == PodState::Running && now_ - status.since >= pod.runs_for) {
      status.state = PodState::Done;
      status.written_bytes = 0;
    }
    const bool waits_for_pull = status.state == PodState::Pulling;
    if (status.deleting && !waits_for_pull && status.state != PodState::Evicted &&
        status.state != PodState::Done) {
      status.state = PodState::Deleted;
      status.written_bytes = 0;
    }
    const bool due = (status.state == PodState::Bound || status.state == PodState::BackOff) &&
                     now_ >= status.starts_pull_at;
    if (due) {
      start_pull(i);
    }
  }
}

void World::start_pull(std::size_t pod) {
  const std::size_t image = image_index(config_.pods[pod].image);
  PodStatus& status = pods_[pod];
  if (is_present(image)) {
    status.state = PodState::Running;
    status.ever_started = true;
    status.since = now_;
    return;
  }
  if (config_.kubelet.serialize_image_pulls && !pulls_.empty() && pulls_.front().image != image) {
    return;  // the kubelet's only slot is taken: waits in its queue
  }
  status.state = PodState::Pulling;
  if (std::ranges::find(pulls_, image, &RunningPull::image) != pulls_.end()) {
    return;
  }
  RunningPull pull{.image = image,
                   .phase_since = now_,
                   .lease_id = "lease-" + std::to_string(next_lease_++),
                   .layers = {}};
  pull.layers.resize(config_.images[image].manifest.layers.size());
  pulls_.push_back(std::move(pull));
}

void World::download(RunningPull& pull, std::int64_t budget) {
  const auto& layers = config_.images[pull.image].manifest.layers;
  std::set<Digest> seen;
  for (std::size_t i = 0; i < layers.size() && budget > 0; ++i) {
    if (is_layer_present(layers[i]) || !seen.insert(layers[i].digest).second) {
      continue;
    }
    const std::int64_t left = layers[i].compressed_bytes - pull.layers[i].downloaded;
    const std::int64_t now = std::min({left, budget, available_bytes()});
    pull.layers[i].downloaded += now;
    budget -= now;
    if (now > 0 && now == left && pull.lease_deleted) {
      fail_pull(pull);  // the blob's commit finds no lease: all streams are cut
      return;
    }
    if (now < left && available_bytes() == 0) {
      fail_pull(pull);
      return;
    }
  }
}

void World::unpack(RunningPull& pull, std::int64_t budget) {
  const WorldImage& image = config_.images[pull.image];
  for (std::size_t i = 0; i < image.manifest.layers.size() && budget > 0; ++i) {
    const Layer& layer = image.manifest.layers[i];
    if (is_layer_present(layer)) {
      continue;
    }
    const auto first = std::ranges::find(image.manifest.layers, layer.digest, &Layer::digest);
    const auto blob = static_cast<std::size_t>(first - image.manifest.layers.begin());
    if (pull.layers[blob].downloaded < layer.compressed_bytes) {
      return;  // unpacked in order, each when its blob is complete
    }
    const std::int64_t left = image.true_unpacked_bytes[i] - pull.layers[i].unpacked;
    const std::int64_t now = std::min({left, budget, available_bytes()});
    pull.layers[i].unpacked += now;
    budget -= now;
    if (now < left) {
      if (available_bytes() == 0) {
        fail_pull(pull);
      }
      return;
    }
    if (pull.lease_deleted) {
      fail_pull(pull);  // the commit finds no lease
      return;
    }
    committed_[layer.chain_id] = {.bytes = image.true_unpacked_bytes[i], .at = now_};
    pull.layers[i].unpacked = 0;
  }
  const bool all = std::ranges::all_of(image.manifest.layers,
                                       [&](const Layer& layer) { return is_layer_present(layer); });
  if (all && pull.phase == Phase::Writing) {
    finish_pull(pull);
  }
}

void World::finish_pull(RunningPull& pull) {
  present_images_[pull.image] = now_;
  const auto& layers = config_.images[pull.image].manifest.layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (pull.layers[i].downloaded > 0) {
      loose_blobs_.push_back(
          {.digest = layers[i].digest,
           .bytes = pull.layers[i].downloaded,
           .gone_at = now_ + std::chrono::milliseconds(300 + static_cast<int>(prng_.below(4700)))});
      pull.layers[i].downloaded = 0;
    }
  }
  for (std::size_t i = 0; i < pods_.size(); ++i) {
    if (pods_[i].state == PodState::Pulling && image_index(config_.pods[i].image) == pull.image) {
      pods_[i].state = PodState::Running;
      pods_[i].ever_started = true;
      pods_[i].since = now_;
    }
  }
  pull.phase = Phase::Failing;  // taken out by advance() right away
  pull.phase_since = now_ - kFailureFreesAfter;
}

void World::fail_pull(RunningPull& pull) {
  if (pull.phase == Phase::Failing) {
    return;
  }
  ++failed_pulls_;
  pull.phase = Phase::Failing;
  pull.phase_since = now_;
  for (std::size_t i = 0; i < pods_.size(); ++i) {
    PodStatus& pod = pods_[i];
    if (pod.state != PodState::Pulling || image_index(config_.pods[i].image) != pull.image) {
      continue;
    }
    const Duration back_off =
        std::min(kBackOffFirst * (1 << std::min(pod.failures, 5)), kBackOffMaximum);
    ++pod.failures;
    pod.state = pod.deleting ? PodState::Deleted : PodState::BackOff;
    pod.starts_pull_at = now_ + back_off;
  }
}

void World::advance_pull(RunningPull& pull, Duration step, std::int64_t pulls_writing) {
  switch (pull.phase) {
    case Phase::AtConfig:
      if (pull.lease_deleted && now_ - pull.phase_since >= kWaitRetry) {
        fail_pull(pull);
      } else if (!is_held(pull.image) && !pull.lease_deleted &&
                 now_ - pull.phase_since >= kConfigFetch) {
        pull.phase = Phase::Writing;
        pull.phase_since = now_;
      }
      return;
    case Phase::Writing: {
      const std::int64_t before = used_bytes();
      download(pull, bytes_in(config_.download_bytes_per_second, step) / pulls_writing);
      if (pull.phase == Phase::Writing) {
        unpack(pull, bytes_in(config_.unpack_bytes_per_second, step));
      }
      if (is_held(pull.image)) {
        held_bytes_ += used_bytes() - before;
      }
      return;
    }
    case Phase::Failing:
      return;
  }
}

void World::advance(Duration step) {
  now_ += step;
  arrive_and_leave();
  for (std::size_t i = 0; i < pods_.size(); ++i) {
    if (pods_[i].state == PodState::Running) {
      pods_[i].written_bytes +=
          std::min(bytes_in(config_.pods[i].written_bytes_per_second, step), available_bytes());
    }
  }
  const auto writing =
      std::max<std::int64_t>(std::ranges::count(pulls_, Phase::Writing, &RunningPull::phase), 1);
  for (RunningPull& pull : pulls_) {
    advance_pull(pull, step, writing);
    lowest_available_ = std::min(lowest_available_, available_bytes());
  }
  std::erase_if(pulls_, [&](const RunningPull& pull) {
    return pull.phase == Phase::Failing && now_ - pull.phase_since >= kFailureFreesAfter;
  });
  std::erase_if(loose_blobs_, [&](const LooseBlob& blob) { return blob.gone_at <= now_; });
  if (now_ >= next_kubelet_pass_) {
    next_kubelet_pass_ = now_ + kKubeletPass;
    kubelet_pass();
  }
  lowest_available_ = std::min(lowest_available_, available_bytes());
}

Duration World::quiet_until() const {
  const bool pulls = std::ranges::any_of(pulls_, [&](const RunningPull& pull) {
    return pull.phase != Phase::AtConfig || pull.lease_deleted || !is_held(pull.image);
  });
  if (pulls || !loose_blobs_.empty()) {
    return now_;
  }
  Duration next = Duration::max();
  const auto note = [&](Duration at) { next = at > now_ ? std::min(next, at) : next; };
  for (const WorldFiller& filler : config_.fillers) {
    note(filler.at);
  }
  for (std::size_t i = 0; i < pods_.size(); ++i) {
    const WorldPod& pod = config_.pods[i];
    const PodStatus& status = pods_[i];
    note(pod.arrives);
    if (pod.deleted.has_value()) {
      note(*pod.deleted);
    }
    if (status.state == PodState::Bound || status.state == PodState::BackOff) {
      note(status.starts_pull_at);
    } else if (status.state == PodState::Running) {
      if (pod.written_bytes_per_second > 0) {
        return now_;
      }
      note(status.since + pod.runs_for);
    }
  }
  if (disk_pressure_ || available_bytes() < eviction_quantity()) {
    note(next_kubelet_pass_);
  }
  return next;
}

void World::kubelet_pass() {
  const std::int64_t quantity = eviction_quantity();
  if (available_bytes() < quantity) {
    disk_pressure_ = true;
    pressure_until_ = now_ + config_.eviction_transition;
    collect_unused_images();
    if (available_bytes() < quantity) {
      evict_one();
    }
  } else if (disk_pressure_ && now_ >= pressure_until_) {
    disk_pressure_ = false;
  }
}

bool World::collect_unused_images() {
  if (!config_.kubelet_collects_images) {
    return false;
  }
  std::set<std::size_t> used;
  for (std::size_t i = 0; i < pods_.size(); ++i) {
    const PodState state = pods_[i].state;
    if (state == PodState::Bound || state == PodState::Pulling || state == PodState::BackOff ||
        state == PodState::Running) {
      used.insert(image_index(config_.pods[i].image));
    }
  }
  std::set<Digest> kept;
  for (const auto& [image, since] : present_images_) {
    if (used.contains(image) || now_ - since < std::chrono::minutes(2)) {
      for (const Layer& layer : config_.images[image].manifest.layers) {
        kept.insert(layer.chain_id);
      }
    }
  }
  for (const RunningPull& pull : pulls_) {
    for (const Layer& layer : config_.images[pull.image].manifest.layers) {
      kept.insert(layer.chain_id);
    }
  }
  std::erase_if(present_images_, [&](const auto& entry) {
    return !used.contains(entry.first) && now_ - entry.second >= std::chrono::minutes(2);
  });
  return std::erase_if(committed_, [&](const auto& entry) { return !kept.contains(entry.first); }) >
         0;
}

void World::evict_one() {
  std::optional<std::size_t> victim;
  const auto rank = [&](std::size_t i) {
    return std::tuple(config_.pods[i].priority, -pods_[i].written_bytes, config_.pods[i].name);
  };
  for (std::size_t i = 0; i < pods_.size(); ++i) {
    if (pods_[i].state == PodState::Running && config_.pods[i].priority < 2'000'000'000 &&
        (!victim.has_value() || rank(i) < rank(*victim))) {
      victim = i;
    }
  }
  if (victim.has_value()) {
    pods_[*victim].state = PodState::Evicted;
    pods_[*victim].written_bytes = 0;
    evictions_.push_back({.at = now_, .pod = config_.pods[*victim].name});
  }
}

Pod World::pod_object(std::size_t index) const {
  const WorldPod& pod = config_.pods[index];
  const PodStatus& status = pods_[index];
  const bool running = status.state == PodState::Running;
  Pod object{.namespace_name = "default",
             .name = pod.name,
             .uid = "uid-" + pod.name,
             .resource_version = "1",
             .phase = running ? PodPhase::Running : PodPhase::Pending,
             .deleting = status.deleting,
             .priority = pod.priority,
             .containers = {{.name = "main",
                             .image = pod.image,
                             .canonical_image = pod.image,
                             .started = status.ever_started}},
             .observed_at = kStart + status.since};
  if (pod.is_protected) {
    object.annotations["imagefs-guard.io/protect"] = "true";
  }
  return object;
}

NodeSnapshot World::observe() const {
  NodeSnapshot snapshot;
  snapshot.taken_at = kStart + now_;
  snapshot.wall_time = kEpoch + now_;
  snapshot.kubelet = config_.kubelet;
  snapshot.filesystems = {{.device_id = 1,
                           .path = "/var/lib/containerd",
                           .kind = FilesystemKind::Other,
                           .holds_images = true,
                           .holds_kubelet = true,
                           .capacity_bytes = config_.capacity_bytes,
                           .available_bytes = available_bytes()}};
  snapshot.pods.emplace();
  for (std::size_t i = 0; i < pods_.size(); ++i) {
    const PodState state = pods_[i].state;
    if (state == PodState::Bound || state == PodState::Pulling || state == PodState::BackOff ||
        state == PodState::Running) {
      snapshot.pods->push_back(pod_object(i));
    }
  }
  std::ranges::sort(*snapshot.pods, {}, &Pod::name);
  snapshot.node = Node{.name = "node-a",
                       .uid = "node-uid",
                       .resource_version = "1",
                       .taints = taints_,
                       .disk_pressure = disk_pressure_};
  RuntimeState runtime{.version = "2.2.9"};
  for (const auto& [image, since] : present_images_) {
    runtime.images.push_back({.name = config_.images[image].name,
                              .target = config_.images[image].manifest.manifest_digest,
                              .created_at = kEpoch + since});
  }
  std::ranges::sort(runtime.images, {}, &LocalImage::name);
  for (const auto& [chain, layer] : committed_) {
    runtime.snapshots.push_back({.chain_id = chain, .unpacked_bytes = layer.bytes});
  }
  std::map<Digest, std::int64_t> blobs;
  for (const LooseBlob& blob : loose_blobs_) {
    blobs[blob.digest] = blob.bytes;
  }
  for (const RunningPull& pull : pulls_) {
    const ImageManifest& manifest = config_.images[pull.image].manifest;
    if (!pull.lease_deleted && pull.phase != Phase::Failing) {
      runtime.leases.push_back({.id = pull.lease_id,
                                .created_at = kEpoch + pull.phase_since,
                                .content = {manifest.manifest_digest},
                                .ingest_refs = {}});
    }
    for (std::size_t i = 0; i < pull.layers.size(); ++i) {
      const std::int64_t done = pull.layers[i].downloaded;
      if (done > 0 && done == manifest.layers[i].compressed_bytes) {
        blobs[manifest.layers[i].digest] = done;
      } else if (done > 0) {
        runtime.ingests.push_back({.ref = "layer-" + to_string(manifest.layers[i].digest),
                                   .offset_bytes = done,
                                   .total_bytes = manifest.layers[i].compressed_bytes});
      }
      if (pull.layers[i].unpacked > 0) {
        runtime.extracts.push_back(
            {.chain_id = manifest.layers[i].chain_id, .unpacked_bytes = pull.layers[i].unpacked});
      }
    }
  }
  for (const auto& [digest, bytes] : blobs) {
    runtime.blobs.push_back({.digest = digest, .bytes = bytes});
  }
  std::ranges::sort(runtime.leases, {}, &PullLease::id);
  std::ranges::sort(runtime.extracts, {}, &ActiveExtract::chain_id);
  snapshot.runtime = std::move(runtime);
  snapshot.runtime_observed_at = snapshot.taken_at;
  for (const WorldImage& image : config_.images) {
    snapshot.resolved.push_back({.image = image.name,
                                 .manifest_digest = image.manifest.manifest_digest,
                                 .error = {},
                                 .resolved_at = kStart});
    snapshot.manifests.push_back(image.manifest);
  }
  std::ranges::sort(snapshot.resolved, {}, &ResolvedImage::image);
  std::ranges::sort(snapshot.manifests, {}, &ImageManifest::manifest_digest);
  for (const auto& [digest, state] : holds_) {
    snapshot.holds.push_back({.manifest_digest = digest, .state = state, .since = kStart});
  }
  return snapshot;
}

void World::apply(const Decision& decision) {
  std::map<Digest, HoldState> next;
  for (const Action& action : decision.actions) {
    if (const auto* hold = std::get_if<HoldPull>(&action)) {
      const auto known = holds_.find(hold->manifest_digest);
      HoldState state = known == holds_.end() ? HoldState::Opening : known->second;
      if (state != HoldState::Held) {
        const auto pull = std::ranges::find_if(pulls_, [&](const RunningPull& running) {
          return config_.images[running.image].manifest.manifest_digest == hold->manifest_digest;
        });
        // A pull that waits at its config has not got it yet; one that writes has.
        const bool free = pull == pulls_.end() || pull->phase == Phase::AtConfig;
        state = free ? HoldState::Held : HoldState::TooLate;
      }
      next[hold->manifest_digest] = state;
    } else if (const auto* cancel = std::get_if<CancelPull>(&action)) {
      for (RunningPull& pull : pulls_) {
        if (std::ranges::find(cancel->lease_ids, pull.lease_id) != cancel->lease_ids.end()) {
          pull.lease_deleted = true;
          pull.phase_since = pull.phase == Phase::AtConfig ? now_ : pull.phase_since;
        }
      }
    } else if (const auto* taint = std::get_if<SetTaint>(&action)) {
      ++taint_writes_;
      std::erase_if(taints_, [&](const Taint& one) { return one.key == taint->key; });
      if (taint->effect != TaintEffect::None) {
        taints_.push_back({.key = taint->key,
                           .value = taint->value,
                           .effect = taint->effect == TaintEffect::NoSchedule
                                         ? "NoSchedule"
                                         : "PreferNoSchedule"});
      }
    }
  }
  holds_ = std::move(next);
}

void World::drop_agent() {
  holds_.clear();
}

}  // namespace imagefs_guard
