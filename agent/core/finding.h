#pragma once
/// A finding: something about this node's set-up that will hurt sooner or later, in one sentence,
/// with what to change. Found by audit() (findings.h), shown in metrics, log, Event and status.

#include <array>
#include <string>

namespace imagefs_guard {

enum class FindingKind {
  ThresholdUnset,       // the kubelet never evicts for the image filesystem
  GcTooLate,            // image garbage collection begins where eviction begins
  VolumeTooSmall,       // an image in use has no room for its next version, or none at all
  VolumeMissing,        // no image filesystem under the path that the agent looks at
  VolumeWrong,          // the runtime's images are not on the filesystem that the agent looks at
  BlobsKept,            // compressed layers stay after they are unpacked
  SandboxUnpinned,      // garbage collection may take the image without which no pod starts
  ProtectedNoRequest,   // the kubelet evicts them first
  ProtectedIntolerant,  // they can't come back to a node with our taint
  Leftovers,            // bytes that no image, container or pull owns
  UnexplainedGrowth,    // bytes that came, and not with images
};

constexpr std::array<FindingKind, 11> kFindingKinds = {FindingKind::ThresholdUnset,
                                                       FindingKind::GcTooLate,
                                                       FindingKind::VolumeTooSmall,
                                                       FindingKind::VolumeMissing,
                                                       FindingKind::VolumeWrong,
                                                       FindingKind::BlobsKept,
                                                       FindingKind::SandboxUnpinned,
                                                       FindingKind::ProtectedNoRequest,
                                                       FindingKind::ProtectedIntolerant,
                                                       FindingKind::Leftovers,
                                                       FindingKind::UnexplainedGrowth};

/// "imagefs_threshold_unset": metric label, log field, JSON. Stable.
[[nodiscard]] const char* to_string(FindingKind kind);

/// "ImagefsThresholdUnset": the Event's reason. Stable.
[[nodiscard]] const char* event_reason(FindingKind kind);

struct Finding {
  FindingKind kind = FindingKind::ThresholdUnset;
  std::string sentence;  // what is so, with its numbers
  std::string advice;    // what to change

  bool operator==(const Finding&) const = default;
};

}  // namespace imagefs_guard
