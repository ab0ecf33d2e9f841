#pragma once
/// Carries out ReclaimImage: CRI's RemoveImage, which returns when the bytes are back. What really
/// came back is measured on the disk and told; the planner trusts the disk alone.

#include <cstdint>
#include <functional>
#include <map>

#include "agent/actions/action_runner.h"
#include "agent/runtime/containerd.h"

namespace imagefs_guard {

class ReclaimImageRunner {
 public:
  /// Free bytes of the image filesystem now; -1 = can't be read.
  using Available = std::function<std::int64_t()>;
  /// An image is gone, and by how much free space grew meanwhile, whoever else wrote.
  using Removed = std::function<void(const ReclaimImage& action, std::int64_t grown_bytes)>;

  /// `containerd` outlives it.
  ReclaimImageRunner(Containerd& containerd, Available available, Removed removed);

  /// Several may run at once; the planner bounds them. Destroying the runner cancels the waiting,
  /// not the removal.
  void start(const ReclaimImage& action, ActionDone done);

 private:
  Containerd& containerd_;
  Available available_;
  Removed removed_;
  std::map<std::uint64_t, Containerd::Call> calls_;
  std::uint64_t next_id_ = 1;
};

}  // namespace imagefs_guard
