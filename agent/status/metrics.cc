// untested: pages_test.cc has its cases.
#include "agent/status/metrics.h"

#include <algorithm>
#include <array>
#include <utility>

namespace imagefs_guard {

namespace {

constexpr std::array<Stage, 4> kStages = {
    Stage::Clear, Stage::Warn, Stage::Guard, Stage::StandDown};
constexpr std::array<PullState, 4> kPullStates = {
    PullState::Expected, PullState::Held, PullState::Downloading, PullState::Unpacking};

double number(std::int64_t value) {
  return static_cast<double>(value);
}

double number(std::uint64_t value) {
  return static_cast<double>(value);
}

double seconds(Duration duration) {
  return static_cast<double>(duration.count()) / 1e6;
}

MetricFamily gauge(const char* name, const char* help, double value) {
  return {name, MetricType::Gauge, help, {{.suffix = {}, .labels = {}, .value = value}}};
}

MetricFamily counter(const char* name, const char* help, double value) {
  return {name, MetricType::Counter, help, {{.suffix = {}, .labels = {}, .value = value}}};
}

MetricFamily histogram(const char* name, const char* help, const DurationHistogram& times) {
  return {name, MetricType::Histogram, help, times.samples()};
}

std::string code_text(int code) {
  return code == 0 ? "none" : std::to_string(code);
}

void add_node(const StatusView& view, std::vector<MetricFamily>& families) {
  const NodeReport& node = view.decision.node;
  if (node.image_filesystem.has_value()) {
    const Filesystem& device = *node.image_filesystem;
    families.push_back(gauge("imagefs_guard_imagefs_available_bytes",
                             "Bytes available on the image filesystem, as the kubelet counts them.",
                             number(device.available_bytes)));
    families.push_back(gauge("imagefs_guard_imagefs_size_bytes",
                             "Size of the image filesystem.",
                             number(device.capacity_bytes)));
    families.push_back(gauge("imagefs_guard_imagefs_floor_bytes",
                             "Available bytes below which the kubelet evicts, with the margin.",
                             number(node.floor.bytes)));
    families.push_back(gauge("imagefs_guard_headroom_bytes",
                             "Available less what live pulls have yet to write, less the floor.",
                             number(node.headroom_bytes)));
    families.push_back(gauge("imagefs_guard_forecast_low_bytes",
                             "The least that will be available while the live pulls go on.",
                             number(node.forecast_low_bytes)));
  }
  MetricFamily stage{"imagefs_guard_stage", MetricType::Gauge, "1 for the stage of the node.", {}};
  for (const Stage each : kStages) {
    stage.samples.push_back({.suffix = {},
                             .labels = {{"stage", to_string(each)}},
                             .value = each == node.stage ? 1.0 : 0.0});
  }
  families.push_back(std::move(stage));
  families.push_back(gauge("imagefs_guard_enforcing",
                           "1 in mode enforce, 0 in mode observe.",
                           view.policy.mode == Mode::Enforce ? 1 : 0));
}

void add_pulls(const StatusView& view, std::vector<MetricFamily>& families) {
  MetricFamily pulls{"imagefs_guard_pulls", MetricType::Gauge, "Pulls by state.", {}};
  MetricFamily demand{"imagefs_guard_demand_bytes",
                      MetricType::Gauge,
                      "Bytes that pulls have yet to write at their peak, by state of the pull.",
                      {}};
  for (const PullState state : kPullStates) {
    std::int64_t count = 0;
    std::int64_t bytes = 0;
    for (const PullReport& pull : view.decision.pulls) {
      if (pull.state == state) {
        ++count;
        bytes += pull.demand.peak_high_bytes();
      }
    }
    const MetricLabels labels = {{"state", to_string(state)}};
    pulls.samples.push_back({.suffix = {}, .labels = labels, .value = number(count)});
    demand.samples.push_back({.suffix = {}, .labels = labels, .value = number(bytes)});
  }
  families.push_back(std::move(pulls));
  families.push_back(std::move(demand));
  std::int64_t held = 0;
  for (const Hold& hold : view.snapshot.holds) {
    held += hold.state == HoldState::Held ? 1 : 0;
  }
  families.push_back(
      gauge("imagefs_guard_held_pulls", "Pulls that wait at a hold of this agent.", number(held)));
  families.push_back(histogram("imagefs_guard_hold_duration_seconds",
                               "How long holds that have ended had lasted.",
                               view.counters.hold_times()));
  families.push_back(histogram("imagefs_guard_bind_to_hold_seconds",
                               "From a pod seen bound to the hold of its image in place.",
                               view.counters.bind_to_hold_times()));
}

/// Absent until somebody has looked.
void add_findings(const StatusView& view, std::vector<MetricFamily>& families) {
  const AuditMemory& audit = view.decision.memory.audit;
  if (!audit.looked_at.has_value()) {
    return;
  }
  MetricFamily family{"imagefs_guard_findings",
                      MetricType::Gauge,
                      "1 for what should be changed in this node's set-up; the log says how.",
                      {}};
  for (const FindingKind kind : kFindingKinds) {
    const bool found =
        std::ranges::find(audit.findings, kind, &Finding::kind) != audit.findings.end();
    family.samples.push_back(
        {.suffix = {}, .labels = {{"finding", to_string(kind)}}, .value = found ? 1.0 : 0.0});
  }
  families.push_back(std::move(family));
}

void add_actions(const StatusView& view, std::vector<MetricFamily>& families) {
  MetricFamily cancels{"imagefs_guard_pull_cancels",
                       MetricType::Counter,
                       "Cancels of pulls, by result: ok, skipped (observe mode) or the error.",
                       {}};
  auto cancelled = view.counters.cancels();
  cancelled.try_emplace("ok", 0);
  for (const auto& [result, count] : cancelled) {
    cancels.samples.push_back(
        {.suffix = {}, .labels = {{"result", result}}, .value = number(count)});
  }
  families.push_back(std::move(cancels));
  MetricFamily drains{"imagefs_guard_drains",
                      MetricType::Counter,
                      "Drains of pods that can live elsewhere, by owner kind, method and result.",
                      {}};
  for (const auto& [labels, count] : view.counters.drains()) {
    drains.samples.push_back({.suffix = {},
                              .labels = {{"method", labels.method},
                                         {"owner_kind", labels.owner_kind},
                                         {"result", labels.result}},
                              .value = number(count)});
  }
  families.push_back(std::move(drains));
}

void add_requests(const StatusView& view, std::vector<MetricFamily>& families) {
  MetricFamily registry{"imagefs_guard_registry_requests",
                        MetricType::Counter,
                        "Requests to registries and for their credentials, by status code.",
                        {}};
  for (const auto& [code, count] : view.registry_requests) {
    registry.samples.push_back(
        {.suffix = {}, .labels = {{"code", code_text(code)}}, .value = number(count)});
  }
  families.push_back(std::move(registry));
  for (const auto& [name, help, counts] :
       {std::tuple("imagefs_guard_apiserver_requests",
                   "Requests to the API server, by verb, resource and status code.",
                   &view.api_requests),
        std::tuple("imagefs_guard_kubelet_requests",
                   "Requests to the kubelet, by verb, resource and status code.",
                   &view.kubelet_requests)}) {
    MetricFamily family{name, MetricType::Counter, help, {}};
    for (const auto& [key, count] : *counts) {
      const auto& [verb, resource, code] = key;
      family.samples.push_back(
          {.suffix = {},
           .labels = {{"code", code_text(code)}, {"resource", resource}, {"verb", verb}},
           .value = number(count)});
    }
    families.push_back(std::move(family));
  }
}

void add_health(const StatusView& view, std::vector<MetricFamily>& families) {
  MetricFamily up{
      "imagefs_guard_probe_up", MetricType::Gauge, "1 while the agent sees this part.", {}};
  MetricFamily age{"imagefs_guard_probe_age_seconds",
                   MetricType::Gauge,
                   "Age of what the agent knows of this part; 0 is as fresh as can be.",
                   {}};
  for (const ProbeView& probe : view.probes) {
    const MetricLabels labels = {{"probe", probe.name}};
    up.samples.push_back(
        {.suffix = {}, .labels = labels, .value = probe.error.empty() ? 1.0 : 0.0});
    age.samples.push_back({.suffix = {}, .labels = labels, .value = seconds(probe.age)});
  }
  families.push_back(std::move(up));
  families.push_back(std::move(age));
  families.push_back(counter(
      "imagefs_guard_ticks", "Decisions made: one per tick.", number(view.counters.ticks())));
  families.push_back(gauge("imagefs_guard_tick_age_seconds",
                           "Time since the last decision.",
                           seconds(view.decision_age)));
  families.push_back(histogram("imagefs_guard_decide_duration_seconds",
                               "How long one decision took.",
                               view.counters.decide_times()));
  families.push_back({"imagefs_guard_policy_reloads",
                      MetricType::Counter,
                      "Changes of the policy file at run time, by result.",
                      {{"", {{"result", "refused"}}, number(view.policy_file.refused)},
                       {"", {{"result", "taken"}}, number(view.policy_file.taken)}}});
  families.push_back(gauge("imagefs_guard_policy_in_force",
                           "1 if the policy file, as it is now, is in force; 0 if it was refused.",
                           view.policy_file.refusal.empty() ? 1 : 0));
}

void add_process(const StatusView& view, std::vector<MetricFamily>& families) {
  families.push_back({"imagefs_guard_build_info",
                      MetricType::Gauge,
                      "1, labelled with the agent's version.",
                      {{"", {{"version", view.version}}, 1}}});
  families.push_back(gauge("process_resident_memory_bytes",
                           "Resident memory size in bytes.",
                           number(view.process.resident_bytes)));
  families.push_back(counter("process_cpu_seconds",
                             "Total user and system CPU time spent in seconds.",
                             seconds(view.process.cpu_time)));
  families.push_back(gauge("process_start_time_seconds",
                           "Start time of the process since unix epoch in seconds.",
                           seconds(view.process.started_at.time_since_epoch())));
}

}  // namespace

std::vector<MetricFamily> collect_metrics(const StatusView& view) {
  std::vector<MetricFamily> families;
  add_node(view, families);
  add_pulls(view, families);
  add_findings(view, families);
  add_actions(view, families);
  add_requests(view, families);
  add_health(view, families);
  add_process(view, families);
  return families;
}

}  // namespace imagefs_guard
