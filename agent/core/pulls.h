#pragma once
/// Which pulls there are on this node, from pods, leases and holds together: the first step of
/// decide(). A pull is the bringing of one image (manifest digest); it outlives its pods.

#include <string>
#include <vector>

#include "agent/core/memory.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

/// Waiting pulls have written no layer byte: Expected (not begun, or still at its manifest) or
/// Held. The others are live.
enum class PullState { Expected, Held, Downloading, Unpacking };

/// "expected", "held", …: for logs and the status.
[[nodiscard]] const char* to_string(PullState state);

struct Pull {
  const ImageManifest* manifest = nullptr;  // never null
  std::string image;                        // a name for people; empty if no pod names it
  PullState state = PullState::Expected;
  /// Pods that wait for it. Leaving pods are being deleted and never started.
  std::vector<const Pod*> pods;
  std::vector<const Pod*> leaving_pods;
  bool is_protected = false;
  std::int32_t priority = 0;
  MonotonicTime arrival{};
  std::vector<std::string> lease_ids;
  const Hold* hold = nullptr;
  const ResolvedImage* resolution = nullptr;  // of one of its pods' images; null: from a lease
  bool incomplete = false;  // its config is awaited: which layers are missing is not known yet
  bool promised = false;    // released by us and not yet done: its bytes are spoken for

  [[nodiscard]] bool is_live() const {
    return state == PullState::Downloading || state == PullState::Unpacking || promised;
  }
};

/// A pod's image whose manifest is not known.
struct UnresolvedImage {
  std::string image;
  const ResolvedImage* resolution = nullptr;  // null: never asked for
  std::vector<const Pod*> pods;
};

struct Pulls {
  std::vector<Pull> pulls;  // in the order in which they may go: see order_pulls()
  std::vector<UnresolvedImage> unresolved;
};

/// Needs `runtime` and `pods` to be present. Pointers go into the snapshot.
[[nodiscard]] Pulls collect_pulls(const NodeSnapshot& snapshot,
                                  const Memory& memory,
                                  const Policy& policy);

/// A pod that must not suffer: its priority, namespace, labels or annotation say so.
[[nodiscard]] bool is_protected(const Pod& pod, const Policy& policy);

/// Live pulls first (they hold their bytes already), then protected, then priority, then arrival;
/// ties end at the manifest digest, so a replay can't differ.
void order_pulls(std::vector<Pull>& pulls);

}  // namespace imagefs_guard
