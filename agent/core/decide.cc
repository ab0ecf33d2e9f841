#include "agent/core/decide.h"

#include <algorithm>
#include <utility>

#include "agent/core/drain.h"
#include "agent/core/findings.h"
#include "agent/core/publish.h"
#include "agent/core/reclaim.h"
#include "agent/core/room.h"
#include "agent/core/stage.h"
#include "agent/core/words.h"

namespace imagefs_guard {

namespace {

/// A picture of the runtime older than this is not a picture of now.
constexpr Duration kRuntimeAgeMaximum = std::chrono::seconds(60);
/// What a layer of unknown size may become before anybody has said more: beyond the usual band.
constexpr std::int64_t kUnknownRatio = 12;
/// A registry that can't be reached is asked again sooner than the kubelet's first retry (10 s).
constexpr Duration kPassingRetry = std::chrono::seconds(2);
/// For this long a missing part means: do nothing, neither hold nor release. After it: fail open.
constexpr Duration kBlindMaximum = std::chrono::seconds(30);
/// What a removal gives back is there when it returns: this long it is waited for and measured.
constexpr Duration kReclaimSettles = std::chrono::seconds(5);
/// Images removed for one pull at once; the next ones follow when these have been measured.
constexpr std::size_t kReclaimsAtOnce = 16;
/// The deletion of a lease is ordered again after this, should the pull still be there.
constexpr Duration kCancelRepeat = std::chrono::seconds(10);

/// A pull that was let go is cancelled only if it has looked too large for so long. What it writes
/// shows at once in the free bytes, but only a moment later as written by it.
constexpr Duration kShortConfirmed = std::chrono::seconds(2);

constexpr Duration kBackoffFirst = std::chrono::seconds(1);
constexpr int kBackoffDoublings = 6;  // 64 s
/// Who is refused is not let in by asking again soon.
constexpr Duration kBackoffRefused = std::chrono::minutes(5);

const Filesystem* image_filesystem(const NodeSnapshot& snapshot) {
  if (!snapshot.filesystems.has_value()) {
    return nullptr;
  }
  const auto found = std::ranges::find(*snapshot.filesystems, true, &Filesystem::holds_images);
  // Capacity 0 is what some nodes report for a while: unknown, not full.
  return found == snapshot.filesystems->end() || found->capacity_bytes <= 0 ? nullptr : &*found;
}

void note_outcomes(const NodeSnapshot& snapshot, Memory& memory) {
  for (const ActionOutcome& outcome : snapshot.outcomes) {
    if (!outcome.error.has_value()) {
      memory.backoff.erase(outcome.key);
      continue;
    }
    Backoff& backoff = memory.backoff[outcome.key];
    backoff.failures = std::min(backoff.failures + 1, kBackoffDoublings);
    const bool refused = outcome.error->kind == ErrorKind::PermissionDenied;
    backoff.not_before =
        snapshot.taken_at +
        (refused ? kBackoffRefused : kBackoffFirst * (1 << (backoff.failures - 1)));
  }
}

/// One run of the planner: judges the pulls in order against one ledger.
class Planner {
 public:
  Planner(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision)
      : snapshot_(snapshot), policy_(policy), decision_(decision) {}

  void observe() {
    for (const auto& [part, error] : snapshot_.probe_errors) {
      decision_.node.blind_spots.push_back(part + ": " + error);
    }
    decision_.node.observe_only = why_observe_only();
    device_ = image_filesystem(snapshot_);
    if (device_ == nullptr) {
      return;
    }
    decision_.node.image_filesystem = *device_;
    decision_.node.floor = floor_of(*device_, snapshot_.kubelet, policy_);
    decision_.node.image_usage_percent = image_usage_percent(*device_);
    decision_.node.image_gc_due =
        snapshot_.kubelet.has_value() &&
        decision_.node.image_usage_percent >= snapshot_.kubelet->image_gc_high_percent;
  }

