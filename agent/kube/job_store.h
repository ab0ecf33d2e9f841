#pragma once
/// What the agent has heard of Jobs and pods that it asked for: the face of the drain's requests
/// towards the snapshot. Filled by the runners in actions/, read once per tick. Lost with the
/// process, which is safe: all that must survive stands on the objects themselves.

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "agent/core/job.h"
#include "agent/core/node_snapshot.h"
#include "agent/io/loop.h"

namespace imagefs_guard {

class JobStore {
 public:
  /// `changed` asks for an early tick.
  JobStore(EventLoop& loop, std::function<void()> changed);

  void put(Job job);
  void put_gone(const std::string& namespace_name, const std::string& name);

  /// A write has failed or was not answered: what is known may be old.
  void doubt(const std::string& namespace_name, const std::string& name);

  /// `check.observed_at` is filled in.
  void put(PodCheck check);

  /// Fills `jobs` and `pod_checks`. What nobody has asked for lately is dropped.
  void contribute(NodeSnapshot& snapshot);

 private:
  using Name = std::pair<std::string, std::string>;  // namespace, name

  void store(Name name, JobState state);

  EventLoop& loop_;
  std::function<void()> changed_;
  std::map<Name, JobState> jobs_;
  std::map<std::string, PodCheck> pod_checks_;  // by uid
};

}  // namespace imagefs_guard
