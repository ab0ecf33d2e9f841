#include "probes/runtime.h"

#include <algorithm>
#include <utility>

#include "probes/runtime_lists.h"

namespace imagefs_guard {

namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(300);
constexpr Duration kFresh = std::chrono::milliseconds(100);
// After the last movement: long enough for a registry that pauses, short enough to be idle.
constexpr Duration kMovingFor = std::chrono::seconds(10);
constexpr Duration kRelistInterval = std::chrono::seconds(60);
constexpr Duration kBackOffFirst = std::chrono::seconds(1);
constexpr Duration kBackOffLongest = std::chrono::seconds(10);
// A restart of containerd: the old picture is better than none for that long, not longer.
constexpr Duration kKeepFor = std::chrono::seconds(5);
// A pull makes three image records within a few milliseconds.
constexpr Duration kImagesDelay = std::chrono::milliseconds(20);
constexpr Duration kChangedInterval = std::chrono::milliseconds(20);
// containerd's garbage collection comes some 0.3 to 5 s after a lease or an image is gone, and in
// 1.6 and 1.7 without events.
constexpr std::array kCollectedDelays = {Duration(std::chrono::seconds(1)),
                                         Duration(std::chrono::seconds(5))};
// A lease that protects nothing yet is asked again with every poll, but not for ever.
constexpr Duration kNewLeaseFor = std::chrono::seconds(30);
constexpr std::size_t kBlobsToAskLimit = 32;    // more: list them all
constexpr std::size_t kLeasesToAskLimit = 256;  // the rest comes with the next poll
constexpr std::size_t kMeasureLimit = 4'096;

}  // namespace

RuntimeProbe::RuntimeProbe(EventLoop& loop, Containerd& containerd)
    : loop_(loop),
      containerd_(containerd),
      retry_timer_(loop.make_timer("runtime connect", [this] { connect(); })),
      poll_timer_(loop.make_timer("runtime poll",
                                  [this] {
                                    if (polling_wanted()) {
                                      poll_timer_->arm(kPollInterval);
                                      poll();
                                    }
                                  })),
      relist_timer_(loop.make_timer("runtime list",
                                    [this] {
                                      relist_timer_->arm(kRelistInterval);
                                      list_all();
                                    })),
      collected_timer_(loop.make_timer("runtime garbage collected",
                                       [this] {
                                         ++collected_rounds_;
                                         if (collected_rounds_ < int{kCollectedDelays.size()}) {
                                           collected_timer_->arm(kCollectedDelays.back());
                                         }
                                         list(Part::Blobs);
                                         list(Part::Snapshots);
                                       })),
      images_timer_(loop.make_timer("runtime images", [this] { list(Part::Images); })),
      lost_timer_(loop.make_timer("runtime lost", [this] { changed_soon(); })),
      changed_timer_(loop.make_timer("runtime changed", [this] {
        changed_at_ = loop_.now();
        changed_();
      })) {}

RuntimeProbe::~RuntimeProbe() = default;

void RuntimeProbe::start(std::function<void()> changed) {
  changed_ = std::move(changed);
  connect();
}

void RuntimeProbe::connect() {
  connected_ = true;
  for (Slot& each : slots_) {
    each = Slot{.dirty = each.dirty};
  }
  // Before the lists, so that nothing falls between.
  events_ = containerd_.subscribe(
      [this](const wire::ContainerdEvent& event) { on_event(event); },
      [this](Result<void> end) {
        disconnect(end ? Error{ErrorKind::Unavailable, "the event stream has ended"}
                       : with_context(std::move(end).error(), "events"));
      });
  version_ = containerd_.version([this](Result<std::string> version) {
    if (version) {
      state_.version = *std::move(version);
    }
  });
  list_all();
}

