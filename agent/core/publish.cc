// untested: decide_test.cc has its cases.
#include "agent/core/publish.h"

#include <algorithm>

#include "agent/core/lookup.h"
#include "agent/core/words.h"

namespace imagefs_guard {

namespace {

constexpr const char* kStageLabel = "imagefs-guard.io/stage";
constexpr const char* kHeadroomLabel = "imagefs-guard.io/headroom-gib";
constexpr const char* kStatusAnnotation = "imagefs-guard.io/status";

constexpr Duration kMetadataInterval = std::chrono::seconds(60);
constexpr Duration kConditionHeartbeat = std::chrono::minutes(5);
constexpr Duration kEventRepeat = std::chrono::minutes(10);
constexpr Duration kBlindSilence = std::chrono::seconds(30);
/// Event keys remembered: a node has at most 250 pods, with a few keys each.
constexpr std::size_t kEventKeysMaximum = 2048;
constexpr std::size_t kNoteBytesMaximum = 1024;
constexpr std::size_t kConditionMessageBytesMaximum = 1024;

TaintEffect wanted_effect(const NodeSnapshot& snapshot, const Policy& policy, Stage stage) {
  switch (stage) {
    case Stage::Clear:
      return TaintEffect::None;
    case Stage::Warn:
      return TaintEffect::PreferNoSchedule;
    case Stage::Guard:
      return TaintEffect::NoSchedule;
    case Stage::StandDown:
      break;
  }
  // The kubelet has its own taint now: ours stays as it is, whatever that is.
  for (const Taint& taint : snapshot.node->taints) {
    if (taint.key == policy.taint_key) {
      return taint.effect == "NoSchedule" ? TaintEffect::NoSchedule : TaintEffect::PreferNoSchedule;
    }
  }
  return TaintEffect::None;
}

TaintEffect present_effect(const NodeSnapshot& snapshot, const Policy& policy) {
  TaintEffect present = TaintEffect::None;
  for (const Taint& taint : snapshot.node->taints) {
    if (taint.key == policy.taint_key) {
      present = std::max(
          present,
          taint.effect == "NoSchedule" ? TaintEffect::NoSchedule : TaintEffect::PreferNoSchedule);
    }
  }
  return present;
}

/// The pull that explains the stage best: the first held one that can't be taken.
const PullReport* leading_pull(const Decision& decision) {
  const PullReport* leading = nullptr;
  for (const PullReport& pull : decision.pulls) {
    if (pull.held && !pull.waits_for_sizes &&
        (leading == nullptr ||
         (pull.verdict > leading->verdict && leading->verdict == Verdict::FitsLater))) {
      leading = &pull;
    }
  }
  return leading;
}

std::string node_sentence(const Decision& decision) {
  const NodeReport& node = decision.node;
  const std::string prefix = node.observe_only.empty() ? "" : node.observe_only + "; ";
  if (const PullReport* pull = leading_pull(decision)) {
    const auto held = std::ranges::count(decision.pulls, true, &PullReport::held);
    return std::to_string(held) + (held == 1 ? " pull held: " : " pulls held: ") + pull->image +
           " " + pull->sentence;
  }
  if (!node.image_filesystem.has_value()) {
    return prefix + "the image filesystem can't be observed";
  }
  const std::string collects = node.image_gc_due
                                   ? "; " + std::to_string(node.image_usage_percent) +
                                         " % used, the kubelet's image garbage collection is due"
                                   : "";
  return prefix + gib_text(node.image_filesystem->available_bytes) + " GiB free, floor " +
         gib_text(node.floor.bytes) + " GiB, headroom " + gib_text(node.headroom_bytes) + " GiB" +
         collects;
}

/// The node's sentence, behind what can't be seen where pulls can't be judged for that.
std::string blind_sentence(const Decision& decision) {
  std::string sentence;
  if (decision.memory.blind_since.has_value()) {
    sentence = "no pull can be judged";
    for (const std::string& spot : decision.node.blind_spots) {
      sentence += ", " + spot;
    }
    sentence += "; ";
  }
  return sentence + node_sentence(decision);
}

void publish_taint(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision) {
  // Who can't hold anything does not keep others away either; an old taint of ours still goes.
  const TaintEffect wanted = decision.node.observe_only.empty()
                                 ? wanted_effect(snapshot, policy, decision.node.stage)
                                 : TaintEffect::None;
  if (present_effect(snapshot, policy) == wanted ||
      !may_order(snapshot, decision.memory, "taint")) {
    return;
  }
  decision.actions.emplace_back(SetTaint{.key = policy.taint_key,
                                         .value = to_string(decision.node.stage),
                                         .effect = wanted,
                                         .reason = node_sentence(decision)});
}

std::string json_escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      escaped += '\\';
    }
    escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return escaped;
}

