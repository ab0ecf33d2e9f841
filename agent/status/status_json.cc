// untested: pages_test.cc has its cases.
#include "agent/status/status_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "agent/core/space.h"
#include "agent/core/stage_reasons.h"
#include "agent/core/words.h"
#include "agent/status/readiness.h"
#include "agent/wire/time_text.h"

namespace imagefs_guard {

namespace {

using nlohmann::json;

/// Shown; the node has at most 250 pods, and nobody reads more than this.
constexpr std::size_t kPullsMaximum = 32;
constexpr std::size_t kDrainsMaximum = 16;
constexpr std::size_t kPodsMaximum = 4;
constexpr std::size_t kNameBytes = 253;
constexpr std::size_t kImageBytes = 300;
constexpr std::size_t kSentenceBytes = 600;

double rounded_seconds(Duration duration) {
  return static_cast<double>(duration.count() / 1000) / 1000.0;
}

std::string cut(const std::string& text, std::size_t limit) {
  return shorten(text, limit);
}

json filesystem_of(const StatusView& view) {
  const NodeReport& node = view.decision.node;
  if (!node.image_filesystem.has_value()) {
    return nullptr;
  }
  const Filesystem& device = *node.image_filesystem;
  return {
      {"availableBytes", device.available_bytes},
      {"capacityBytes", device.capacity_bytes},
      {"floorBytes", node.floor.bytes},
      {"floorInodes", node.floor.inodes},
      {"floorSource", node.floor.source},
      {"forecastHighBytes", sample_of(view.decision, view.snapshot.wall_time)->forecast_high_bytes},
      {"forecastLowBytes", node.forecast_low_bytes},
      {"headroomBytes", node.headroom_bytes},
      {"imageGcDue", node.image_gc_due},
      {"inodes", device.inodes},
      {"inodesFree", device.inodes_free},
      {"outstandingBytes", node.outstanding_bytes},
      {"path", cut(device.path, kNameBytes)},
      {"usagePercent", node.image_usage_percent},
      {"waitingBytes", node.waiting_bytes}};
}

json space_of(const StatusView& view) {
  const std::optional<SpaceUse> use = account_space(view.snapshot, view.decision);
  if (!use.has_value()) {
    return nullptr;
  }
  return {{"blobsBytes", use->blobs_bytes},
          {"imagesBytes", use->images_bytes},
          {"inFlightBytes", use->in_flight_bytes},
          {"layersUnmeasured", use->layers_unmeasured},
          {"leftoverBytes", use->leftover_bytes},
          {"otherBytes", use->other_bytes},
          {"reclaimableBytes",
           use->reclaimable_bytes.has_value() ? json(*use->reclaimable_bytes) : json(nullptr)}};
}

json held_seconds(const StatusView& view, const PullReport& pull) {
  const auto hold =
      std::ranges::find(view.snapshot.holds, pull.manifest_digest, &Hold::manifest_digest);
  if (hold == view.snapshot.holds.end() || hold->state != HoldState::Held) {
    return nullptr;
  }
  return rounded_seconds(view.snapshot.taken_at - hold->since);
}

json pull_of(const StatusView& view, const PullReport& pull) {
  json pods = json::array();
  for (std::size_t i = 0; i < std::min(pull.pods.size(), kPodsMaximum); ++i) {
    pods.push_back(cut(pull.pods[i], kNameBytes));
  }
  const bool known = !pull.manifest_digest.is_zero();
  return {{"digest", known ? json(to_string(pull.manifest_digest)) : json(nullptr)},
          {"downloadBytes", known ? json(pull.demand.download_bytes) : json(nullptr)},
          {"held", pull.held},
          {"heldSeconds", held_seconds(view, pull)},
          {"image", cut(pull.image, kImageBytes)},
          {"peakBytes", known ? json(pull.demand.peak_high_bytes()) : json(nullptr)},
          {"pods", std::move(pods)},
          {"podsMore", pull.pods.size() - std::min(pull.pods.size(), kPodsMaximum)},
          {"protected", pull.is_protected},
          {"sentence", cut(pull.sentence, kSentenceBytes)},
          {"state", to_string(pull.state)},
          {"verdict", to_string(pull.verdict)}};
}

json drain_of(const DrainReport& drain) {
  return {{"method", drain.method},
          {"owner", cut(drain.owner, kNameBytes)},
          {"pod", cut(drain.pod, kNameBytes)},
          {"sentence", cut(drain.sentence, kSentenceBytes)}};
}

json findings_of(const AuditMemory& audit) {
  if (!audit.looked_at.has_value()) {
    return nullptr;
  }
  json findings = json::array();
  for (const Finding& finding : audit.findings) {
    findings.push_back({{"advice", cut(finding.advice, kSentenceBytes)},
                        {"finding", to_string(finding.kind)},
                        {"sentence", cut(finding.sentence, kSentenceBytes)}});
  }
  return findings;
}

json parts_of(const StatusView& view) {
  json parts = json::array();
  for (const ReadyPart& part : readiness_parts(view)) {
    parts.push_back({{"name", part.name},
                     {"ok", part.ok},
                     {"reason", cut(part.reason, kSentenceBytes)},
                     {"required", part.required}});
  }
  return parts;
}

/// In MiB, oldest first: [seconds before "time", available, floor, forecast low, forecast high].
json history_of(const StatusView& view) {
  constexpr std::int64_t kMib = std::int64_t{1} << 20;
  json samples = json::array();
  for (const SpaceSample& sample : view.history.samples()) {
    const auto ago =
        std::chrono::duration_cast<std::chrono::seconds>(view.snapshot.wall_time - sample.at);
    samples.push_back({std::max<std::int64_t>(ago.count(), 0),
                       sample.available_bytes / kMib,
                       sample.floor_bytes / kMib,
                       sample.forecast_low_bytes / kMib,
                       sample.forecast_high_bytes / kMib});
  }
  return samples;
}

/// How many of what there may be many.
struct Limits {
  std::size_t pulls = kPullsMaximum;
  std::size_t drains = kDrainsMaximum;
};

std::string text_of(const StatusView& view, StatusDetail detail, const Limits& limits) {
  const Decision& decision = view.decision;
  json pulls = json::array();
  for (std::size_t i = 0; i < std::min(decision.pulls.size(), limits.pulls); ++i) {
    pulls.push_back(pull_of(view, decision.pulls[i]));
  }
  json drains = json::array();
  for (std::size_t i = 0; i < std::min(decision.drains.size(), limits.drains); ++i) {
    drains.push_back(drain_of(decision.drains[i]));
  }
  json reasons = json::array();
  for (const std::string& reason : stage_reasons(view.snapshot, view.policy, decision)) {
    reasons.push_back(cut(reason, kSentenceBytes));
  }
  json status = {
      {"alive", is_alive(view)},
      {"auditWhole", decision.memory.audit.whole},
      {"decisionAgeSeconds", rounded_seconds(view.decision_age)},
      {"drainsMore", decision.drains.size() - drains.size()},
      {"drains", std::move(drains)},
      {"filesystem", filesystem_of(view)},
      {"findings", findings_of(decision.memory.audit)},
      {"mode", view.policy.mode == Mode::Enforce ? "enforce" : "observe"},
      {"node", cut(view.node_name, kNameBytes)},
      {"parts", parts_of(view)},
      {"pullsMore", decision.pulls.size() - pulls.size()},
      {"pulls", std::move(pulls)},
      {"reasons", std::move(reasons)},
      {"space", space_of(view)},
      {"stage", view.decided ? json(to_string(decision.node.stage)) : json(nullptr)},
      {"time", format_rfc3339(view.snapshot.wall_time)},
      {"v", 1},
      {"version", view.version},
  };
  if (detail == StatusDetail::WithHistory) {
    status["history"] = history_of(view);
  }
  return status.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string status_json(const StatusView& view, StatusDetail detail) {
  Limits limits;
  std::string text = text_of(view, detail, limits);
  while (text.size() > kStatusBytesMaximum && limits.pulls + limits.drains > 0) {
    limits = {.pulls = limits.pulls / 2, .drains = limits.drains / 2};
    text = text_of(view, detail, limits);
  }
  return text.size() <= kStatusBytesMaximum ? text : text_of(view, StatusDetail::Now, limits);
}

}  // namespace imagefs_guard