void RuntimeProbe::disconnect(const Error& error) {
  if (!connected_) {
    return;
  }
  connected_ = false;
  for (Slot& each : slots_) {
    each.call.reset();
  }
  events_.reset();
  version_.reset();
  blob_call_.reset();
  lease_call_.reset();
  usage_call_.reset();
  blobs_to_ask_.clear();
  leases_to_ask_.clear();
  to_measure_.clear();
  poll_timer_->disarm();
  relist_timer_->disarm();
  collected_timer_->disarm();
  images_timer_->disarm();
  if (std::exchange(ready_, false)) {
    lost_at_ = loop_.now();
    lost_timer_->arm(kKeepFor);
    back_off_ = Duration{0};
  }
  error_ = error.message;
  back_off_ = std::clamp(back_off_ * 2, kBackOffFirst, kBackOffLongest);
  retry_timer_->arm(back_off_);
  changed_soon();
  answer_waiters();
}

void RuntimeProbe::list_all() {
  for (const Part part :
       {Part::Images, Part::Blobs, Part::Snapshots, Part::Leases, Part::Ingests}) {
    list(part);
  }
}

void RuntimeProbe::list(Part part) {
  if (!connected_) {
    return;
  }
  if (slot(part).call) {
    slot(part).again = true;
    return;
  }
  start_list(part);
}

template <typename T>
std::function<void(Result<T>)> RuntimeProbe::receiver(Part part, void (RuntimeProbe::*take)(T)) {
  return [this, part, take](Result<T> result) {
    if (!result) {
      listed(part, std::move(result).error());
      return;
    }
    (this->*take)(*std::move(result));
    listed(part, std::nullopt);
  };
}

void RuntimeProbe::start_list(Part part) {
  std::unique_ptr<GrpcCall>& call = slot(part).call;
  switch (part) {
    case Part::Images:
      call = containerd_.list_images(
          receiver<std::vector<LocalImage>>(part, &RuntimeProbe::take_images));
      break;
    case Part::Blobs:
      call = containerd_.list_blobs(receiver<wire::BlobList>(part, &RuntimeProbe::take_blobs));
      break;
    case Part::Snapshots:
      call = containerd_.list_snapshots(
          receiver<wire::SnapshotList>(part, &RuntimeProbe::take_snapshots));
      break;
    case Part::Leases:
      call = containerd_.list_leases(
          receiver<std::vector<PullLease>>(part, &RuntimeProbe::take_leases));
      break;
    case Part::Ingests:
      call = containerd_.list_ingests(
          receiver<std::vector<Ingest>>(part, &RuntimeProbe::take_ingests));
      break;
  }
}

void RuntimeProbe::listed(Part part, std::optional<Error> error) {
  Slot& mine = slot(part);
  mine.call.reset();
  if (error) {
    disconnect(*error);
    return;
  }
  mine.listed = true;
  observed_at_ = loop_.now();
  if (std::exchange(mine.again, false)) {
    start_list(part);
  }
  if (!slot(Part::Leases).call && !slot(Part::Ingests).call) {
    polled_at_ = loop_.now();
    answer_waiters();
  }
  const bool all = std::ranges::all_of(slots_, [](const Slot& each) { return each.listed; });
  if (all && !ready_) {
    ready_ = true;
    known_ = true;
    back_off_ = Duration{0};
    lost_timer_->disarm();
    relist_timer_->arm(kRelistInterval);
    moved();
    poll_timer_->arm(kPollInterval);
    changed_soon();
  }
}

void RuntimeProbe::take_images(std::vector<LocalImage> images) {
  link_images(images, links_, containerd_.snapshotter());
  if (images != state_.images) {
    // What a new image consists of is in the labels of its blobs.
    const bool ask_for_links = slot(Part::Blobs).listed && has_unlinked(images);
    state_.images = std::move(images);
    mark(Part::Images);
    if (ask_for_links) {
      list(Part::Blobs);
    }
  }
}

void RuntimeProbe::take_blobs(wire::BlobList list) {
  if (list.blobs != state_.blobs) {
    state_.blobs = std::move(list.blobs);
    mark(Part::Blobs);
  }
  if (list.links != links_) {
    links_ = std::move(list.links);
    std::vector<LocalImage> images = state_.images;
    link_images(images, links_, containerd_.snapshotter());
    if (images != state_.images) {
      state_.images = std::move(images);
      mark(Part::Images);
    }
  }
}

