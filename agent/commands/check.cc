// untested: wiring; tests/integration/check_test.py runs the command. check_images() decides.
#include "agent/commands/check.h"

#include <algorithm>
#include <utility>

#include "agent/core/reclaim.h"
#include "agent/core/result.h"
#include "agent/registry/reference.h"

namespace imagefs_guard {

namespace {

constexpr Duration kLookInterval = std::chrono::milliseconds(20);
/// A node answers in milliseconds, or it is not there.
constexpr Duration kNodeAnswers = std::chrono::seconds(3);
/// A registry that is not there just now is asked once more, and once more.
constexpr int kTriesMaximum = 3;
/// Layers of which containerd is asked the size in one look.
constexpr std::size_t kMeasuredAtOnce = 256;
constexpr Duration kRetryPause = std::chrono::seconds(1);

/// A device like the one that is asked about, with nothing on it that is known.
void set_model(const VolumeModel& volume, NodeSnapshot& snapshot) {
  snapshot.filesystems = {{.device_id = 1,
                           .path = volume.name,
                           .kind = FilesystemKind::Xfs,  // what EKS nodes have
                           .holds_images = true,
                           .holds_kubelet = true,
                           .capacity_bytes = volume.capacity_bytes,
                           .available_bytes = volume.available_bytes}};
  snapshot.runtime = RuntimeState{};
  if (!volume.thresholds.empty()) {
    snapshot.kubelet = KubeletConfig{.eviction_hard = volume.thresholds};
  }
}

}  // namespace

Policy policy_for_check(Policy policy, const CheckOptions& options) {
  if (options.volume.has_value()) {
    policy.discard_unpacked_layers = options.volume->discards_unpacked_layers;
  }
  if (!options.registry_config_file.empty()) {
    policy.registry_config_file = options.registry_config_file;
  }
  for (const std::string& host : options.plain_http_registries) {
    policy.plain_http_registries.push_back(host);
  }
  for (const std::string& host : options.private_registries) {
    policy.private_registries.push_back(host);
  }
  return policy;
}

int exit_code_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::Fits:
      return 0;
    case Verdict::FitsAfterReclaim:
    case Verdict::FitsLater:
    case Verdict::DoesNotFit:
    case Verdict::NeverFits:
      return 1;
    case Verdict::Unknown:
      return 2;
  }
  return 2;
}

Check::Check(CheckParts parts, const CheckOptions& options, Policy policy)
    : parts_(std::move(parts)),
      options_(options),
      policy_(std::move(policy)),
      timer_(parts_.loop->make_timer("check", [this] { look(); })) {}

void Check::start(std::function<void(const CheckReport&)> done) {
  done_ = std::move(done);
  started_at_ = parts_.loop->now();
  // One moment for the whole check: a size that is being asked for stays so until the answer.
  snapshot_.taken_at = started_at_;
  if (options_.volume.has_value()) {
    set_model(*options_.volume, snapshot_);
  }
  for (Probe* probe : parts_.probes) {
    probe->start([] {});
  }
  for (const std::string& image : options_.images) {
    if (!asked_.contains(image)) {
      fetch(image);
    }
  }
  if (parts_.exchange != nullptr) {
    parts_.exchange->start();
  }
  timer_->arm(kLookInterval);
}

void Check::fetch(const std::string& image) {
  Asked& asked = asked_[image];
  ++asked.tries;
  asked.running = true;
  asked.again_at.reset();
  parts_.manifests->fetch(
      image, [this, image](const std::optional<Error>& error) { on_fetched(image, error); });
}

void Check::on_fetched(const std::string& image, const std::optional<Error>& error) {
  Asked& asked = asked_[image];
  asked.running = false;
  if (error.has_value() && is_transient(error->kind) && asked.tries < kTriesMaximum) {
    asked.again_at = parts_.loop->now() + asked.tries * kRetryPause;
  }
}

void Check::assemble() {
  for (Probe* probe : parts_.probes) {
    probe->contribute(snapshot_);
  }
  if (options_.floor.has_value()) {
    snapshot_.kubelet = KubeletConfig{
        .eviction_hard = {{.signal = EvictionSignal::ImagefsAvailable, .value = *options_.floor}}};
    snapshot_.probe_errors.erase("kubelet");
  }
  snapshot_.wall_time = parts_.loop->wall_now();
  name_images_as_runtime();
  if (parts_.measure && snapshot_.runtime.has_value() && snapshot_.pods.has_value()) {
    parts_.measure(unmeasured_layers(*snapshot_.runtime, kMeasuredAtOnce));
  }
  parts_.manifests->contribute(snapshot_);
  // Before the registries: nobody is asked about what is known. Until it is, nobody is asked.
  if (parts_.learned != nullptr) {
    parts_.learned->contribute(snapshot_);
    if (!parts_.exchange->has_asked() && !is_late_for_node()) {
      return;
    }
  }
  parts_.sizes->contribute(snapshot_);
  if (parts_.leases != nullptr) {
    parts_.leases->look(
        snapshot_, [this](const Digest& digest) { return parts_.manifests->is_complete(digest); });
  }
}

void Check::name_images_as_runtime() {
  if (!snapshot_.pods.has_value()) {
    return;
  }
  for (Pod& pod : *snapshot_.pods) {
    for (Container& container : pod.containers) {
      if (container.canonical_image.empty()) {
        container.canonical_image = canonical_image_name(container.image);
      }
    }
  }
}

bool Check::is_late_for_node() const {
  return parts_.loop->now() - started_at_ >= kNodeAnswers;
}

bool Check::sees_node() const {
  return (parts_.exchange == nullptr || parts_.exchange->has_asked()) &&
         snapshot_.runtime.has_value() && snapshot_.filesystems.has_value() &&
         snapshot_.probe_errors.empty() && (parts_.leases == nullptr || parts_.leases->is_idle()) &&
         (!snapshot_.pods.has_value() || unmeasured_layers(*snapshot_.runtime, 1).empty());
}

bool Check::waits_for_sizes() const {
  for (const ResolvedImage& image : snapshot_.resolved) {
    if (!image.manifest_digest.has_value()) {
      continue;
    }
    const auto manifest = std::ranges::lower_bound(
        snapshot_.manifests, *image.manifest_digest, {}, &ImageManifest::manifest_digest);
    if (manifest != snapshot_.manifests.end() &&
        manifest->manifest_digest == *image.manifest_digest &&
        std::ranges::any_of(manifest->layers, &Layer::size_pending)) {
      return true;
    }
  }
  return false;
}

bool Check::is_settled() {
  const MonotonicTime now = parts_.loop->now();
  bool running = false;
  for (auto& [image, asked] : asked_) {
    if (asked.again_at.has_value() && *asked.again_at <= now) {
      fetch(image);
    }
    running |= asked.running || asked.again_at.has_value();
  }
  const bool node_is_late = !sees_node() && !is_late_for_node();
  return !running && !node_is_late && !waits_for_sizes();
}

void Check::look() {
  assemble();
  const bool late = parts_.loop->now() - started_at_ >= options_.timeout;
  if (!late && !is_settled()) {
    timer_->arm(kLookInterval);
    return;
  }
  done_(check_images(snapshot_, policy_, options_.images));
}

}  // namespace imagefs_guard
