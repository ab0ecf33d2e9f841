#include "agent/core/check.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "agent/core/lookup.h"
#include "agent/core/pulls.h"
#include "agent/core/reclaim.h"
#include "agent/core/room.h"
#include "agent/core/words.h"

namespace imagefs_guard {

namespace {

/// All images as one: what is summed up over them.
void add(Demand& total, const Demand& demand) {
  total.download_bytes += demand.download_bytes;
  total.unpack_low_bytes += demand.unpack_low_bytes;
  total.unpack_mid_bytes += demand.unpack_mid_bytes;
  total.unpack_high_bytes += demand.unpack_high_bytes;
  total.reserved_bytes += demand.reserved_bytes;
  total.inodes += demand.inodes;
  total.discarded_bytes += demand.discarded_bytes;
  total.here_discarded_bytes += demand.here_discarded_bytes;
  total.layers += demand.layers;
  total.layers_missing += demand.layers_missing;
  total.layers_by_prior += demand.layers_by_prior;
  for (std::size_t i = 0; i < demand.layers_by_source.size(); ++i) {
    total.layers_by_source[i] += demand.layers_by_source[i];
  }
  total.pending_bytes += demand.pending_bytes;
}

bool is_certain_no(Verdict verdict) {
  return verdict != Verdict::Fits && verdict != Verdict::Unknown;
}

class Checker {
 public:
  Checker(const NodeSnapshot& snapshot, const Policy& policy)
      : snapshot_(snapshot), policy_(policy) {}

  CheckReport check(const std::vector<std::string>& images) {
    observe(images);
    if (room_.has_value()) {
      promise_live_pulls();
    }
    for (const std::string& image : images) {
      report_.images.push_back(check_image(image));
    }
    sum_up();
    return std::move(report_);
  }

 private:
  void observe(const std::vector<std::string>& images) {
    for (const auto& [part, error] : snapshot_.probe_errors) {
      report_.node.blind_spots.push_back(part + ": " + error);
    }
    if (!snapshot_.filesystems.has_value()) {
      trouble_ = because("the image filesystem can't be observed", "filesystem");
      return;
    }
    const auto device = std::ranges::find(*snapshot_.filesystems, true, &Filesystem::holds_images);
    if (device == snapshot_.filesystems->end() || device->capacity_bytes <= 0) {
      trouble_ = "the image filesystem has no known capacity";
      return;
    }
    device_ = &*device;
    report_.node.image_filesystem = *device;
    report_.node.floor = floor_of(*device, snapshot_.kubelet, policy_);
    if (!snapshot_.runtime.has_value()) {
      trouble_ = because("it can't be seen which layers are here", "runtime");
      return;
    }
    find_reclaimable(images);
    const RoomSetup setup{.runtime = *snapshot_.runtime,
                          .manifests = snapshot_.manifests,
                          .device = *device,
                          .floor = report_.node.floor,
                          .discards = policy_.discard_unpacked_layers,
                          .floor_margin_bytes = policy_.floor_margin_bytes,
                          .reclaimable_bytes = report_.node.reclaimable_bytes};
    room_.emplace(setup);
    all_.emplace(setup);
  }

  [[nodiscard]] std::string because(const std::string& trouble, const char* part) const {
    const auto error = snapshot_.probe_errors.find(part);
    return error == snapshot_.probe_errors.end() ? trouble : trouble + ": " + error->second;
  }

  [[nodiscard]] std::int64_t outstanding() const {
    return room_.has_value() ? room_->outstanding_bytes() : 0;
  }

  /// What unused images would give back; nothing where the node's pods are not known. What is
  /// asked for, and what is being pulled, keeps the layers that it shares with them.
  void find_reclaimable(const std::vector<std::string>& images) {
    std::vector<const ImageManifest*> wanted;
    for (const std::string& image : images) {
      if (const auto* manifest = find_manifest(snapshot_, find_resolution(snapshot_, image))) {
        wanted.push_back(manifest);
      }
    }
    for (const PullLease& lease : snapshot_.runtime->leases) {
      for (const ImageManifest& manifest : snapshot_.manifests) {
        if (std::ranges::find(lease.content, manifest.manifest_digest) != lease.content.end()) {
          wanted.push_back(&manifest);
        }
      }
    }
    report_.node.reclaimable_bytes = Reclaimable(snapshot_, {}, wanted).bytes();
  }

