#include "agent/runtime/hold.h"

#include <algorithm>
#include <utility>

namespace imagefs_guard {

namespace {

// Each is a connection. More pulls than that at once are more than a kubelet starts.
constexpr std::size_t kStreamsLimit = 256;
constexpr std::size_t kSweepsLimit = 64;
// A pull that waits goes on within 2.05 s after a release; by then it has the ref or its blob.
constexpr Duration kSweepDelay = std::chrono::seconds(5);
constexpr Duration kSweepInterval = std::chrono::seconds(1);

/// State of a pull whose config blob is here: that of its layers together. One that can't be held
/// any more lets bytes flow, whatever the others do.
HoldState layers_state(const std::vector<std::shared_ptr<RefHold>>& layers) {
  const auto any = [&layers](HoldState state) {
    return std::any_of(layers.begin(), layers.end(), [state](const auto& layer) {
      return layer->state() == state;
    });
  };
  for (const HoldState state :
       {HoldState::TooLate, HoldState::Failed, HoldState::Opening, HoldState::Held}) {
    if (any(state)) {
      return state;
    }
  }
  return HoldState::NothingToHold;
}

}  // namespace

/// After a release: removes the ingest of a hold that no pull took over. The ref is locked
/// for it, so that nothing of a pull's can be aborted: if a pull has it, or the blob is here, there
/// is nothing to do.
class HoldKeeper::Sweep {
 public:
  Sweep(HoldRef hold_ref, MonotonicTime due_at) : due(due_at), ref_(std::move(hold_ref)) {}

  void begin(EventLoop& loop, Containerd& containerd, std::function<void()> on_finished) {
    containerd_ = &containerd;
    on_finished_ = std::move(on_finished);
    lock_ = std::make_unique<RefHold>(
        loop, containerd, RefHold::Options{.ref = ref_, .insistence = Insistence::Once}, [this] {
          locked();
        });
  }

  [[nodiscard]] bool begun() const { return lock_ != nullptr; }

  const MonotonicTime due;
  bool finished = false;

 private:
  void locked() {
    if (finished || abort_) {
      return;
    }
    if (lock_->state() != HoldState::Held || lock_->has_partial_download()) {
      finish();
      return;
    }
    abort_ = containerd_->abort_ingest(ref_.ref, [this](Result<void>) { finish(); });
  }

  /// The owner destroys this right afterwards: until then the ref stays locked.
  void finish() {
    finished = true;
    on_finished_();
  }