/// Keys sorted, so that equal states give equal bytes.
std::string status_json(const Decision& decision) {
  const NodeReport& node = decision.node;
  const std::int64_t available =
      node.image_filesystem ? node.image_filesystem->available_bytes : -1;
  const auto held = std::ranges::count(decision.pulls, true, &PullReport::held);
  return "{\"availableBytes\":" + std::to_string(available) +
         ",\"floorBytes\":" + std::to_string(node.floor.bytes) +
         ",\"headroomBytes\":" + std::to_string(node.headroom_bytes) +
         ",\"heldPulls\":" + std::to_string(held) +
         ",\"imageUsagePercent\":" + std::to_string(node.image_usage_percent) +
         ",\"leftoverBytes\":" + std::to_string(node.leftover_bytes) +
         ",\"outstandingBytes\":" + std::to_string(node.outstanding_bytes) + ",\"reason\":\"" +
         json_escape(shorten(node_sentence(decision), 512)) + "\",\"stage\":\"" +
         to_string(node.stage) +
         "\",\"v\":1,\"waitingBytes\":" + std::to_string(node.waiting_bytes) + "}";
}

bool has_moved(const Decision& decision) {
  const std::int64_t published = decision.memory.published.status_available_bytes;
  if (!decision.node.image_filesystem.has_value() || published < 0) {
    return true;
  }
  const std::int64_t now = decision.node.image_filesystem->available_bytes;
  const std::int64_t difference = now > published ? now - published : published - now;
  return difference > decision.node.image_filesystem->capacity_bytes / 20;
}

void publish_metadata(const NodeSnapshot& snapshot, Decision& decision) {
  const std::string stage = to_string(decision.node.stage);
  const std::int64_t gib = std::max<std::int64_t>(decision.node.headroom_bytes, 0) >> 30U;
  const std::string headroom = std::to_string(gib);
  const auto& labels = snapshot.node->labels;
  const auto current = [&](const char* key) {
    const auto found = labels.find(key);
    return found == labels.end() ? std::string() : found->second;
  };
  Published& published = decision.memory.published;
  const bool stage_changed = current(kStageLabel) != stage;
  const bool due = !published.metadata_at.has_value() ||
                   snapshot.taken_at - *published.metadata_at >= kMetadataInterval;
  const bool changed = current(kHeadroomLabel) != headroom || has_moved(decision);
  if (!(stage_changed || (due && changed)) || !may_order(snapshot, decision.memory, "metadata")) {
    return;
  }
  published.metadata_at = snapshot.taken_at;
  if (decision.node.image_filesystem.has_value()) {
    published.status_available_bytes = decision.node.image_filesystem->available_bytes;
  }
  decision.actions.emplace_back(
      SetNodeMetadata{.labels = {{kStageLabel, stage}, {kHeadroomLabel, headroom}},
                      .annotations = {{kStatusAnnotation, status_json(decision)}},
                      .reason = "stage " + stage + ", " + node_sentence(decision)});
}

SetCondition wanted_condition(const Decision& decision) {
  SetCondition condition;
  condition.message = shorten(blind_sentence(decision), kConditionMessageBytesMaximum);
  condition.reason = condition.message;
  if (decision.memory.blind_since.has_value() || !decision.node.observe_only.empty() ||
      !decision.node.image_filesystem.has_value()) {
    condition.status = ConditionStatus::Unknown;
    condition.condition_reason = "PredictionUnavailable";
  } else if (decision.node.stage >= Stage::Guard) {
    condition.status = ConditionStatus::True;
    condition.condition_reason = "PredictedPullExceedsHeadroom";
  } else {
    condition.status = ConditionStatus::False;
    condition.condition_reason = "HeadroomSufficient";
  }
  return condition;
}

void publish_condition(const NodeSnapshot& snapshot, Decision& decision) {
  SetCondition condition = wanted_condition(decision);
  const auto& present = snapshot.node->risk_condition;
  Published& published = decision.memory.published;
  condition.transition = !present.has_value() || present->status != condition.status;
  if (!condition.transition && !published.condition_at.has_value()) {
    published.condition_at = snapshot.taken_at;  // somebody before us wrote it: the beat goes on
    return;
  }
  const bool heartbeat = published.condition_at.has_value() &&
                         snapshot.taken_at - *published.condition_at >= kConditionHeartbeat;
  if (!(condition.transition || heartbeat) || !may_order(snapshot, decision.memory, "condition")) {
    return;
  }
  published.condition_at = snapshot.taken_at;
  decision.actions.emplace_back(std::move(condition));
}

/// Remembers the Event; false if it was told lately.
bool is_news(const NodeSnapshot& snapshot, Decision& decision, const std::string& key) {
  auto& events = decision.memory.published.events;
  const auto found = events.find(key);
  if (found != events.end() && snapshot.taken_at - found->second < kEventRepeat) {
    return false;
  }
  if (events.size() >= kEventKeysMaximum && found == events.end()) {
    const auto oldest = std::ranges::min_element(
        events, {}, [](const auto& entry) { return std::tie(entry.second, entry.first); });
    events.erase(oldest);
  }
  events[key] = snapshot.taken_at;
  return true;
}

}  // namespace