  void plan_pulls() {
    const bool sees_runtime =
        snapshot_.runtime.has_value() &&
        snapshot_.taken_at - snapshot_.runtime_observed_at <= kRuntimeAgeMaximum;
    if (!decision_.node.observe_only.empty()) {
      return;  // whatever answers at containerd's socket here, the kubelet doesn't pull with it
    }
    if (device_ == nullptr || !sees_runtime || !snapshot_.pods.has_value()) {
      stand_still();
      return;
    }
    decision_.memory.blind_since.reset();
    const Pulls pulls = collect_pulls(snapshot_, decision_.memory, policy_);
    remember(pulls);
    note_images_in_use();
    std::vector<const ImageManifest*> wanted;
    for (const Pull& pull : pulls.pulls) {
      wanted.push_back(pull.manifest);
    }
    if (!wanted.empty()) {  // nobody asks otherwise, and it is the dearest look of all
      reclaimable_.emplace(snapshot_, decision_.memory, wanted);
      decision_.node.reclaimable_bytes = reclaimable_->bytes();
    }
    room_.emplace(RoomSetup{.runtime = *snapshot_.runtime,
                            .manifests = snapshot_.manifests,
                            .device = *device_,
                            .floor = decision_.node.floor,
                            .discards = policy_.discard_unpacked_layers,
                            .floor_margin_bytes = policy_.floor_margin_bytes,
                            .reclaimable_bytes = decision_.node.reclaimable_bytes});
    std::vector<Digest> live;
    for (const Pull& pull : pulls.pulls) {
      if (!pull.lease_ids.empty()) {
        live.push_back(pull.manifest->manifest_digest);
      }
    }
    decision_.node.leftover_bytes = room_->leftover_bytes(live);
    for (const Pull& pull : pulls.pulls) {
      ask_for_config(pull);
      pull.is_live() ? plan_live(pull) : plan_waiting(pull);
    }
    for (const UnresolvedImage& image : pulls.unresolved) {
      plan_unresolved(image);
    }
  }

  void finish_node() {
    NodeReport& node = decision_.node;
    node.outstanding_bytes = outstanding();
    if (device_ != nullptr) {
      node.forecast_low_bytes = device_->available_bytes - outstanding();
      node.headroom_bytes = node.forecast_low_bytes - node.floor.bytes;
    }
    plan_stage();
  }

 private:
  /// Holds and leases are containerd's; CRI-O and Docker are recognised by what the node says.
  [[nodiscard]] std::string why_observe_only() const {
    const std::string runtime =
        snapshot_.node.has_value() ? snapshot_.node->container_runtime : std::string();
    if (runtime.empty() || runtime.starts_with("containerd://")) {
      return {};
    }
    return "observe only: the container runtime is " + runtime +
           ", pulls can be held with containerd alone";
  }

  /// Not observed is not zero: nothing is held anew, nothing is cancelled. What is held stays so
  /// for a while, since a probe that fails once must not let every pull go.
  void stand_still() {
    std::optional<MonotonicTime>& since = decision_.memory.blind_since;
    if (!since.has_value()) {
      since = snapshot_.taken_at;
    }
    if (snapshot_.taken_at - *since >= kBlindMaximum) {
      return;
    }
    for (const Hold& hold : snapshot_.holds) {
      const auto manifest = std::ranges::lower_bound(
          snapshot_.manifests, hold.manifest_digest, {}, &ImageManifest::manifest_digest);
      if (manifest == snapshot_.manifests.end() ||
          manifest->manifest_digest != hold.manifest_digest) {
        continue;
      }
      decision_.actions.emplace_back(
          HoldPull{.manifest_digest = hold.manifest_digest,
                   .image = to_string(hold.manifest_digest),
                   .config = {.ref = manifest->config_ref, .expected = manifest->config_digest},
                   .layers = {},
                   .reason = "the node can't be observed just now, what is held stays held"});
    }
  }

