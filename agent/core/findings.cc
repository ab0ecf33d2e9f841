#include "agent/core/findings.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "agent/core/lookup.h"
#include "agent/core/publish.h"
#include "agent/core/pulls.h"
#include "agent/core/reclaim.h"
#include "agent/core/space.h"
#include "agent/core/words.h"

namespace imagefs_guard {

namespace {

constexpr Duration kAuditInterval = std::chrono::seconds(60);
/// Sooner while a part of the picture is missing: an agent that has just started.
constexpr Duration kBlindInterval = std::chrono::seconds(5);
/// A picture of the runtime older than this is not a picture of now.
constexpr Duration kAuditRuntimeAgeMaximum = std::chrono::seconds(60);
/// A finding that went away is news again only if it stayed away so long.
constexpr Duration kToldAgain = std::chrono::hours(1);
/// Image garbage collection should begin so far before eviction: what a pull writes between two
/// looks of the kubelet, and no less than the defaults of kubelet and nodefs leave between them.
constexpr int kGcDistancePercent = 5;
/// Less than this is not worth a word: configs, manifests, journals.
constexpr std::int64_t kSmallBytes = 256 * kMib;
/// Compressed layers take a third to a half of the unpacked ones; below a fifth only some stayed.
constexpr std::int64_t kBlobsShare = 5;
/// The runtime's own garbage collection has had its turns by then.
constexpr Duration kBytesConfirmed = std::chrono::minutes(10);
/// Growth is looked at over this time, in steps of five minutes.
constexpr Duration kGrowthStep = std::chrono::minutes(5);
constexpr std::size_t kGrowthSamples = 13;
constexpr std::int64_t kGrowthBytes = 1024 * kMib;
constexpr std::int64_t kGrowthShare = 20;  // of the capacity: 5 %
constexpr std::int32_t kNeverEvictedPriority = 2'000'000'000;
constexpr std::size_t kPodsNamed = 3;

/// What a look at one thing says: nothing (not to be seen just now), that all is well, or more.
struct Look {
  bool seen = false;
  std::optional<Finding> finding;
};

Look unseen() {
  return {};
}

Look well() {
  return {.seen = true, .finding = {}};
}

std::string gib(std::int64_t bytes) {
  return gib_text(bytes) + " GiB";
}

/// "a/b, c/d, e/f and 2 more".
std::string pods_text(const std::vector<const Pod*>& pods) {
  std::string text;
  for (std::size_t i = 0; i < std::min(pods.size(), kPodsNamed); ++i) {
    text += (text.empty() ? "" : ", ") + pods[i]->namespace_name + "/" + pods[i]->name;
  }
  if (pods.size() > kPodsNamed) {
    text += " and " + std::to_string(pods.size() - kPodsNamed) + " more";
  }
  return text;
}

bool tolerates(const Pod& pod, const std::string& key) {
  return std::ranges::any_of(pod.tolerations, [&](const Toleration& toleration) {
    const bool all_keys = toleration.key.empty() && toleration.exists;
    // The taint's value is the stage: only Exists tolerates it at every one.
    return all_keys || (toleration.key == key && toleration.exists &&
                        (toleration.effect.empty() || toleration.effect == "NoSchedule"));
  });
}

class Auditor {
 public:
  Auditor(const NodeSnapshot& snapshot, const Policy& policy, const Decision& decision)
      : snapshot_(snapshot), policy_(policy), decision_(decision) {
    if (decision.node.image_filesystem.has_value()) {
      device_ = &*decision.node.image_filesystem;
    }
    if (snapshot.runtime.has_value() &&
        snapshot.taken_at - snapshot.runtime_observed_at <= kAuditRuntimeAgeMaximum) {
      runtime_ = &*snapshot.runtime;
      use_ = account_space(snapshot, decision);
    }
  }

  [[nodiscard]] Look look(FindingKind kind) const {
    switch (kind) {
      case FindingKind::ThresholdUnset:
        return threshold_unset();
      case FindingKind::GcTooLate:
        return gc_too_late();
      case FindingKind::VolumeTooSmall:
        return volume_too_small();
      case FindingKind::VolumeMissing:
        return volume_missing();
      case FindingKind::VolumeWrong:
        return volume_wrong();
      case FindingKind::BlobsKept:
        return blobs_kept();
      case FindingKind::SandboxUnpinned:
        return sandbox_unpinned();
      case FindingKind::ProtectedNoRequest:
        return protected_no_request();
      case FindingKind::ProtectedIntolerant:
        return protected_intolerant();
      case FindingKind::Leftovers:
        return leftovers();
      case FindingKind::UnexplainedGrowth:
        return unexplained_growth();
    }
    return unseen();
  }