void RuntimeProbe::take_snapshots(wire::SnapshotList list) {
  std::vector<LayerSnapshot> snapshots = with_known_usage(std::move(list.layers), state_.snapshots);
  std::vector<ActiveExtract> extracts = extracts_of(list.extracts, state_.extracts);
  if (list.extracts != extract_keys_) {
    moved();
  }
  extract_keys_ = std::move(list.extracts);
  if (snapshots != state_.snapshots || extracts != state_.extracts ||
      list.used_chains != state_.used_chains) {
    state_.used_chains = std::move(list.used_chains);
    state_.snapshots = std::move(snapshots);
    state_.extracts = std::move(extracts);
    mark(Part::Snapshots);
  }
}

void RuntimeProbe::take_leases(std::vector<PullLease> leases) {
  const MonotonicTime now = loop_.now();
  std::map<std::string, MonotonicTime> seen_at;
  carry_resources(leases, state_.leases);
  for (const PullLease& lease : leases) {
    const auto known = lease_seen_at_.find(lease.id);
    const MonotonicTime first = known != lease_seen_at_.end() ? known->second : now;
    seen_at.emplace(lease.id, first);
    const bool is_new = now - first < kNewLeaseFor;
    const bool asked = std::ranges::find(leases_to_ask_, lease.id) != leases_to_ask_.end();
    // What a lease protects grows with its pull; later only a listing that is due looks again.
    if (!asked && leases_to_ask_.size() < kLeasesToAskLimit &&
        (is_new || now - moved_at_ < kMovingFor)) {
      leases_to_ask_.push_back(lease.id);
    }
  }
  const bool gone = std::ranges::any_of(
      lease_seen_at_, [&](const auto& known) { return !seen_at.contains(known.first); });
  if (gone) {
    collected_rounds_ = 0;
    collected_timer_->arm(kCollectedDelays.front());
  }
  if (gone || seen_at.size() != lease_seen_at_.size()) {
    moved();
  }
  lease_seen_at_ = std::move(seen_at);
  if (leases != state_.leases) {
    state_.leases = std::move(leases);
    mark(Part::Leases);
  }
  ask_next_lease();
}

void RuntimeProbe::take_ingests(std::vector<Ingest> ingests) {
  if (ingests == state_.ingests) {
    return;
  }
  for (const Digest& digest : ended_downloads(state_.ingests, ingests)) {
    ask_blob(digest);
  }
  if (downloads_moved(state_.ingests, ingests)) {
    moved();
  }
  state_.ingests = std::move(ingests);
  mark(Part::Ingests);
}

void RuntimeProbe::on_event(const wire::ContainerdEvent& event) {
  if (event.topic.starts_with("/images/")) {
    images_timer_->arm(kImagesDelay);
    if (event.topic == "/images/delete") {
      collected_rounds_ = 0;
      collected_timer_->arm(kCollectedDelays.front());
    }
    moved();
  } else if (event.topic.starts_with("/snapshot/")) {
    on_snapshot_event(event);
  } else if (const std::optional<Digest> digest = parse_digest(event.key)) {
    if (event.topic == "/content/create") {
      ask_blob(*digest);
    } else if (event.topic == "/content/delete" && erase_blob(state_.blobs, *digest)) {
      mark(Part::Blobs);
    }
    if (slot(Part::Blobs).call) {
      slot(Part::Blobs).again = true;
    }
  }
}