  void plan_stage() {
    StageState& state = decision_.memory.stage;
    if (!state.started && snapshot_.node.has_value()) {
      // A restarted agent goes on where the node says that it was.
      const auto taint = std::ranges::find(snapshot_.node->taints, policy_.taint_key, &Taint::key);
      if (taint != snapshot_.node->taints.end()) {
        state.stage = taint->effect == "NoSchedule" ? Stage::Guard : Stage::Warn;
      }
      state.started = true;
    }
    const bool pressure = snapshot_.node.has_value() && snapshot_.node->disk_pressure;
    if (device_ == nullptr && !pressure) {
      decision_.node.stage = state.stage;
      return;
    }
    StageInput input{.taken_at = snapshot_.taken_at, .disk_pressure = pressure};
    if (device_ != nullptr) {
      const std::int64_t above_floor = device_->available_bytes - decision_.node.floor.bytes;
      input.near_floor = above_floor < policy_.guard_margin_bytes;
      input.has_room = above_floor >= policy_.clear_margin_bytes;
    }
    for (const PullReport& pull : decision_.pulls) {
      if (pull.waits_for_sizes) {
        continue;
      }
      const bool soon = pull.verdict == Verdict::FitsLater ||
                        (pull.verdict == Verdict::FitsAfterReclaim && policy_.reclaim);
      input.something_queued |= pull.held && soon;
      // One that fits and is held all the same is no reason to keep others away.
      input.something_stuck |= pull.held && !soon && pull.verdict != Verdict::Fits;
    }
    state = next_stage(state, input, policy_);
    decision_.node.stage = state.stage;
  }

  /// When each image that is here was last needed; what is gone is forgotten.
  void note_images_in_use() {
    std::map<Digest, MonotonicTime> next;
    for (const LocalImage& image : snapshot_.runtime->images) {
      const auto known = decision_.memory.image_used_at.find(image.image_id);
      if (known != decision_.memory.image_used_at.end()) {
        next.insert(*known);
      }
    }
    for (const Digest& id : images_in_use(snapshot_)) {
      next[id] = snapshot_.taken_at;
    }
    decision_.memory.image_used_at = std::move(next);
  }

  /// Arrival of each pull that is there; what is gone is forgotten.
  void remember(const Pulls& pulls) {
    std::map<Digest, PullMemory> next;
    for (const Pull& pull : pulls.pulls) {
      const Digest& digest = pull.manifest->manifest_digest;
      const auto known = decision_.memory.pulls.find(digest);
      next[digest] = known != decision_.memory.pulls.end() ? known->second
                                                           : PullMemory{.first_seen = pull.arrival};
    }
    decision_.memory.pulls = std::move(next);
  }

  [[nodiscard]] PullReport report_of(const Pull& pull, const Demand& demand) const {
    PullReport report{.manifest_digest = pull.manifest->manifest_digest,
                      .image = pull.image,
                      .state = pull.state,
                      .is_protected = pull.is_protected,
                      .arrival = pull.arrival,
                      .demand = demand,
                      .outstanding_bytes = outstanding()};
    if (report.image.empty()) {
      report.image = to_string(pull.manifest->manifest_digest);
    }
    for (const std::vector<const Pod*>* list : {&pull.pods, &pull.leaving_pods}) {
      for (const Pod* pod : *list) {
        report.pods.push_back(pod->namespace_name + "/" + pod->name);
      }
    }
    return report;
  }

  [[nodiscard]] std::int64_t outstanding() const {
    return room_.has_value() ? room_->outstanding_bytes() : 0;
  }

  /// A pull that writes already: goes on if the disk can take the rest of it and of those before.
  void plan_live(const Pull& pull) {
    const Demand demand = room_->demand_of(*pull.manifest);
    PullReport report = report_of(pull, demand);
    const bool is_short = !room_->fits_by_middle(demand);
    const bool fits = !is_short || !is_confirmed_short(pull);
    PullMemory& memory = decision_.memory.pulls[pull.manifest->manifest_digest];
    if (!is_short) {
      memory.admitted = true;
      memory.short_since.reset();
    }
    report.verdict = fits ? Verdict::Fits : Verdict::DoesNotFit;
    report.sentence = verdict_sentence(report, decision_.node);
    if (pull.pods.empty() && is_abandoned(pull)) {
      cancel(pull, "is wanted by no pod any more: its only pod is being deleted");
    } else if (!fits && demand.pending_bytes == 0) {
      report.held = !pull.pods.empty();
      cancel(pull, "is under way and would cross the floor: " + report.sentence);
      if (report.held) {
        hold(pull, report);  // meets the kubelet's retry
        protected_waits_ |= pull.is_protected;
      }
      // It writes on to its next layer boundary: nobody else may have those bytes before it ends.
      room_->reserve(demand);
    } else {
      room_->commit(*pull.manifest, demand);
    }
    decision_.pulls.push_back(std::move(report));
  }