  /// In use, and by no image, blob, download or leftover; absent while a layer is not measured.
  [[nodiscard]] std::optional<std::int64_t> unexplained_bytes() const {
    const bool whole =
        use_.has_value() && use_->layers_unmeasured == 0 && runtime_->extracts.empty();
    return whole ? std::optional(use_->other_bytes) : std::nullopt;
  }

 private:
  [[nodiscard]] Look threshold_unset() const {
    if (device_ == nullptr || !snapshot_.kubelet.has_value()) {
      return unseen();
    }
    if (decision_.node.floor.source != "policy") {
      return well();
    }
    return {true,
            Finding{FindingKind::ThresholdUnset,
                    "the kubelet has no eviction threshold for the image filesystem: it would let "
                    "it run full; the agent keeps " +
                        gib(decision_.node.floor.bytes) + " free by its own policy",
                    device_->holds_kubelet
                        ? "set evictionHard nodefs.available (\"10%\") in the KubeletConfiguration"
                        : "set evictionHard imagefs.available (\"10%\") in the "
                          "KubeletConfiguration"}};
  }

  [[nodiscard]] Look gc_too_late() const {
    if (device_ == nullptr || !snapshot_.kubelet.has_value()) {
      return unseen();
    }
    if (decision_.node.floor.source == "policy") {
      return well();  // nothing that it could come too late for
    }
    const std::int64_t high = snapshot_.kubelet->image_gc_high_percent;
    const std::int64_t evicts_at = decision_.node.floor.bytes - policy_.floor_margin_bytes;
    const std::int64_t percent = device_->capacity_bytes / 100;
    __extension__ using Wide = __int128;
    // Rounded: the kubelet's 10 % are a float32, and so a little more.
    const auto evicts_percent = static_cast<std::int64_t>(
        (Wide{evicts_at} * 100 + device_->capacity_bytes / 2) / device_->capacity_bytes);
    if (high + evicts_percent + kGcDistancePercent <= 100) {
      return well();
    }
    const std::int64_t wanted =
        std::max<std::int64_t>(100 - evicts_percent - kGcDistancePercent, 1);
    return {
        true,
        Finding{FindingKind::GcTooLate,
                "the kubelet collects unused images from " + std::to_string(high) +
                    " % of the disk on (" + gib(percent * std::max<std::int64_t>(100 - high, 0)) +
                    " free) and evicts pods below " + gib(evicts_at) +
                    " free: hardly anything lies between the two",
                "set imageGCHighThresholdPercent to " + std::to_string(wanted) +
                    " or less in the KubeletConfiguration, and imageGCLowThresholdPercent "
                    "below it"}};
  }

  [[nodiscard]] Look volume_too_small() const {
    for (const PullReport& pull : decision_.pulls) {
      if (pull.verdict == Verdict::NeverFits) {
        return {true,
                Finding{FindingKind::VolumeTooSmall,
                        "image " + pull.image + " " + pull.sentence,
                        volume_advice()}};
      }
    }
    if (device_ == nullptr || runtime_ == nullptr || !use_.has_value() ||
        !use_->reclaimable_bytes.has_value()) {
      return unseen();
    }
    const LocalImage* largest = nullptr;
    std::int64_t largest_bytes = 0;
    const std::vector<Digest> used = images_in_use(snapshot_);
    for (const LocalImage& image : runtime_->images) {
      if (std::ranges::binary_search(used, image.image_id)) {
        const auto bytes = unpacked_bytes_below(*runtime_, image.top_chain);
        // Of equal ones the first by name: the images are sorted.
        if (bytes.has_value() && *bytes > largest_bytes) {
          largest = &image;
          largest_bytes = *bytes;
        }
      }
    }
    const std::int64_t room = device_->available_bytes + *use_->reclaimable_bytes +
                              use_->leftover_bytes - decision_.node.floor.bytes;
    if (largest == nullptr || largest_bytes <= room) {
      return well();
    }
    return {true,
            Finding{FindingKind::VolumeTooSmall,
                    "the next version of " + largest->name + " may have no room: it takes " +
                        gib(largest_bytes) + " unpacked, and above the floor " +
                        gib(std::max<std::int64_t>(room, 0)) +
                        " can be had, with all unused images removed",
                    volume_advice()}};
  }

