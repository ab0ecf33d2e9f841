// untested: decide_test.cc has its cases.
#include "agent/core/pulls.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "agent/core/ledger.h"
#include "agent/core/lookup.h"
#include "agent/core/verify.h"

namespace imagefs_guard {

namespace {

/// A lease without a pod and without bytes in flight is believed for this long: longer than any
/// registry takes to answer, shorter than the 24 h for which containerd keeps the lease of a pull
/// that died with it.
constexpr Duration kIdleLeaseLifetime = std::chrono::minutes(2);

const Hold* find_hold(const NodeSnapshot& snapshot, const Digest& digest) {
  const auto found = std::ranges::lower_bound(snapshot.holds, digest, {}, &Hold::manifest_digest);
  return found != snapshot.holds.end() && found->manifest_digest == digest ? &*found : nullptr;
}

bool has_image(const RuntimeState& runtime, const std::string& name) {
  return std::ranges::binary_search(runtime.images, name, {}, &LocalImage::name);
}

bool has_started(const Pod& pod) {
  return std::ranges::any_of(pod.containers, &Container::started);
}

bool is_over(const Pod& pod) {
  return pod.phase == PodPhase::Succeeded || pod.phase == PodPhase::Failed;
}

/// Whether the kubelet will have to pull for this container, as far as names tell.
bool may_need_pull(const Container& container, const RuntimeState& runtime) {
  if (container.started || container.pull_policy == PullPolicy::Never) {
    return false;
  }
  return container.pull_policy == PullPolicy::Always ||
         !has_image(runtime, container.canonical_image);
}

/// "*-nfs" matches by its end, anything else as a whole.
bool label_matches(const std::string& value, const std::string& wanted) {
  return wanted.starts_with('*') ? value.ends_with(wanted.substr(1)) : value == wanted;
}

bool is_here(const ImageManifest& manifest, const Ledger& ledger) {
  return manifest.layers.empty() || ledger.has_chain(manifest.layers.back().chain_id);
}

class Collector {
 public:
  Collector(const NodeSnapshot& snapshot, const Policy& policy)
      : snapshot_(snapshot),
        policy_(policy),
        ledger_(*snapshot.runtime, FilesystemKind::Other, policy.discard_unpacked_layers) {}

  void add_pod(const Pod& pod) {
    if (is_over(pod) || (pod.deleting && has_started(pod))) {
      return;
    }
    for (const Container& container : pod.containers) {
      if (may_need_pull(container, *snapshot_.runtime)) {
        add_container(pod, container);
      }
    }
  }

  void add_lease(const PullLease& lease) {
    for (const Digest& digest : lease.content) {
      const ImageManifest* manifest = find_manifest(snapshot_, digest);
      if (manifest == nullptr || is_here(*manifest, ledger_)) {
        continue;
      }
      const auto known = pulls_.find(digest);
      const bool recent = lease.created_at + kIdleLeaseLifetime > snapshot_.wall_time;
      if (known == pulls_.end() && !recent && !has_bytes_in_flight(*manifest)) {
        continue;
      }
      Pull& pull = pulls_[digest];
      pull.manifest = manifest;
      pull.lease_ids.push_back(lease.id);
    }
  }

  Pulls finish(const Memory& memory) && {
    Pulls result;
    for (auto& [digest, pull] : pulls_) {
      complete(pull, memory);
      // A pull that only leaving pods want has nothing to stop before it has begun. One with a hold
      // may wait for it with a lease that was not seen yet: let go, it would write.
      if (!pull.pods.empty() || !pull.lease_ids.empty() || pull.hold != nullptr) {
        result.pulls.push_back(std::move(pull));
      }
    }
    for (auto& [image, unresolved] : unresolved_) {
      result.unresolved.push_back(std::move(unresolved));
    }
    order_pulls(result.pulls);
    return result;
  }

 private:
  void add_container(const Pod& pod, const Container& container) {
    const ResolvedImage* resolution = find_resolution(snapshot_, container.image);
    const ImageManifest* manifest = resolution != nullptr && resolution->manifest_digest.has_value()
                                        ? find_manifest(snapshot_, *resolution->manifest_digest)
                                        : nullptr;
    if (manifest == nullptr) {
      if (!pod.deleting) {
        UnresolvedImage& unresolved = unresolved_[container.image];
        unresolved.image = container.image;
        unresolved.resolution = resolution;
        add_once(unresolved.pods, pod);
      }
      return;
    }
    if (is_here(*manifest, ledger_)) {
      return;
    }
    Pull& pull = pulls_[manifest->manifest_digest];
    pull.manifest = manifest;
    if (pull.image.empty()) {
      pull.image = container.image;
    }
    pull.resolution = resolution;
    pull.incomplete = resolution->in_flight && manifest->layers.back().chain_id.is_zero();
    add_once(pod.deleting ? pull.leaving_pods : pull.pods, pod);
  }