  /// One that was never let go is stopped at once; see kShortConfirmed for the others. At the
  /// floor there is no time to look again.
  bool is_confirmed_short(const Pull& pull) {
    PullMemory& memory = decision_.memory.pulls[pull.manifest->manifest_digest];
    if (!memory.short_since.has_value()) {
      memory.short_since = snapshot_.taken_at;
    }
    return !memory.admitted || device_->available_bytes < decision_.node.floor.bytes ||
           snapshot_.taken_at - *memory.short_since >= kShortConfirmed;
  }

  /// Whether letting this one go would take the room that one before it is waiting for.
  [[nodiscard]] bool would_overtake(const Pull& pull, const Demand& demand) const {
    if (protected_waits_ && !pull.is_protected) {
      return true;
    }
    return queued_peak_ > 0 &&
           room_->settled_after(demand) - queued_peak_ < decision_.node.floor.bytes;
  }

  /// Whether to hold first and judge when the sizes are known, in a moment. A pull that fits even
  /// if its layers are larger than layers are does not have to wait.
  [[nodiscard]] bool waits_for_sizes(const Pull& pull, const Demand& demand) const {
    if (pull.pods.empty() || !(pull.incomplete || demand.pending_bytes > 0)) {
      return false;
    }
    const std::int64_t unknown = pull.incomplete ? demand.download_bytes : demand.pending_bytes;
    const std::int64_t left = device_->available_bytes - outstanding() - demand.peak_high_bytes();
    return left - unknown * kUnknownRatio < decision_.node.floor.bytes;
  }

  void plan_waiting(const Pull& pull) {
    const Demand demand = room_->demand_of(*pull.manifest);
    PullReport report = report_of(pull, demand);
    if (waits_for_sizes(pull, demand)) {
      report.waits_for_sizes = true;
      report.held = true;
      report.verdict = Verdict::Unknown;
      report.sentence = "waits a moment: the sizes of its layers are being asked for";
      hold(pull, report);
      decision_.pulls.push_back(std::move(report));
      return;
    }
    const Balance balance = room_->balance(*pull.manifest, demand);
    const Room::Judgement judgement = room_->verdict(*pull.manifest, demand);
    report.verdict = judgement.verdict;
    report.by_inodes = judgement.by_inodes;
    if (report.verdict == Verdict::Fits && would_overtake(pull, demand)) {
      report.verdict = Verdict::FitsLater;
    }
    if (report.verdict == Verdict::DoesNotFit || report.verdict == Verdict::NeverFits) {
      report.smallest_volume_gib = room_->smallest_volume_gib(balance.peak);
    }
    if (report.verdict == Verdict::FitsAfterReclaim) {
      report.reclaim_bytes = balance.shortfall();
    }
    report.sentence = verdict_sentence(report, decision_.node);
    if (pull.pods.empty()) {
      plan_unwanted(pull, report);
    } else if (report.verdict == Verdict::Fits && !must_not_start(snapshot_, policy_, pull)) {
      release(pull, report);
      decision_.memory.pulls[pull.manifest->manifest_digest].admitted = true;
      room_->commit(*pull.manifest, demand);
    } else {
      wait(pull, balance, report);
    }
    decision_.pulls.push_back(std::move(report));
  }