  static std::string volume_advice() {
    return "give the nodes a larger volume; \"imagefs-guard check IMAGE\" says how large it has to "
           "be";
  }

  [[nodiscard]] Look volume_missing() const {
    if (!snapshot_.filesystems.has_value()) {
      return unseen();
    }
    if (device_ != nullptr) {
      return well();
    }
    return {
        true,
        Finding{FindingKind::VolumeMissing,
                "there is no filesystem with a size under the path of the images: no pull can "
                "be judged",
                "mount the volume before the runtime starts, and give its path to --image-path"}};
  }

  [[nodiscard]] Look volume_wrong() const {
    if (device_ == nullptr || !use_.has_value()) {
      return unseen();
    }
    // Measured a moment apart, and sizes of layers are a little generous.
    const std::int64_t tolerance = std::max(kSmallBytes, device_->capacity_bytes / 50);
    if (use_->other_bytes >= -tolerance) {
      return well();
    }
    const std::int64_t used = device_->capacity_bytes - device_->available_bytes;
    return {true,
            Finding{FindingKind::VolumeWrong,
                    "the runtime's images take " + gib(used - use_->other_bytes) + ", but on " +
                        device_->path + " only " + gib(used) +
                        " are in use: they are on another filesystem than the one that is watched",
                    "give --image-path a directory under the runtime's root, as the node has it"}};
  }

  [[nodiscard]] Look blobs_kept() const {
    if (!use_.has_value() || !runtime_->leases.empty() || !runtime_->ingests.empty()) {
      return unseen();  // a pull's blobs lie there until its end
    }
    const std::int64_t layers = use_->images_bytes + use_->reclaimable_bytes.value_or(0);
    if (use_->blobs_bytes < kSmallBytes || use_->blobs_bytes < layers / kBlobsShare) {
      return well();
    }
    return {true,
            Finding{FindingKind::BlobsKept,
                    gib(use_->blobs_bytes) +
                        " of compressed layers stay on the disk after they have been unpacked" +
                        (policy_.discard_unpacked_layers
                             ? ", while the policy says that the runtime discards them"
                             : ""),
                    "set discard_unpacked_layers = true in containerd's CRI configuration" +
                        std::string(policy_.discard_unpacked_layers
                                        ? ", or discardUnpackedLayers: false in the policy"
                                        : "")}};
  }

  [[nodiscard]] Look sandbox_unpinned() const {
    if (runtime_ == nullptr) {
      return unseen();
    }
    const LocalImage* unpinned = nullptr;
    for (const LocalImage& image : runtime_->images) {
      if (!is_sandbox_image(image.name)) {
        continue;
      }
      if (image.pinned) {
        return well();
      }
      unpinned = unpinned == nullptr ? &image : unpinned;
    }
    if (unpinned == nullptr) {
      return well();
    }
    return {true,
            Finding{FindingKind::SandboxUnpinned,
                    "the sandbox image " + unpinned->name +
                        " is not pinned: garbage collection may remove it, and without it no pod "
                        "starts",
                    "let containerd pin it (1.7.3 or newer, sandbox image set in its "
                    "configuration), or: ctr -n k8s.io images label " +
                        unpinned->name + " io.cri-containerd.pinned=pinned"}};
  }

  /// Protected pods that go on and of which `matches` is true.
  template <typename Matches>
  [[nodiscard]] std::vector<const Pod*> protected_pods(Matches matches) const {
    std::vector<const Pod*> pods;
    for (const Pod& pod : *snapshot_.pods) {
      const bool over = pod.phase == PodPhase::Succeeded || pod.phase == PodPhase::Failed;
      if (!over && !pod.deleting && !pod.mirror && is_protected(pod, policy_) && matches(pod)) {
        pods.push_back(&pod);
      }
    }
    return pods;
  }

  [[nodiscard]] Look protected_no_request() const {
    if (!snapshot_.pods.has_value()) {
      return unseen();
    }
    const auto pods = protected_pods([](const Pod& pod) {
      return pod.priority < kNeverEvictedPriority && pod.ephemeral_storage_request_bytes == 0;
    });
    if (pods.empty()) {
      return well();
    }
    return {true,
            Finding{FindingKind::ProtectedNoRequest,
                    "protected pods without a request for ephemeral-storage (" + pods_text(pods) +
                        "): under disk pressure the kubelet evicts those first that use more than "
                        "they request",
                    "give them requests.ephemeral-storage above what they write, and a "
                    "PriorityClass"}};
  }