  static void add_once(std::vector<const Pod*>& pods, const Pod& pod) {
    if (pods.empty() || pods.back() != &pod) {
      pods.push_back(&pod);
    }
  }

  [[nodiscard]] bool has_bytes_in_flight(const ImageManifest& manifest) const {
    const bool downloading = std::ranges::any_of(manifest.layers, [&](const Layer& layer) {
      return ledger_.ingest_bytes(layer.digest) > 0 && !ledger_.has_chain(layer.chain_id);
    });
    return downloading || is_extracting(manifest);
  }

  [[nodiscard]] bool is_extracting(const ImageManifest& manifest) const {
    return std::ranges::any_of(manifest.layers, [&](const Layer& layer) {
      return std::ranges::binary_search(
          snapshot_.runtime->extracts, layer.chain_id, {}, &ActiveExtract::chain_id);
    });
  }

  [[nodiscard]] bool has_layer_ingest(const ImageManifest& manifest) const {
    return std::ranges::any_of(manifest.layers, [&](const Layer& layer) {
      return ledger_.has_ingest(layer.digest) && !ledger_.has_chain(layer.chain_id);
    });
  }

  [[nodiscard]] PullState state_of(const Pull& pull) const {
    if (pull.hold != nullptr && pull.hold->state == HoldState::Held) {
      return PullState::Held;
    }
    if (pull.lease_ids.empty()) {
      return PullState::Expected;
    }
    const bool begun = has_bytes_in_flight(*pull.manifest) || has_layer_ingest(*pull.manifest) ||
                       is_extracting(*pull.manifest);
    if (!begun) {
      return PullState::Expected;
    }
    return ledger_.demand_of(*pull.manifest).download_bytes > 0 ? PullState::Downloading
                                                                : PullState::Unpacking;
  }

  void complete(Pull& pull, const Memory& memory) const {
    pull.hold = find_hold(snapshot_, pull.manifest->manifest_digest);
    pull.state = state_of(pull);
    const auto remembered = memory.pulls.find(pull.manifest->manifest_digest);
    pull.arrival =
        remembered != memory.pulls.end() ? remembered->second.first_seen : snapshot_.taken_at;
    pull.promised = remembered != memory.pulls.end() &&
                    remembered->second.released_at.has_value() && !pull.lease_ids.empty() &&
                    pull.state != PullState::Held;
    for (const Pod* pod : pull.pods) {
      pull.is_protected = pull.is_protected || is_protected(*pod, policy_);
      pull.priority = std::max(pull.priority, pod->priority);
      pull.arrival = std::min(pull.arrival, pod->observed_at);
    }
  }

  const NodeSnapshot& snapshot_;
  const Policy& policy_;
  Ledger ledger_;
  std::map<Digest, Pull> pulls_;
  std::map<std::string, UnresolvedImage> unresolved_;
};

}  // namespace

const char* to_string(PullState state) {
  switch (state) {
    case PullState::Expected:
      return "expected";
    case PullState::Held:
      return "held";
    case PullState::Downloading:
      return "downloading";
    case PullState::Unpacking:
      return "unpacking";
  }
  return "unknown";
}

bool is_protected(const Pod& pod, const Policy& policy) {
  if (pod.priority >= policy.protected_priority ||
      std::ranges::find(policy.protected_namespaces, pod.namespace_name) !=
          policy.protected_namespaces.end()) {
    return true;
  }
  const auto annotation = pod.annotations.find("imagefs-guard.io/protect");
  if (annotation != pod.annotations.end() && annotation->second == "true") {
    return true;
  }
  return std::ranges::any_of(policy.protected_labels, [&](const LabelMatch& match) {
    return !match.labels.empty() && std::ranges::all_of(match.labels, [&](const auto& wanted) {
      const auto found = pod.labels.find(wanted.first);
      return found != pod.labels.end() && label_matches(found->second, wanted.second);
    });
  });
}

void order_pulls(std::vector<Pull>& pulls) {
  const auto rank = [](const Pull& pull) {
    return std::tuple(!pull.is_live(),
                      !pull.is_protected,
                      -std::int64_t{pull.priority},
                      pull.arrival,
                      pull.manifest->manifest_digest);
  };
  std::ranges::sort(pulls,
                    [&](const Pull& left, const Pull& right) { return rank(left) < rank(right); });
}

Pulls collect_pulls(const NodeSnapshot& snapshot, const Memory& memory, const Policy& policy) {
  VERIFY(snapshot.runtime.has_value() && snapshot.pods.has_value());
  Collector collector(snapshot, policy);
  for (const Pod& pod : *snapshot.pods) {
    collector.add_pod(pod);
  }
  for (const PullLease& lease : snapshot.runtime->leases) {
    collector.add_lease(lease);
  }
  return std::move(collector).finish(memory);
}

}  // namespace imagefs_guard