void tell(const NodeSnapshot& snapshot,
          Decision& decision,
          const ObjectReference& object,
          const Tidings& tidings) {
  const std::string key = object.uid + ":" + tidings.event_reason + ":" + tidings.variant;
  if (!is_news(snapshot, decision, key)) {
    return;
  }
  decision.actions.emplace_back(EmitEvent{.regarding = object,
                                          .warning = tidings.warning,
                                          .event_reason = tidings.event_reason,
                                          .event_action = tidings.event_action,
                                          .note = shorten(tidings.note, kNoteBytesMaximum)});
}

void tell_pod(const NodeSnapshot& snapshot,
              Decision& decision,
              const Pod& pod,
              const Tidings& tidings) {
  tell(snapshot,
       decision,
       {.api_version = "v1",
        .kind = "Pod",
        .namespace_name = pod.namespace_name,
        .name = pod.name,
        .uid = pod.uid},
       tidings);
  if (pod.controller.has_value() && pod.controller->kind == "Job") {
    tell(snapshot,
         decision,
         {.api_version = pod.controller->api_version,
          .kind = pod.controller->kind,
          .namespace_name = pod.namespace_name,
          .name = pod.controller->name,
          .uid = pod.controller->uid},
         tidings);
  }
}

namespace {

void publish_events(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision) {
  if (!snapshot.pods.has_value()) {
    return;
  }
  const std::string prefix = policy.mode == Mode::Observe ? "observe only, not held: " : "";
  const std::vector<PullReport> pulls = decision.pulls;
  for (const PullReport& pull : pulls) {
    Tidings tidings;
    if (pull.waits_for_sizes) {
      continue;
    }
    if (pull.held) {
      tidings = {.warning = true,
                 .event_reason = "PullHeld",
                 .event_action = "Hold",
                 .variant = to_string(pull.verdict),
                 .note = prefix + "image " + pull.image + " " + pull.sentence};
    } else if (pull.verdict == Verdict::Unknown) {
      tidings = {.warning = true,
                 .event_reason = "PullSizeUnknown",
                 .event_action = "Allow",
                 .variant = pull.image,
                 .note = "image " + pull.image + " " + pull.sentence + "; not held"};
    } else {
      continue;
    }
    for (const std::string& key : pull.pods) {
      if (const Pod* pod = find_pod(snapshot, key)) {
        tell_pod(snapshot, decision, *pod, tidings);
      }
    }
  }
}

/// Releases and cancels are told from the actions themselves: they are ordered once.
void publish_turns(const NodeSnapshot& snapshot, Decision& decision) {
  if (!snapshot.pods.has_value()) {
    return;
  }
  const std::vector<Action> ordered = decision.actions;
  for (const Action& action : ordered) {
    Tidings tidings;
    Digest digest;
    if (const auto* release = std::get_if<ReleasePull>(&action)) {
      digest = release->manifest_digest;
      tidings = {.warning = false,
                 .event_reason = "PullReleased",
                 .event_action = "Release",
                 .variant = {},
                 .note = "image " + release->image + " " + release->reason};
    } else if (const auto* cancel = std::get_if<CancelPull>(&action)) {
      digest = cancel->manifest_digest;
      tidings = {.warning = true,
                 .event_reason = "PullCancelled",
                 .event_action = "Cancel",
                 .variant = {},
                 .note = "image " + cancel->image + " " + cancel->reason};
    } else {
      continue;
    }
    const auto pull = std::ranges::find(decision.pulls, digest, &PullReport::manifest_digest);
    if (pull == decision.pulls.end()) {
      continue;
    }
    const std::vector<std::string> pods = pull->pods;
    for (const std::string& key : pods) {
      if (const Pod* pod = find_pod(snapshot, key)) {
        tell_pod(snapshot, decision, *pod, tidings);
      }
    }
  }
}

}  // namespace

bool may_order(const NodeSnapshot& snapshot, const Memory& memory, const std::string& key) {
  if (std::ranges::binary_search(snapshot.running, key)) {
    return false;
  }
  const auto backoff = memory.backoff.find(key);
  return backoff == memory.backoff.end() || backoff->second.not_before <= snapshot.taken_at;
}

void publish(const NodeSnapshot& snapshot, const Policy& policy, Decision& decision) {
  publish_turns(snapshot, decision);
  publish_events(snapshot, policy, decision);
  if (!snapshot.node.has_value()) {
    return;
  }
  const std::optional<MonotonicTime>& blind = decision.memory.blind_since;
  if (blind.has_value() && snapshot.taken_at - *blind < kBlindSilence) {
    return;  // a probe that fails once is no news
  }
  publish_taint(snapshot, policy, decision);
  publish_metadata(snapshot, decision);
  publish_condition(snapshot, decision);
}

}  // namespace imagefs_guard
