#pragma once
/// For tests only: a loop without sockets whose clock stands still until the test moves it.

#include <algorithm>
#include <deque>
#include <vector>

#include "agent/core/verify.h"
#include "agent/io/loop.h"

namespace imagefs_guard {

class FakeLoop final : public EventLoop {
 public:
  [[nodiscard]] MonotonicTime now() const override { return now_; }

  [[nodiscard]] WallTime wall_now() const override { return WallTime(now_.time_since_epoch()); }

  [[nodiscard]] std::unique_ptr<Timer> make_timer(const char*,
                                                  std::function<void()> callback) override {
    return std::make_unique<FakeTimer>(*this, std::move(callback));
  }

  void defer(std::function<void()> callback) override { deferred_.push_back(std::move(callback)); }

  void on_signal(int, std::function<void()>) override {}

  int run() override { VERIFY(false); }

  void exit(int) override {}

  [[nodiscard]] sd_event* raw() override { VERIFY(false); }

  /// Moves the clock; timers fire at their time, deferred calls in between.
  void advance(Duration time) {
    const MonotonicTime end = now_ + time;
    settle();
    while (FakeTimer* next = earliest(end)) {
      now_ = std::max(now_, *next->due);
      next->due.reset();
      // The callback may destroy its timer.
      const std::shared_ptr<std::function<void()>> callback = next->callback;
      (*callback)();
      settle();
    }
    now_ = end;
  }

  /// Runs what is deferred, without time passing.
  void settle() {
    for (int round = 0; !deferred_.empty(); ++round) {
      VERIFY(round < 100'000);
      const std::function<void()> callback = std::move(deferred_.front());
      deferred_.pop_front();
      callback();
    }
  }

 private:
  struct FakeTimer final : Timer {
    FakeTimer(FakeLoop& owner, std::function<void()> call)
        : loop(owner), callback(std::make_shared<std::function<void()>>(std::move(call))) {
      loop.timers_.push_back(this);
    }

    FakeTimer(const FakeTimer&) = delete;
    FakeTimer& operator=(const FakeTimer&) = delete;

    ~FakeTimer() override { std::erase(loop.timers_, this); }

    void arm(Duration delay) override { due = loop.now_ + delay; }

    void disarm() override { due.reset(); }

    FakeLoop& loop;
    std::shared_ptr<std::function<void()>> callback;
    std::optional<MonotonicTime> due;
  };

  [[nodiscard]] FakeTimer* earliest(MonotonicTime end) {
    FakeTimer* best = nullptr;
    for (FakeTimer* timer : timers_) {
      if (timer->due && *timer->due <= end && (best == nullptr || *timer->due < *best->due)) {
        best = timer;
      }
    }
    return best;
  }

  MonotonicTime now_{std::chrono::hours(1)};
  std::deque<std::function<void()>> deferred_;
  std::vector<FakeTimer*> timers_;
};

}  // namespace imagefs_guard