  HoldRef ref_;
  Containerd* containerd_ = nullptr;
  std::function<void()> on_finished_;
  std::unique_ptr<RefHold> lock_;
  std::unique_ptr<GrpcCall> abort_;
};

HoldKeeper::HoldKeeper(EventLoop& loop, Containerd& containerd, Observer observer)
    : loop_(loop),
      containerd_(containerd),
      observer_(std::move(observer)),
      sweep_timer_(loop.make_timer("hold sweep", [this] { sweep(); })) {}

HoldKeeper::~HoldKeeper() = default;

void HoldKeeper::set_desired(const std::vector<HoldPull>& pulls) {
  std::map<Digest, const HoldPull*> named;
  for (const HoldPull& pull : pulls) {
    named.emplace(pull.manifest_digest, &pull);
  }
  for (auto at = entries_.begin(); at != entries_.end();) {
    const auto found = named.find(at->first);
    const bool same = found != named.end() && at->second.pull.config == found->second->config;
    if (same) {
      ++at;
      continue;
    }
    end(at->second, /* sweep= */ true);
    at = entries_.erase(at);
  }
  for (const auto& [digest, pull] : named) {
    const auto found = entries_.find(digest);
    if (found == entries_.end()) {
      begin(*pull);
      continue;
    }
    Entry& entry = found->second;
    entry.pull = *pull;
    entry.config->nudge();
    if (entry.config->state() == HoldState::Held) {
      drop_layers(entry);
    }
    for (const std::shared_ptr<RefHold>& layer : entry.layers) {
      layer->nudge();
    }
  }
  update_all();
}

void HoldKeeper::begin(const HoldPull& pull) {
  Entry& entry = entries_[pull.manifest_digest];
  entry.pull = pull;
  entry.named_at = loop_.now();
  entry.since = entry.named_at;
  entry.config = open({.ref = pull.config, .insistence = Insistence::Burst});
}

std::shared_ptr<RefHold> HoldKeeper::open(const RefHold::Options& options) {
  const HoldRef& ref = options.ref;
  std::erase_if(open_, [](const auto& item) { return item.second.expired(); });
  if (std::shared_ptr<RefHold> present = open_[ref.ref].lock()) {
    return present;
  }
  sweeps_.erase(ref.ref);
  auto hold = std::make_shared<RefHold>(loop_, containerd_, options, [this] { update_all(); });
  open_[ref.ref] = hold;
  return hold;
}

void HoldKeeper::end(Entry& entry, bool sweep) {
  if (sweep) {
    sweep_later(entry.config);
    drop_layers(entry);
  }
  entry.config.reset();
  entry.layers.clear();
  if (entry.was_held && observer_.on_released) {
    observer_.on_released(entry.pull.manifest_digest, loop_.now() - entry.held_at);
  }
}

void HoldKeeper::release_all() {
  for (auto& [digest, entry] : std::exchange(entries_, {})) {
    end(entry, /* sweep= */ false);
  }
  sweeps_.clear();
}

void HoldKeeper::update_all() {
  for (auto& [digest, entry] : entries_) {
    update(entry);
  }
}

void HoldKeeper::update(Entry& entry) {
  HoldState state = entry.config->state();
  std::string error = entry.config->error();
  if (state == HoldState::NothingToHold) {
    const bool all_open = open_layers(entry);
    state = layers_state(entry.layers);
    for (const std::shared_ptr<RefHold>& layer : entry.layers) {
      error = error.empty() ? layer->error() : error;
    }
    if (!all_open && state != HoldState::TooLate) {
      state = HoldState::Failed;
      error = "more than " + std::to_string(kStreamsLimit) + " refs to hold";
    }
  }
  if (state == entry.state && error == entry.error) {
    return;
  }
  entry.since = state == entry.state ? entry.since : loop_.now();
  entry.state = state;
  entry.error = std::move(error);
  if (state == HoldState::Held && !entry.was_held) {
    entry.was_held = true;
    entry.held_at = loop_.now();
    if (observer_.on_held) {
      observer_.on_held(entry.pull.manifest_digest, entry.held_at - entry.named_at);
    }
  }
  if (observer_.changed) {
    observer_.changed();
  }
}

bool HoldKeeper::open_layers(Entry& entry) {
  for (const HoldRef& ref : entry.pull.layers) {
    const bool present = std::any_of(entry.layers.begin(),
                                     entry.layers.end(),
                                     [&](const auto& layer) { return layer->ref() == ref; });
    if (present) {
      continue;
    }
    if (open_.size() >= kStreamsLimit) {
      return false;
    }
    entry.layers.push_back(open({.ref = ref, .insistence = Insistence::Once}));
  }
  return true;
}

void HoldKeeper::drop_layers(Entry& entry) {
  for (const std::shared_ptr<RefHold>& layer : std::exchange(entry.layers, {})) {
    sweep_later(layer);
  }
}

void HoldKeeper::sweep_later(const std::shared_ptr<RefHold>& hold) {
  if (hold.use_count() > 1 || hold->state() != HoldState::Held || hold->has_partial_download() ||
      sweeps_.size() >= kSweepsLimit) {
    return;
  }
  if (sweeps_.empty()) {
    sweep_timer_->arm(kSweepDelay);
  }
  sweeps_[hold->ref().ref] = std::make_unique<Sweep>(hold->ref(), loop_.now() + kSweepDelay);
}

void HoldKeeper::sweep() {
  std::erase_if(sweeps_, [](const auto& item) { return item.second->finished; });
  for (auto& [ref, item] : sweeps_) {
    if (item->due <= loop_.now() && !item->begun()) {
      item->begin(loop_, containerd_, [this] { sweep_timer_->arm(Duration{0}); });
    } else if (item->due + kSweepDelay <= loop_.now()) {
      item->finished = true;  // no answer: the ingest expires by itself after a day
    }
  }
  if (!sweeps_.empty()) {
    sweep_timer_->arm(kSweepInterval);
  }
}

std::vector<Hold> HoldKeeper::holds() const {
  std::vector<Hold> list;
  list.reserve(entries_.size());
  for (const auto& [digest, entry] : entries_) {
    list.push_back({.manifest_digest = digest,
                    .state = entry.state,
                    .since = entry.since,
                    .error = entry.error});
  }
  return list;
}

std::vector<std::string> HoldKeeper::refs() const {
  std::vector<std::string> list;
  for (const auto& [digest, entry] : entries_) {
    list.push_back(entry.config->ref().ref);
    for (const std::shared_ptr<RefHold>& layer : entry.layers) {
      list.push_back(layer->ref().ref);
    }
  }
  for (const auto& [ref, item] : sweeps_) {
    if (item->begun()) {
      list.push_back(ref);
    }
  }
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace imagefs_guard
