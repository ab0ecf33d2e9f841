#pragma once
/// An event loop on a clock that only tests move: timers fire when advance() passes them, deferred
/// calls run in run_ready(). Nothing waits, nothing is random.

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "agent/io/loop.h"

namespace imagefs_guard {

class FakeLoop final : public EventLoop {
 public:
  [[nodiscard]] MonotonicTime now() const override { return now_; }

  [[nodiscard]] WallTime wall_now() const override { return wall_; }

  [[nodiscard]] std::unique_ptr<Timer> make_timer(const char* /*description*/,
                                                  std::function<void()> callback) override {
    auto timer = std::make_unique<FakeTimer>(*this, std::move(callback));
    timers_.push_back(timer.get());
    return timer;
  }

  void defer(std::function<void()> callback) override { deferred_.push_back(std::move(callback)); }

  void on_signal(int /*signal_number*/, std::function<void()> /*callback*/) override {}

  int run() override { return 0; }

  void exit(int /*code*/) override {}

  [[nodiscard]] sd_event* raw() override { return nullptr; }

  /// Runs deferred calls, and what they defer, until none is left. The limit ends a test whose
  /// code defers for ever.
  void run_ready() {
    for (int i = 0; i < 100'000 && !deferred_.empty(); ++i) {
      const std::function<void()> callback = std::move(deferred_.front());
      deferred_.pop_front();
      callback();
    }
  }

  /// Moves both clocks on, firing timers in order of their time.
  void advance(Duration duration) {
    run_ready();
    const MonotonicTime until = now_ + duration;
    while (FakeTimer* timer = earliest(until)) {
      set_now(std::max(now_, timer->due));
      timer->armed = false;
      const std::function<void()> callback = timer->callback;
      callback();
      run_ready();
    }
    set_now(until);
  }

 private:
  struct FakeTimer final : Timer {
    FakeTimer(FakeLoop& owner, std::function<void()> function)
        : loop(owner), callback(std::move(function)) {}

    FakeTimer(const FakeTimer&) = delete;
    FakeTimer& operator=(const FakeTimer&) = delete;

    ~FakeTimer() override { std::erase(loop.timers_, this); }

    void arm(Duration delay) override {
      due = loop.now_ + delay;
      armed = true;
    }

    void disarm() override { armed = false; }

    FakeLoop& loop;
    std::function<void()> callback;
    MonotonicTime due{};
    bool armed = false;
  };

  FakeTimer* earliest(MonotonicTime until) {
    FakeTimer* first = nullptr;
    for (FakeTimer* timer : timers_) {
      if (timer->armed && timer->due <= until && (first == nullptr || timer->due < first->due)) {
        first = timer;
      }
    }
    return first;
  }

  void set_now(MonotonicTime now) {
    wall_ += now - now_;
    now_ = now;
  }

  MonotonicTime now_{std::chrono::hours(1)};
  WallTime wall_{std::chrono::seconds(1'767'323'045)};  // 2026-01-02T03:04:05Z
  std::deque<std::function<void()>> deferred_;
  std::vector<FakeTimer*> timers_;
};

}  // namespace imagefs_guard