  [[nodiscard]] Look protected_intolerant() const {
    if (!snapshot_.pods.has_value()) {
      return unseen();
    }
    const auto pods =
        protected_pods([this](const Pod& pod) { return !tolerates(pod, policy_.taint_key); });
    if (pods.empty()) {
      return well();
    }
    return {true,
            Finding{FindingKind::ProtectedIntolerant,
                    "protected pods that don't tolerate the agent's taint (" + pods_text(pods) +
                        "): one that has to start again can't come back while the node is guarded",
                    "give them the toleration {key: " + policy_.taint_key +
                        ", operator: Exists, effect: NoSchedule}"}};
  }

  [[nodiscard]] Look leftovers() const {
    if (device_ == nullptr || !use_.has_value()) {
      return unseen();
    }
    if (use_->leftover_bytes < std::max(kSmallBytes, device_->capacity_bytes / 100)) {
      return well();
    }
    return {true,
            Finding{FindingKind::Leftovers,
                    gib(use_->leftover_bytes) +
                        " on the image filesystem belong to no image, container or pull: what "
                        "failed pulls have left",
                    "containerd's garbage collection takes them once their leases have expired (a "
                    "day at most); sooner with: ctr -n k8s.io content prune references"}};
  }

  [[nodiscard]] Look unexplained_growth() const {
    const std::optional<std::int64_t> now = unexplained_bytes();
    if (device_ == nullptr || !now.has_value()) {
      return unseen();
    }
    const std::vector<GrowthSample>& growth = decision_.memory.audit.growth;
    if (growth.empty()) {
      return well();
    }
    const auto least = std::ranges::min_element(growth, {}, &GrowthSample::bytes);
    const std::int64_t grown = *now - least->bytes;
    if (grown < std::max(kGrowthBytes, device_->capacity_bytes / kGrowthShare)) {
      return well();
    }
    const auto minutes =
        std::chrono::duration_cast<std::chrono::minutes>(snapshot_.taken_at - least->at).count();
    return {true,
            Finding{FindingKind::UnexplainedGrowth,
                    gib(grown) + " more are in use than " + std::to_string(minutes) +
                        " minutes ago, and no image explains them: containers' files, logs, "
                        "emptyDir volumes, or something outside of Kubernetes",
                    "find the writer (kubectl get --raw /api/v1/nodes/NODE/proxy/stats/summary, "
                    "du on the node) and limit it with resources.limits.ephemeral-storage"}};
  }

