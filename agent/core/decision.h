#pragma once
/// What decide() answers: actions to carry out, why in numbers and words, and what to remember.
/// Logs, status page, metrics and Events all print from here, so that they can't disagree.

#include <optional>
#include <string>
#include <vector>

#include "agent/core/action.h"
#include "agent/core/floor.h"
#include "agent/core/ledger.h"
#include "agent/core/memory.h"
#include "agent/core/pulls.h"
#include "agent/core/verdict.h"

namespace imagefs_guard {

/// One pull, as judged in this tick.
struct PullReport {
  Digest manifest_digest;
  std::string image;
  PullState state = PullState::Expected;
  Verdict verdict = Verdict::Unknown;
  bool held = false;  // this decision holds it
  /// Held for a moment, until its sizes are known: no news for anybody.
  bool waits_for_sizes = false;
  bool is_protected = false;
  MonotonicTime arrival{};  // when the first of its pods was seen bound
  Demand demand;
  std::int64_t outstanding_bytes = 0;
  std::int64_t smallest_volume_gib = 0;  // for NeverFits and DoesNotFit
  std::int64_t reclaim_bytes = 0;        // for FitsAfterReclaim: what must come back at least
  bool by_inodes = false;                // the verdict is that of inodes: bytes alone would do
  std::vector<std::string> pods;         // "namespace/name"
  /// "needs 12.9 GiB at its peak (…); 9.5 GiB free, floor 2.0 GiB; never fits this volume, …"
  std::string sentence;

  bool operator==(const PullReport&) const = default;
};

/// The node, as judged in this tick. Bytes are absent where the filesystem was not observed.
struct NodeReport {
  Stage stage = Stage::Clear;
  std::optional<Filesystem> image_filesystem;
  Floor floor;
  std::int64_t outstanding_bytes = 0;  // live pulls and those let go, high side
  std::int64_t waiting_bytes = 0;      // held and expected pulls, high side
  std::int64_t headroom_bytes = 0;     // available - outstanding - floor
  int image_usage_percent = 0;         // as the kubelet's image garbage collection counts
  bool image_gc_due = false;           // it will collect: space comes back, images go
  std::int64_t leftover_bytes = 0;     // of pulls that have failed: blobs and dead downloads
  /// Unused images, their layers that nothing else needs; looked at while there are pulls.
  std::int64_t reclaimable_bytes = 0;
  std::int64_t forecast_low_bytes = 0;   // available - outstanding: the low point to come
  std::vector<std::string> blind_spots;  // what could not be seen, in words
  /// Why nothing can be held here, in words: a runtime other than containerd. Empty: it can.
  std::string observe_only;

  bool operator==(const NodeReport&) const = default;
};

/// A pod that can't stay, or a Job that is held, and what becomes of it.
struct DrainReport {
  std::string pod;       // "namespace/name"
  std::string owner;     // "Prefect flow run"
  std::string method;    // "P", "S", "delete", "hold", "legacy-hold"
  std::string sentence;  // what is done or waited for, and why

  bool operator==(const DrainReport&) const = default;
};

struct Decision {
  std::vector<Action> actions;
  NodeReport node;
  std::vector<PullReport> pulls;
  std::vector<DrainReport> drains;
  Memory memory;

  bool operator==(const Decision&) const = default;
};

}  // namespace imagefs_guard
