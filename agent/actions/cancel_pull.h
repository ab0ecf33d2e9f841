#pragma once
/// Carries out CancelPull: deletes the pull's leases at containerd. A pull that waits at a hold
/// fails within two seconds at 0 bytes; a running one at its next layer boundary. A pull that is
/// cancelled under way leaves directories that belong to no snapshot and files that belong to no
/// blob: some seconds later, when the pull has failed, containerd is made to drop them.

#include <map>
#include <memory>
#include <string>

#include "agent/actions/action_runner.h"
#include "agent/io/loop.h"
#include "agent/runtime/containerd.h"

namespace imagefs_guard {

class CancelPullRunner {
 public:
  /// Both outlive it.
  CancelPullRunner(EventLoop& loop, Containerd& containerd);

  /// Several may run at once. `done` comes when every lease is gone, with the first error.
  /// Destroying the runner cancels without a callback.
  void start(const CancelPull& action, ActionDone done);

 private:
  struct Running {
    int open = 0;
    std::optional<Error> error;
    ActionDone done;
    std::vector<Containerd::Call> calls;
  };

  void on_deleted(std::uint64_t id, const Result<void>& result);
  void sweep();

  EventLoop& loop_;
  Containerd& containerd_;
  std::map<std::uint64_t, Running> running_;
  std::uint64_t next_id_ = 1;
  std::unique_ptr<Timer> sweep_timer_;
  int sweeps_left_ = 0;
  Containerd::Call directories_call_;
  Containerd::Call files_call_;
};

}  // namespace imagefs_guard