  const NodeSnapshot& snapshot_;
  const Policy& policy_;
  const Decision& decision_;
  const Filesystem* device_ = nullptr;
  const RuntimeState* runtime_ = nullptr;
  std::optional<SpaceUse> use_;
};

/// How long it has to look so before it is a finding; what is configured is so at once.
Duration confirmed_after(FindingKind kind) {
  switch (kind) {
    case FindingKind::BlobsKept:
    case FindingKind::Leftovers:
      return kBytesConfirmed;
    case FindingKind::VolumeWrong:
    case FindingKind::VolumeMissing:
      return kAuditInterval;  // two looks: the parts of one are not of the same moment
    case FindingKind::ThresholdUnset:
    case FindingKind::GcTooLate:
    case FindingKind::VolumeTooSmall:
    case FindingKind::SandboxUnpinned:
    case FindingKind::ProtectedNoRequest:
    case FindingKind::ProtectedIntolerant:
    case FindingKind::UnexplainedGrowth:
      break;
  }
  return Duration{0};
}

void note_growth(const NodeSnapshot& snapshot, const Auditor& auditor, AuditMemory& memory) {
  const std::optional<std::int64_t> bytes = auditor.unexplained_bytes();
  const bool due =
      memory.growth.empty() || snapshot.taken_at - memory.growth.back().at >= kGrowthStep;
  if (!bytes.has_value() || !due) {
    return;
  }
  memory.growth.push_back({.at = snapshot.taken_at, .bytes = *bytes});
  if (memory.growth.size() > kGrowthSamples) {
    memory.growth.erase(memory.growth.begin());
  }
}

/// The finding that stands after this look.
std::optional<Finding> settle(FindingKind kind, Look look, MonotonicTime now, AuditMemory& memory) {
  if (!look.seen) {
    const auto before = std::ranges::find(memory.findings, kind, &Finding::kind);
    return before == memory.findings.end() ? std::nullopt : std::optional(*before);
  }
  if (!look.finding.has_value()) {
    memory.suspected_since.erase(kind);
    return std::nullopt;
  }
  const MonotonicTime since = memory.suspected_since.try_emplace(kind, now).first->second;
  return now - since >= confirmed_after(kind) ? std::move(look.finding) : std::nullopt;
}

void tell_findings(const NodeSnapshot& snapshot, Decision& decision) {
  if (!snapshot.node.has_value()) {
    return;
  }
  const std::vector<Finding> findings = decision.memory.audit.findings;
  for (const Finding& finding : findings) {
    auto& told = decision.memory.audit.told;
    const auto before = told.find(finding.kind);
    const bool news = before == told.end() || snapshot.taken_at - before->second >= kToldAgain;
    told[finding.kind] = snapshot.taken_at;
    if (news) {
      tell(snapshot,
           decision,
           {.api_version = "v1",
            .kind = "Node",
            .namespace_name = {},
            .name = snapshot.node->name,
            .uid = snapshot.node->uid},
           {.warning = true,
            .event_reason = event_reason(finding.kind),
            .event_action = "Audit",
            .variant = {},
            .note = finding.sentence + "; " + finding.advice});
    }
  }
}

}  // namespace

const char* to_string(FindingKind kind) {
  switch (kind) {
    case FindingKind::ThresholdUnset:
      return "imagefs_threshold_unset";
    case FindingKind::GcTooLate:
      return "image_gc_too_late";
    case FindingKind::VolumeTooSmall:
      return "volume_too_small";
    case FindingKind::VolumeMissing:
      return "volume_missing";
    case FindingKind::VolumeWrong:
      return "volume_wrong";
    case FindingKind::BlobsKept:
      return "blobs_kept";
    case FindingKind::SandboxUnpinned:
      return "sandbox_image_unpinned";
    case FindingKind::ProtectedNoRequest:
      return "protected_pod_without_request";
    case FindingKind::ProtectedIntolerant:
      return "protected_pod_without_toleration";
    case FindingKind::Leftovers:
      return "leftover_bytes";
    case FindingKind::UnexplainedGrowth:
      return "unexplained_growth";
  }
  return "unknown";
}

const char* event_reason(FindingKind kind) {
  switch (kind) {
    case FindingKind::ThresholdUnset:
      return "ImagefsThresholdUnset";
    case FindingKind::GcTooLate:
      return "ImageGCTooLate";
    case FindingKind::VolumeTooSmall:
      return "VolumeTooSmall";
    case FindingKind::VolumeMissing:
      return "VolumeMissing";
    case FindingKind::VolumeWrong:
      return "VolumeWrong";
    case FindingKind::BlobsKept:
      return "BlobsKept";
    case FindingKind::SandboxUnpinned:
      return "SandboxImageUnpinned";
    case FindingKind::ProtectedNoRequest:
      return "ProtectedPodWithoutRequest";
    case FindingKind::ProtectedIntolerant:
      return "ProtectedPodWithoutToleration";
    case FindingKind::Leftovers:
      return "LeftoverBytes";
    case FindingKind::UnexplainedGrowth:
      return "UnexplainedGrowth";
  }
  return "Unknown";
}

void audit(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision) {
  AuditMemory& memory = decision.memory.audit;
  const bool whole = snapshot.kubelet.has_value() && snapshot.filesystems.has_value() &&
                     snapshot.runtime.has_value() && snapshot.pods.has_value();
  if (memory.looked_at.has_value() &&
      snapshot.taken_at - *memory.looked_at <
          (whole && memory.whole ? kAuditInterval : kBlindInterval)) {
    return;
  }
  memory.whole = whole;
  memory.looked_at = snapshot.taken_at;
  const Auditor auditor(snapshot, policy, decision);
  std::vector<Finding> findings;
  for (const FindingKind kind : kFindingKinds) {
    if (auto finding = settle(kind, auditor.look(kind), snapshot.taken_at, memory)) {
      findings.push_back(*std::move(finding));
    }
  }
  note_growth(snapshot, auditor, memory);
  memory.findings = std::move(findings);
  tell_findings(snapshot, decision);
}

}  // namespace imagefs_guard
