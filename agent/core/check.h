#pragma once
/// Will these images fit on this node, all of them together? What `imagefs-guard check` answers,
/// as one pure function over the same room, ledger and verdicts as decide(): the images take the
/// room in the order in which they are named, shared layers count once.

#include <string>
#include <vector>

#include "agent/core/decision.h"
#include "agent/core/ledger.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

/// One image; `report` counts what it adds to those before it that fit.
struct CheckedImage {
  PullReport report;
  std::vector<LayerDemand> layers;  // all, as the manifest has them; none if Unknown

  bool operator==(const CheckedImage&) const = default;
};

struct CheckReport {
  /// Fits only if every image does. What surely does not fit wins over what is unknown.
  Verdict verdict = Verdict::Unknown;
  NodeReport node;
  /// All images as one pull. Its smallest volume is given whatever the verdict; 0 = unknown.
  PullReport total;
  std::vector<CheckedImage> images;  // as they were named

  bool operator==(const CheckReport&) const = default;
};

/// `images` are names that the snapshot resolves; of what it does not, the verdict is Unknown. The
/// snapshot's pods are not judged. Without a filesystem or a runtime all is Unknown.
[[nodiscard]] CheckReport check_images(const NodeSnapshot& snapshot,
                                       const Policy& policy,
                                       const std::vector<std::string>& images);

}  // namespace imagefs_guard
