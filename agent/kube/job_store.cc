#include "agent/kube/job_store.h"

#include <algorithm>

namespace imagefs_guard {

namespace {

/// Longer than a held pod's Job is left unread by the planner (5 min).
constexpr Duration kUnusedLifetime = std::chrono::minutes(15);
/// A node has at most 250 pods.
constexpr std::size_t kEntriesMaximum = 512;

template <typename Map>
void bound(Map& map, MonotonicTime now) {
  std::erase_if(
      map, [now](const auto& entry) { return now - entry.second.observed_at > kUnusedLifetime; });
  while (map.size() > kEntriesMaximum) {
    map.erase(std::ranges::min_element(
        map, {}, [](const auto& entry) { return entry.second.observed_at; }));
  }
}

}  // namespace

JobStore::JobStore(EventLoop& loop, std::function<void()> changed)
    : loop_(loop), changed_(std::move(changed)) {}

void JobStore::store(Name name, JobState state) {
  state.namespace_name = name.first;
  state.name = name.second;
  state.observed_at = loop_.now();
  jobs_[std::move(name)] = std::move(state);
  bound(jobs_, loop_.now());
  changed_();
}

void JobStore::put(Job job) {
  Name name(job.namespace_name, job.name);
  store(std::move(name), {.job = std::move(job)});
}

void JobStore::put_gone(const std::string& namespace_name, const std::string& name) {
  store({namespace_name, name}, {});
}

void JobStore::doubt(const std::string& namespace_name, const std::string& name) {
  const auto known = jobs_.find({namespace_name, name});
  if (known != jobs_.end()) {
    known->second.doubtful = true;
    changed_();
  }
}

void JobStore::put(PodCheck check) {
  check.observed_at = loop_.now();
  const std::string uid = check.uid;
  pod_checks_[uid] = std::move(check);
  bound(pod_checks_, loop_.now());
  changed_();
}

void JobStore::contribute(NodeSnapshot& snapshot) {
  bound(jobs_, loop_.now());
  bound(pod_checks_, loop_.now());
  snapshot.jobs.clear();
  for (const auto& [name, state] : jobs_) {
    snapshot.jobs.push_back(state);
  }
  snapshot.pod_checks.clear();
  for (const auto& [uid, check] : pod_checks_) {
    snapshot.pod_checks.push_back(check);
  }
}

}  // namespace imagefs_guard