void RuntimeProbe::on_snapshot_event(const wire::ContainerdEvent& event) {
  if (!event.snapshotter.empty() && event.snapshotter != containerd_.snapshotter()) {
    return;
  }
  if (slot(Part::Snapshots).call) {
    slot(Part::Snapshots).again = true;  // the running list may or may not have this
  }
  bool changed = false;
  const std::optional<Digest> extract = wire::parse_extract_key(event.key);
  Digest parent;
  if (const auto known = std::ranges::find(extract_keys_, event.key, &wire::ExtractKey::key);
      known != extract_keys_.end()) {
    parent = known->parent;
  }
  if (event.topic == "/snapshot/prepare") {
    if (const std::optional<Digest> below = parse_digest(event.parent)) {
      changed = insert_chain(state_.used_chains, *below);
    }
  }
  if (event.topic == "/snapshot/prepare" && extract) {
    const wire::ExtractKey key{.chain_id = *extract,
                               .key = event.key,
                               .parent = parse_digest(event.parent).value_or(Digest{})};
    const auto at =
        std::ranges::lower_bound(extract_keys_, key.chain_id, {}, &wire::ExtractKey::chain_id);
    if (std::ranges::find(extract_keys_, key) == extract_keys_.end()) {
      extract_keys_.insert(at, key);
      changed = true;
    }
  } else if (event.topic == "/snapshot/commit" && extract) {
    std::erase_if(extract_keys_, [&](const auto& key) { return key.key == event.key; });
    changed = true;
  } else if (event.topic == "/snapshot/remove" && extract) {
    changed = std::erase_if(extract_keys_, [&](const auto& key) { return key.key == event.key; });
  }
  if (changed) {
    state_.extracts = extracts_of(extract_keys_, state_.extracts);
    moved();
  }
  if (event.topic == "/snapshot/commit") {
    if (const std::optional<Digest> chain_id = parse_digest(event.name)) {
      changed =
          insert_snapshot(state_.snapshots, {.chain_id = *chain_id, .parent = parent}) || changed;
    }
  } else if (event.topic == "/snapshot/remove") {
    if (const std::optional<Digest> chain_id = parse_digest(event.key)) {
      changed = erase_snapshot(state_.snapshots, *chain_id) || changed;
    }
  }
  if (changed) {
    mark(Part::Snapshots);
  }
}

void RuntimeProbe::ask_blob(const Digest& digest) {
  blobs_to_ask_.insert(digest);
  if (blobs_to_ask_.size() > kBlobsToAskLimit) {
    blobs_to_ask_.clear();
    list(Part::Blobs);
  }
  ask_next_blob();
}

void RuntimeProbe::ask_next_blob() {
  if (blob_call_ || blobs_to_ask_.empty()) {
    return;
  }
  const Digest digest = *blobs_to_ask_.begin();
  blobs_to_ask_.erase(blobs_to_ask_.begin());
  blob_call_ = containerd_.blob_info(digest, [this](Result<LocalBlob> blob) {
    blob_call_.reset();
    if (blob && insert_blob(state_.blobs, *blob)) {
      mark(Part::Blobs);
    }
    ask_next_blob();
  });
}

void RuntimeProbe::ask_next_lease() {
  if (lease_call_ || leases_to_ask_.empty()) {
    return;
  }
  const std::string id = std::move(leases_to_ask_.front());
  leases_to_ask_.pop_front();
  lease_call_ =
      containerd_.list_lease_resources(id, [this, id](Result<wire::LeaseResources> resources) {
        lease_call_.reset();
        take_resources(id, std::move(resources));
        ask_next_lease();
      });
}

void RuntimeProbe::take_resources(const std::string& id, Result<wire::LeaseResources> resources) {
  const auto at = std::ranges::lower_bound(state_.leases, id, {}, &PullLease::id);
  if (!resources || at == state_.leases.end() || at->id != id) {
    return;  // gone meanwhile; another failure shows itself in the next list
  }
  std::ranges::sort(resources->content);
  std::ranges::sort(resources->ingest_refs);
  if (at->content == resources->content && at->ingest_refs == resources->ingest_refs) {
    return;
  }
  at->content = std::move(resources->content);
  at->ingest_refs = std::move(resources->ingest_refs);
  moved();
  mark(Part::Leases);
}

void RuntimeProbe::measure(const std::vector<Digest>& chain_ids) {
  for (const Digest& chain_id : chain_ids) {
    if (to_measure_.size() < kMeasureLimit) {
      to_measure_.push_back(chain_id);
    }
  }
  measure_next();
}

