#pragma once
/// All that a page may show, gathered by main.cc for each request. Holds references: it lives for
/// one answer. No secrets: names of pods, images and registries don't go to /metrics and /readyz;
/// the status page has them.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "agent/core/decision.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"
#include "agent/status/counters.h"
#include "agent/status/history.h"

namespace imagefs_guard {

struct ProbeView {
  std::string name;   // as in NodeSnapshot::probe_errors
  std::string error;  // why its part is absent; empty = it is there
  Duration age{};     // of what it shows; 0 = as fresh as it can be

  bool operator==(const ProbeView&) const = default;
};

/// What became of the policy file since the start.
struct PolicyView {
  std::uint64_t taken = 0;    // changes that were taken
  std::uint64_t refused = 0;  // changes that were not
  std::string refusal;        // of the file as it is now; empty = it is in force

  bool operator==(const PolicyView&) const = default;
};

struct ProcessView {
  std::int64_t resident_bytes = 0;
  Duration cpu_time{};
  WallTime started_at{};

  bool operator==(const ProcessView&) const = default;
};

/// (verb, resource, code) → answers; code 0 = none came.
using ApiRequestCounts = std::map<std::tuple<std::string, std::string, int>, std::uint64_t>;

struct StatusView {
  const Decision& decision;
  const NodeSnapshot& snapshot;
  const Policy& policy;
  const AgentCounters& counters;
  const ApiRequestCounts& api_requests;
  const ApiRequestCounts& kubelet_requests;
  const std::map<int, std::uint64_t>& registry_requests;  // by code; 0 = no answer
  const SpaceHistory& history;
  std::string node_name;
  std::string version;
  bool decided = false;  // once at least
  Duration decision_age{};
  Duration decision_age_limit{};  // beyond it, ticks have stopped
  std::vector<ProbeView> probes;
  PolicyView policy_file;
  ProcessView process;
};

}  // namespace imagefs_guard
