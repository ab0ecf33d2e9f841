// untested: pages_test.cc has its cases.
#include "agent/status/readiness.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace imagefs_guard {

namespace {

/// Without these nothing can be judged, held or told. The kubelet's configuration has a fallback.
constexpr std::array<std::string_view, 4> kRequiredProbes = {
    "filesystem", "node", "pods", "runtime"};

ReadyPart ticks_part(const StatusView& view) {
  ReadyPart part{.name = "ticks", .ok = true, .required = true, .reason = {}};
  if (!view.decided) {
    part.ok = false;
    part.reason = "no decision yet";
  } else if (!is_alive(view)) {
    part.ok = false;
    part.reason = "no decision for too long";
  }
  return part;
}

/// How many images have no manifest: without their names, this page is everybody's.
ReadyPart registry_part(const StatusView& view) {
  const auto& resolved = view.snapshot.resolved;
  const auto failed = std::ranges::count_if(
      resolved, [](const ResolvedImage& image) { return image.error.has_value(); });
  ReadyPart part{.name = "registry", .ok = failed == 0, .required = false, .reason = {}};
  if (!part.ok) {
    part.reason =
        std::to_string(failed) + " of " + std::to_string(resolved.size()) + " images not known";
  }
  return part;
}

}  // namespace

bool is_alive(const StatusView& view) {
  return view.decision_age <= view.decision_age_limit;
}

std::vector<ReadyPart> readiness_parts(const StatusView& view) {
  std::vector<ReadyPart> parts = {ticks_part(view)};
  for (const ProbeView& probe : view.probes) {
    parts.push_back(
        {.name = probe.name,
         .ok = probe.error.empty(),
         .required = std::ranges::find(kRequiredProbes, probe.name) != kRequiredProbes.end(),
         .reason = probe.error});
  }
  parts.push_back(registry_part(view));
  const std::string& refusal = view.policy_file.refusal;
  parts.push_back({.name = "policy", .ok = refusal.empty(), .required = false, .reason = refusal});
  return parts;
}

bool is_ready(const std::vector<ReadyPart>& parts) {
  return std::ranges::none_of(parts,
                              [](const ReadyPart& part) { return part.required && !part.ok; });
}

}  // namespace imagefs_guard
