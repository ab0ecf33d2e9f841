// untested: hold_test.cc has its cases.
#include "agent/runtime/ref_hold.h"

#include <algorithm>

namespace imagefs_guard {

namespace {

// A pull has its config ref for a few round trips; a retry that comes right after that still meets
// the layers. Trying for longer can't help against this pull, only against the next.
constexpr Duration kLockedRetry = std::chrono::milliseconds(50);
constexpr Duration kLockedRetryFor = std::chrono::seconds(2);
// A restart of containerd takes about a second; its pulls end with it and come back after 10 s.
constexpr Duration kBackOffFirst = std::chrono::milliseconds(50);
constexpr Duration kBackOffLongest = std::chrono::seconds(2);
constexpr Duration kNudgeInterval = std::chrono::milliseconds(900);
constexpr Duration kLockedNudgeInterval = std::chrono::seconds(5);

/// containerd answers Unavailable for a ref that is taken, and so does a socket that is not there.
bool is_locked(const Error& error) {
  return error.kind == ErrorKind::Unavailable && error.message.find(" locked") != std::string::npos;
}

}  // namespace

RefHold::RefHold(EventLoop& loop,
                 Containerd& containerd,
                 Options options,
                 std::function<void()> changed)
    : loop_(loop),
      containerd_(containerd),
      options_(std::move(options)),
      changed_(std::move(changed)),
      timer_(loop.make_timer("hold retry", [this] { open(); })) {
  open();
}

void RefHold::nudge() {
  const Duration interval = state_ == HoldState::TooLate ? kLockedNudgeInterval : kNudgeInterval;
  if (stream_ == nullptr && loop_.now() - tried_at_ >= interval) {
    open();
  }
}

void RefHold::open() {
  timer_->disarm();
  tried_at_ = loop_.now();
  stream_ = containerd_.open_write(
      options_.ref.ref,
      options_.ref.expected,
      [this](Result<wire::WriteStatus> status) { held(std::move(status)); },
      [this](Result<void> end) { ended(std::move(end)); });
}

void RefHold::held(Result<wire::WriteStatus> status) {
  if (!status) {
    // Not a Write reply: nothing is sure about this stream.
    ended(std::move(status).error());
    return;
  }
  status_ = *status;
  back_off_ = Duration{0};
  enter(HoldState::Held, "");
}

void RefHold::ended(Result<void> end) {
  stream_.reset();
  const Error error =
      end ? Error{ErrorKind::Unavailable, "containerd ended the stream"} : std::move(end).error();
  if (error.kind == ErrorKind::AlreadyExists) {
    back_off_ = Duration{0};
    enter(HoldState::NothingToHold, "");
    return;
  }
  if (is_locked(error)) {
    if (state_ != HoldState::TooLate) {
      locked_since_ = loop_.now();
    }
    if (options_.insistence == Insistence::Burst && loop_.now() - locked_since_ < kLockedRetryFor) {
      retry_in(kLockedRetry);
    }
    enter(HoldState::TooLate, "");
    return;
  }
  const bool was_held = state_ == HoldState::Held;
  back_off_ = std::clamp(back_off_ * 2, kBackOffFirst, kBackOffLongest);
  retry_in(back_off_);
  enter(was_held ? HoldState::Opening : HoldState::Failed, error.message);
}

void RefHold::retry_in(Duration delay) {
  timer_->arm(delay);
}

void RefHold::enter(HoldState state, std::string error) {
  const bool same = state == state_ && error == error_;
  state_ = state;
  error_ = std::move(error);
  if (!same) {
    changed_();  // last: the owner looks at this object
  }
}

}  // namespace imagefs_guard