  void wait(const Pull& pull, const Balance& balance, PullReport& report) {
    report.held = true;
    decision_.node.waiting_bytes += balance.peak;
    if (report.verdict == Verdict::FitsLater) {
      queued_peak_ = std::max(queued_peak_, balance.settled_peak);
    }
    protected_waits_ |= pull.is_protected && report.verdict != Verdict::NeverFits;
    hold(pull, report);
    if (report.verdict == Verdict::FitsAfterReclaim) {
      reclaim(report);
    }
    if (pull.lease_ids.empty()) {
      return;
    }
    if (pull.hold != nullptr && pull.hold->state == HoldState::NothingToHold) {
      // All its blobs are here, from a pull that failed: it would begin to unpack at once.
      cancel(pull, "can't be held, all its blobs are here: " + report.sentence);
      return;
    }
    ++waiting_slots_;
    if (waiting_slots_ > slots_for_holds()) {
      cancel(pull, "must not keep a pull slot while it waits: " + report.sentence);
    }
  }

  /// Removes what it takes, once: the space is measured before anything more goes, and what the
  /// disk then has decides. The bytes expected are never taken for bytes that are there.
  void reclaim(const PullReport& report) {
    const std::optional<MonotonicTime>& before = decision_.memory.reclaimed_at;
    if (!policy_.reclaim ||
        (before.has_value() && snapshot_.taken_at - *before < kReclaimSettles)) {
      return;
    }
    const ReclaimChoice choice = reclaimable_->choose(report.reclaim_bytes);
    std::size_t ordered = 0;
    for (const ReclaimableImage* image : choice.images) {
      ReclaimImage action{
          .image_id = image->image_id,
          .image = image->name,
          .expected_bytes = reclaimable_->bytes_of(*image),
          .reason = "makes room for " + report.image + ", which " + report.sentence};
      if (ordered == kReclaimsAtOnce ||
          !may_order(snapshot_, decision_.memory, action_key(action))) {
        continue;
      }
      ++ordered;
      decision_.memory.reclaimed_at = snapshot_.taken_at;
      decision_.actions.emplace_back(std::move(action));
    }
  }

  /// How many held pulls may wait in the kubelet's pull slots: one slot stays free for others.
  [[nodiscard]] int slots_for_holds() const {
    constexpr int kUnlimited = 1'000'000;
    if (!snapshot_.kubelet.has_value() || snapshot_.kubelet->serialize_image_pulls) {
      return 0;
    }
    const auto& maximum = snapshot_.kubelet->max_parallel_image_pulls;
    return maximum.has_value() ? *maximum - 1 : kUnlimited;
  }

  static bool is_abandoned(const Pull& pull) {
    return !pull.leaving_pods.empty() && !pull.is_protected;
  }

  /// No live pod waits for it. What we hold must not wait for ever, what leaves must not start.
  void plan_unwanted(const Pull& pull, PullReport& report) {
    // One that is being opened counts: let go now, the pull would run on until it is cancelled.
    const bool held = pull.hold != nullptr && (pull.hold->state == HoldState::Held ||
                                               pull.hold->state == HoldState::Opening);
    if (!held && !is_abandoned(pull)) {
      return;  // somebody else's pull: counted once it writes, never touched before
    }
    cancel(pull, "is wanted by no pod any more");
    if (held) {
      report.held = true;
      hold(pull, report);  // at 0 bytes until the lease is gone
    }
  }

  void hold(const Pull& pull, const PullReport& report) {
    const ImageManifest& manifest = *pull.manifest;
    HoldPull action{.manifest_digest = manifest.manifest_digest,
                    .image = report.image,
                    .config = {.ref = manifest.config_ref, .expected = manifest.config_digest},
                    .layers = {},
                    .reason = report.sentence};
    for (const Layer& layer : manifest.layers) {
      const auto same = std::ranges::find(action.layers, layer.digest, &HoldRef::expected);
      if (!room_->has_chain(layer.chain_id) && same == action.layers.end()) {
        action.layers.push_back(
            {.ref = "layer-" + to_string(layer.digest), .expected = layer.digest});
      }
    }
    decision_.actions.emplace_back(std::move(action));
    PullMemory& memory = decision_.memory.pulls[manifest.manifest_digest];
    memory.released_at.reset();
    memory.admitted = false;
    memory.short_since.reset();
  }