  /// What the node is pulling already has its bytes.
  void promise_live_pulls() {
    NodeSnapshot without_pods = snapshot_;
    without_pods.pods.emplace();
    for (const Pull& pull : collect_pulls(without_pods, {}, policy_).pulls) {
      if (pull.is_live()) {
        const Demand demand = room_->demand_of(*pull.manifest);
        room_->commit(*pull.manifest, demand);
        all_->commit(*pull.manifest, demand);
      }
    }
    report_.node.outstanding_bytes = room_->outstanding_bytes();
  }

  CheckedImage check_image(const std::string& image) {
    CheckedImage checked{.report = {.image = image, .outstanding_bytes = outstanding()},
                         .layers = {}};
    PullReport& report = checked.report;
    const ResolvedImage* resolution = find_resolution(snapshot_, image);
    const ImageManifest* manifest = find_manifest(snapshot_, resolution);
    const bool has_error = resolution != nullptr && resolution->error.has_value();
    if (manifest == nullptr) {
      report.sentence = "can't be judged: " +
                        (has_error ? resolution->error->message : std::string("no answer in time"));
      return checked;
    }
    report.manifest_digest = manifest->manifest_digest;
    if (!room_.has_value()) {
      report.sentence = "can't be judged: " + trouble_;
      return checked;
    }
    checked.layers = room_->layers_of(*manifest);
    report.demand = room_->demand_of(*manifest);
    const Room::Judgement judgement = room_->verdict(*manifest, report.demand);
    report.verdict = judgement.verdict;
    report.by_inodes = judgement.by_inodes;
    if (report.verdict == Verdict::DoesNotFit || report.verdict == Verdict::NeverFits) {
      report.smallest_volume_gib = room_->smallest_volume_gib(report.demand.peak_high_bytes());
    }
    if (report.verdict == Verdict::FitsAfterReclaim) {
      const Balance balance = room_->balance(*manifest, report.demand);
      report.reclaim_bytes = balance.shortfall();
    }
    report.sentence = verdict_sentence(report, report_.node);
    if (has_error) {
      // As decide() does: without its config every layer of an image counts as missing.
      report.sentence += " (taken as all new: " + resolution->error->message + ")";
    }
    if (report.verdict == Verdict::Fits) {
      room_->commit(*manifest, report.demand);
    }
    const Demand beside_all = all_->demand_of(*manifest);
    add(report_.total.demand, beside_all);
    all_->commit(*manifest, beside_all);
    return checked;
  }

  void sum_up() {
    PullReport& total = report_.total;
    std::optional<Verdict> no;
    bool unknown = false;
    for (const CheckedImage& image : report_.images) {
      const Verdict verdict = image.report.verdict;
      unknown |= verdict == Verdict::Unknown;
      if (is_certain_no(verdict)) {
        no = no.has_value() ? worse(*no, verdict) : verdict;
      }
    }
    report_.verdict = no.has_value() ? *no : unknown ? Verdict::Unknown : Verdict::Fits;
    total.verdict = report_.verdict;
    total.outstanding_bytes = report_.node.outstanding_bytes;
    if (report_.node.image_filesystem.has_value()) {
      total.reclaim_bytes = std::max<std::int64_t>(
          report_.node.floor.bytes + report_.node.outstanding_bytes +
              total.demand.peak_high_bytes() - report_.node.image_filesystem->available_bytes,
          0);
    }
    if (all_.has_value() && !unknown) {
      total.smallest_volume_gib = all_->smallest_volume_gib(0);
    }
    total.sentence = verdict_sentence(total, report_.node);
  }

  const NodeSnapshot& snapshot_;
  const Policy& policy_;
  const Filesystem* device_ = nullptr;
  std::optional<Room> room_;  // with the promises to those that fit
  std::optional<Room> all_;   // with all images
  std::string trouble_;
  CheckReport report_;
};

}  // namespace

CheckReport check_images(const NodeSnapshot& snapshot,
                         const Policy& policy,
                         const std::vector<std::string>& images) {
  return Checker(snapshot, policy).check(images);
}

}  // namespace imagefs_guard
