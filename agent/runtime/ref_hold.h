#pragma once
/// One ingest ref kept locked: an open Write stream that has sent STAT and nothing else. As long
/// as it is open, a pull that wants this blob waits at 0 bytes. Destroying it lets the pull go on.
/// Parts of hold.h; survives containerd's restarts by opening the stream again.

#include <functional>
#include <memory>
#include <string>

#include "agent/core/action.h"
#include "agent/io/loop.h"
#include "agent/runtime/containerd.h"

namespace imagefs_guard {

/// How hard to try where somebody else has the ref. containerd answers that only after some 0.5 s,
/// through which it lets nobody write to its metadata: each try costs every pod that starts.
enum class Insistence {
  Burst,  // again and again for two seconds: a pull has its config ref only that long
  Once,   // a layer's download lasts, so only nudge() tries again, after a while
};

class RefHold {
 public:
  struct Options {
    HoldRef ref;
    Insistence insistence = Insistence::Burst;
  };

  /// Begins at once. `changed` comes from the loop, after state() has changed.
  RefHold(EventLoop& loop, Containerd& containerd, Options options, std::function<void()> changed);
  RefHold(const RefHold&) = delete;
  RefHold& operator=(const RefHold&) = delete;
  ~RefHold() = default;

  [[nodiscard]] const HoldRef& ref() const { return options_.ref; }

  /// TooLate: somebody else has the ref, a pull as a rule. NothingToHold: the blob is here.
  [[nodiscard]] HoldState state() const { return state_; }

  /// For Failed, and for Opening after the stream was cut.
  [[nodiscard]] const std::string& error() const { return error_; }

  /// An earlier download was interrupted, and the next pull will go on from there. An ingest that
  /// is complete at once is none: containerd has the file, but under no blob's name.
  [[nodiscard]] bool has_partial_download() const {
    return status_.offset_bytes != 0 && status_.offset_bytes != status_.total_bytes;
  }

  /// Tries again what is not held and not tried by itself. Once a tick.
  void nudge();

 private:
  void open();
  void held(Result<wire::WriteStatus> status);
  void ended(Result<void> end);
  void retry_in(Duration delay);
  void enter(HoldState state, std::string error);

  EventLoop& loop_;
  Containerd& containerd_;
  Options options_;
  std::function<void()> changed_;
  HoldState state_ = HoldState::Opening;
  std::string error_;
  wire::WriteStatus status_;
  MonotonicTime locked_since_{};  // start of the present row of TooLate
  MonotonicTime tried_at_{};
  Duration back_off_{};
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<GrpcCall> stream_;
};

}  // namespace imagefs_guard