  void release(const Pull& pull, const PullReport& report) {
    if (pull.hold == nullptr) {
      return;
    }
    decision_.actions.emplace_back(ReleasePull{.manifest_digest = pull.manifest->manifest_digest,
                                               .image = report.image,
                                               .reason = report.sentence});
    decision_.memory.pulls[pull.manifest->manifest_digest].released_at = snapshot_.taken_at;
  }

  void cancel(const Pull& pull, const std::string& reason) {
    PullMemory& memory = decision_.memory.pulls[pull.manifest->manifest_digest];
    if (snapshot_.taken_at - memory.cancelled_at >= kCancelRepeat) {
      memory.cancelled_leases.clear();
    }
    CancelPull action{
        .manifest_digest = pull.manifest->manifest_digest,
        .image = pull.image.empty() ? to_string(pull.manifest->manifest_digest) : pull.image,
        .lease_ids = {},
        .reason = reason};
    for (const std::string& id : pull.lease_ids) {
      if (std::ranges::find(memory.cancelled_leases, id) == memory.cancelled_leases.end()) {
        action.lease_ids.push_back(id);
      }
    }
    if (action.lease_ids.empty() || !may_order(snapshot_, decision_.memory, action_key(action))) {
      return;
    }
    memory.cancelled_leases.insert(
        memory.cancelled_leases.end(), action.lease_ids.begin(), action.lease_ids.end());
    memory.cancelled_at = snapshot_.taken_at;
    decision_.actions.emplace_back(std::move(action));
  }

  /// Asks for what is not known yet; says so where it can't be had.
  void plan_unresolved(const UnresolvedImage& image) {
    const ResolvedImage* known = image.resolution;
    PullReport report{.image = image.image, .verdict = Verdict::Unknown};
    for (const Pod* pod : image.pods) {
      report.pods.push_back(pod->namespace_name + "/" + pod->name);
    }
    const FetchManifest fetch{.image = image.image, .reason = "a pod bound to this node needs it"};
    if (known == nullptr) {
      order_fetch(fetch);
    } else if (known->error.has_value()) {
      report.sentence = "can't be judged: " + known->error->message;
      decision_.pulls.push_back(std::move(report));
      fetch_again(*known);
    } else if (!known->in_flight) {
      order_fetch(fetch);  // resolved once, its manifest has been dropped since
    }
  }

  /// The manifest came, its config did not: judged with every layer missing until it has.
  void ask_for_config(const Pull& pull) {
    if (pull.resolution != nullptr && pull.resolution->error.has_value()) {
      fetch_again(*pull.resolution);
    }
  }

  void fetch_again(const ResolvedImage& known) {
    const int doublings = std::clamp(known.failures - 1, 0, 4);
    const ErrorKind kind = known.error->kind;
    const bool passing = kind == ErrorKind::Unavailable || kind == ErrorKind::DeadlineExceeded;
    const Duration first =
        passing ? std::min(kPassingRetry, policy_.manifest_retry) : policy_.manifest_retry;
    if (!known.in_flight && snapshot_.taken_at - known.resolved_at >= first * (1 << doublings)) {
      order_fetch({.image = known.image, .reason = "asked again after " + known.error->message});
    }
  }

  void order_fetch(FetchManifest fetch) {
    if (may_order(snapshot_, decision_.memory, action_key(fetch))) {
      decision_.actions.emplace_back(std::move(fetch));
    }
  }

  const NodeSnapshot& snapshot_;
  const Policy& policy_;
  Decision& decision_;
  const Filesystem* device_ = nullptr;
  std::optional<Room> room_;
  std::optional<Reclaimable> reclaimable_;
  std::int64_t queued_peak_ = 0;
  bool protected_waits_ = false;
  int waiting_slots_ = 0;
};

}  // namespace

Decision decide(const NodeSnapshot& snapshot, const Memory& memory, const Policy& policy) {
  Decision decision;
  decision.memory = memory;
  note_outcomes(snapshot, decision.memory);
  Planner planner(snapshot, policy, decision);
  planner.observe();
  planner.plan_pulls();
  planner.finish_node();
  plan_drains(snapshot, policy, decision);
  publish(snapshot, policy, decision);
  audit(snapshot, policy, decision);
  return decision;
}

}  // namespace imagefs_guard
