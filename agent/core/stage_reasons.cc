#include "agent/core/stage_reasons.h"

#include <algorithm>

#include "agent/core/words.h"

namespace imagefs_guard {

namespace {

std::string minutes_text(Duration duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  return seconds < 120 ? std::to_string(seconds) + " s" : std::to_string(seconds / 60) + " min";
}

void add_space(const NodeSnapshot& snapshot,
               const Policy& policy,
               const Decision& decision,
               std::vector<std::string>& reasons) {
  if (snapshot.node.has_value() && snapshot.node->disk_pressure) {
    reasons.emplace_back(
        "the kubelet reports DiskPressure: it is evicting already, so pulls are "
        "held and nobody is drained");
  }
  const NodeReport& node = decision.node;
  if (!node.image_filesystem.has_value()) {
    reasons.emplace_back("the image filesystem can't be observed");
    return;
  }
  const std::int64_t above = node.image_filesystem->available_bytes - node.floor.bytes;
  if (above < policy.guard_margin_bytes) {
    reasons.push_back("only " + gib_text(above) +
                      " GiB lie between free space and the floor; less "
                      "than " +
                      gib_text(policy.guard_margin_bytes) + " GiB is too near");
  }
}

void add_pulls(const Decision& decision, std::vector<std::string>& reasons) {
  for (const PullReport& pull : decision.pulls) {
    if (pull.held && reasons.size() + 2 < kReasonsMaximum) {
      reasons.push_back("the pull of " + pull.image + " is held: it " + pull.sentence);
    }
  }
}

/// The way down takes its time.
void add_calm(const NodeSnapshot& snapshot,
              const Policy& policy,
              const Decision& decision,
              std::vector<std::string>& reasons) {
  const NodeReport& node = decision.node;
  if (node.stage == Stage::Clear || !reasons.empty()) {
    return;
  }
  const std::optional<MonotonicTime>& since = decision.memory.stage.calm_since;
  if (since.has_value()) {
    const Duration calm = snapshot.taken_at - *since;
    reasons.push_back("nothing has spoken for it for " + minutes_text(calm) + "; it ends after " +
                      minutes_text(policy.clear_after) + " of calm");
  } else {
    reasons.push_back("nothing speaks for it any more, but less than " +
                      gib_text(policy.clear_margin_bytes) +
                      " GiB above the floor is too little to end it");
  }
}

}  // namespace

std::vector<std::string> stage_reasons(const NodeSnapshot& snapshot,
                                       const Policy& policy,
                                       const Decision& decision) {
  std::vector<std::string> reasons;
  add_space(snapshot, policy, decision, reasons);
  add_pulls(decision, reasons);
  add_calm(snapshot, policy, decision, reasons);
  if (!decision.node.observe_only.empty()) {
    reasons.push_back(decision.node.observe_only);
  }
  if (decision.memory.blind_since.has_value()) {
    reasons.push_back("no pull could be judged for " +
                      minutes_text(snapshot.taken_at - *decision.memory.blind_since) +
                      ": a part of the picture is missing");
  }
  if (reasons.empty()) {
    reasons.emplace_back("free space is above the floor, and no pull is held");
  }
  if (reasons.size() > kReasonsMaximum) {
    reasons.resize(kReasonsMaximum);
  }
  return reasons;
}

}  // namespace imagefs_guard