void RuntimeProbe::measure_next() {
  while (connected_ && !usage_call_ && !to_measure_.empty()) {
    const Digest chain_id = to_measure_.front();
    to_measure_.pop_front();
    const auto layer =
        std::ranges::lower_bound(state_.snapshots, chain_id, {}, &LayerSnapshot::chain_id);
    const auto extract =
        std::ranges::lower_bound(extract_keys_, chain_id, {}, &wire::ExtractKey::chain_id);
    std::string key;
    const bool committed = layer != state_.snapshots.end() && layer->chain_id == chain_id;
    if (committed && layer->unpacked_bytes < 0) {
      key = to_string(chain_id);
    } else if (!committed && extract != extract_keys_.end() && extract->chain_id == chain_id) {
      key = extract->key;
    }
    if (key.empty()) {
      continue;
    }
    usage_call_ = containerd_.snapshot_usage(
        key, [this, chain_id, committed](Result<wire::SnapshotUsage> usage) {
          usage_call_.reset();
          take_usage(chain_id, !committed, std::move(usage));
          measure_next();
        });
  }
}

void RuntimeProbe::take_usage(const Digest& chain_id,
                              bool extract,
                              Result<wire::SnapshotUsage> usage) {
  if (!usage) {
    return;
  }
  if (extract) {
    const auto at =
        std::ranges::lower_bound(state_.extracts, chain_id, {}, &ActiveExtract::chain_id);
    if (at != state_.extracts.end() && at->chain_id == chain_id) {
      at->unpacked_bytes = usage->bytes;
      mark(Part::Snapshots);
    }
    return;
  }
  const auto at =
      std::ranges::lower_bound(state_.snapshots, chain_id, {}, &LayerSnapshot::chain_id);
  if (at != state_.snapshots.end() && at->chain_id == chain_id) {
    at->unpacked_bytes = usage->bytes;
    at->inodes = usage->inodes;
    mark(Part::Snapshots);
  }
}

void RuntimeProbe::set_watchful(bool watchful) {
  const bool was_wanted = polling_wanted();
  watchful_ = watchful;
  if (!was_wanted && polling_wanted()) {
    poll_timer_->arm(Duration{0});
  }
}

bool RuntimeProbe::polling_wanted() const {
  return connected_ && (watchful_ || loop_.now() - moved_at_ < kMovingFor);
}

void RuntimeProbe::poll() {
  list(Part::Ingests);
  list(Part::Leases);
}

/// Something goes on: look more often for a while.
void RuntimeProbe::moved() {
  const bool was_wanted = polling_wanted();
  moved_at_ = loop_.now();
  if (!was_wanted && connected_) {
    poll_timer_->arm(kPollInterval);
  }
}

void RuntimeProbe::mark(Part part) {
  slot(part).dirty = true;
  if (ready_) {
    changed_soon();
  }
}

void RuntimeProbe::changed_soon() {
  const Duration since = loop_.now() - changed_at_;
  changed_timer_->arm(since >= kChangedInterval ? Duration{0} : kChangedInterval - since);
}

void RuntimeProbe::refresh(std::function<void()> done) {
  if (!connected_ || loop_.now() - polled_at_ < kFresh) {
    done();
    return;
  }
  waiters_.push_back(std::move(done));
  poll();
}

void RuntimeProbe::answer_waiters() {
  for (const std::function<void()>& done : std::exchange(waiters_, {})) {
    done();
  }
}

void RuntimeProbe::contribute(NodeSnapshot& snapshot) {
  if (!ready_ && known_ && loop_.now() - lost_at_ >= kKeepFor) {
    known_ = false;
  }
  if (!known_) {
    snapshot.runtime.reset();
    snapshot.probe_errors[name()] = error_;
    return;
  }
  snapshot.probe_errors.erase(name());
  const bool whole = !snapshot.runtime.has_value();
  RuntimeState& out = whole ? snapshot.runtime.emplace() : *snapshot.runtime;
  out.version = state_.version;
  const auto wanted = [&](Part part) { return std::exchange(slot(part).dirty, false) || whole; };
  if (wanted(Part::Images)) {
    out.images = state_.images;
  }
  if (wanted(Part::Blobs)) {
    out.blobs = state_.blobs;
  }
  if (wanted(Part::Snapshots)) {
    out.snapshots = state_.snapshots;
    out.extracts = state_.extracts;
    out.used_chains = state_.used_chains;
  }
  if (wanted(Part::Leases)) {
    out.leases = state_.leases;
  }
  if (wanted(Part::Ingests)) {
    out.ingests = state_.ingests;
  }
  snapshot.runtime_observed_at = observed_at_;
}

}  // namespace imagefs_guard
