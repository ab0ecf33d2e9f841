#include "probes/pods.h"

#include <optional>

#include "agent/wire/kube_json.h"
#include "probes/kube_staleness.h"

namespace imagefs_guard {
namespace {

/// Another resource version alone is no news: the status of a running pod changes all the time.
bool same_but_version(const Pod& pod, const Pod& other) {
  Pod copy = other;
  copy.resource_version = pod.resource_version;
  copy.observed_at = pod.observed_at;
  return copy == pod;
}

}  // namespace

PodsProbe::PodsProbe(KubeApi& api, const std::string& node_name)
    : loop_(api.loop()),
      watch_(api, WatchSpec{"pods", "/api/v1/pods", "spec.nodeName=" + node_name}, *this) {}

void PodsProbe::start(std::function<void()> changed) {
  changed_ = std::move(changed);
  watch_.start();
}

void PodsProbe::refresh(std::function<void()> done) {
  done();
}

void PodsProbe::contribute(NodeSnapshot& snapshot) {
  if (std::optional<std::string> reason = why_absent(watch_, loop_.now())) {
    snapshot.pods.reset();
    snapshot.probe_errors[name()] = *std::move(reason);
    return;
  }
  snapshot.probe_errors.erase(name());
  if (published_ && snapshot.pods.has_value()) {
    return;
  }
  std::vector<Pod>& pods = snapshot.pods.emplace();
  pods.reserve(pods_.size());
  for (const auto& [key, pod] : pods_) {
    pods.push_back(pod);
  }
  published_ = true;
}

void PodsProbe::list_begins() {
  listed_.clear();
}

Result<ListMetadata> PodsProbe::list_page(std::string_view body) {
  PodList page = TRY(parse_pod_list(body));
  for (Pod& pod : page.pods) {
    Name key{pod.namespace_name, pod.name};
    listed_.insert_or_assign(std::move(key), std::move(pod));
  }
  return std::move(page.metadata);
}

void PodsProbe::list_ends() {
  const MonotonicTime now = loop_.now();
  bool news = pods_.size() != listed_.size();
  for (auto& [key, pod] : listed_) {
    const auto known = pods_.find(key);
    const bool same = known != pods_.end() && known->second.uid == pod.uid;
    pod.observed_at = same ? known->second.observed_at : now;
    news = news || !same || !same_but_version(known->second, pod);
  }
  pods_ = std::move(listed_);
  listed_.clear();
  published_ = false;
  if (news || pods_.empty()) {
    mark_changed();
  }
}

Result<WatchLine> PodsProbe::watch_line(std::string_view line) {
  PodWatchEvent event = TRY(parse_pod_watch_event(line));
  switch (event.type) {
    case WatchEventType::Added:
    case WatchEventType::Modified:
      put(std::move(event.pod));
      break;
    case WatchEventType::Deleted: {
      // A late DELETED of an earlier pod must not take away the one that has its name now.
      const auto known = pods_.find({event.pod.namespace_name, event.pod.name});
      if (known != pods_.end() && known->second.uid == event.pod.uid) {
        pods_.erase(known);
        mark_changed();
      }
      break;
    }
    case WatchEventType::Bookmark:
    case WatchEventType::Error:
      break;
  }
  return WatchLine{event.type, std::move(event.resource_version), std::move(event.status)};
}

void PodsProbe::put(Pod pod) {
  Name key{pod.namespace_name, pod.name};
  pod.observed_at = loop_.now();
  const auto known = pods_.find(key);
  if (known == pods_.end()) {
    pods_.emplace(std::move(key), std::move(pod));
    mark_changed();
    return;
  }
  if (known->second.uid == pod.uid) {
    pod.observed_at = known->second.observed_at;
  }
  const bool news = !same_but_version(known->second, pod);
  known->second = std::move(pod);
  published_ = false;  // the version is a precondition of later writes
  if (news) {
    mark_changed();
  }
}

void PodsProbe::mark_changed() {
  published_ = false;
  if (changed_ != nullptr) {
    changed_();
  }
}

}  // namespace imagefs_guard
