#include "agent/io/loop.h"

#include <systemd/sd-event.h>
#include <time.h>

#include <csignal>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

namespace imagefs_guard {

Duration read_clock(clockid_t clock) {
  timespec time{};
  VERIFY(clock_gettime(clock, &time) == 0);
  return std::chrono::seconds(time.tv_sec) +
         std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(time.tv_nsec));
}

namespace {

// Signals before curl's sockets (0 by default) before timers, so that ticks don't delay replies.
// Deferred calls come last: sd_event never ages a defer source, so a call that defers again would
// starve every source of the same priority.
constexpr std::int64_t kSignalPriority = SD_EVENT_PRIORITY_IMPORTANT;
constexpr std::int64_t kTimerPriority = 10;
constexpr std::int64_t kDeferredPriority = 20;
// 0 would mean sd_event's default of 250 ms.
constexpr std::uint64_t kTimerAccuracyMicroseconds = 1000;

Error system_error(const char* call, int negative_errno) {
  return Error{ErrorKind::Internal, std::string(call) + ": " + std::strerror(-negative_errno)};
}

void prepare_source(sd_event_source* source, const char* description, std::int64_t priority) {
  VERIFY(sd_event_source_set_description(source, description) >= 0);
  VERIFY(sd_event_source_set_priority(source, priority) >= 0);
  VERIFY(sd_event_source_set_exit_on_failure(source, 1) >= 0);
}

class SdTimer final : public Timer {
 public:
  SdTimer(sd_event* event, const char* description, std::function<void()> callback)
      : callback_(std::make_shared<std::function<void()>>(std::move(callback))) {
    VERIFY(sd_event_add_time(event,
                             &source_,
                             CLOCK_MONOTONIC,
                             /* usec= */ 0,
                             kTimerAccuracyMicroseconds,
                             on_time,
                             this) >= 0);
    prepare_source(source_, description, kTimerPriority);
    disarm();
  }

  SdTimer(const SdTimer&) = delete;
  SdTimer& operator=(const SdTimer&) = delete;

  ~SdTimer() override { sd_event_source_disable_unref(source_); }

  void arm(Duration delay) override {
    const Duration due = read_clock(CLOCK_MONOTONIC) + std::max(delay, Duration{0});
    VERIFY(sd_event_source_set_time(source_, static_cast<std::uint64_t>(due.count())) >= 0);
    VERIFY(sd_event_source_set_enabled(source_, SD_EVENT_ONESHOT) >= 0);
  }

  void disarm() override { VERIFY(sd_event_source_set_enabled(source_, SD_EVENT_OFF) >= 0); }

 private:
  static int on_time(sd_event_source*, std::uint64_t, void* userdata) noexcept {
    // The callback may destroy the timer: keep what is being called.
    const auto callback = static_cast<SdTimer*>(userdata)->callback_;
    (*callback)();
    return 0;
  }

  std::shared_ptr<std::function<void()>> callback_;
  sd_event_source* source_ = nullptr;
};

class SdEventLoop final : public EventLoop {
 public:
  explicit SdEventLoop(sd_event* event) : event_(event) {
    VERIFY(sd_event_add_defer(event_, &deferred_source_, on_deferred, this) >= 0);
    prepare_source(deferred_source_, "deferred calls", kDeferredPriority);
    VERIFY(sd_event_source_set_enabled(deferred_source_, SD_EVENT_OFF) >= 0);
  }

  SdEventLoop(const SdEventLoop&) = delete;
  SdEventLoop& operator=(const SdEventLoop&) = delete;

  ~SdEventLoop() override {
    sd_event_source_disable_unref(deferred_source_);
    for (const auto& handler : signals_) {
      sd_event_source_disable_unref(handler->source);
    }
    sd_event_unref(event_);
  }

  [[nodiscard]] MonotonicTime now() const override {
    return MonotonicTime(read_clock(CLOCK_MONOTONIC));
  }

  [[nodiscard]] WallTime wall_now() const override { return WallTime(read_clock(CLOCK_REALTIME)); }

  [[nodiscard]] std::unique_ptr<Timer> make_timer(const char* description,
                                                  std::function<void()> callback) override {
    return std::make_unique<SdTimer>(event_, description, std::move(callback));
  }

  void defer(std::function<void()> callback) override {
    deferred_.push_back(std::move(callback));
    VERIFY(sd_event_source_set_enabled(deferred_source_, SD_EVENT_ONESHOT) >= 0);
  }

  void on_signal(int signal_number, std::function<void()> callback) override {
    auto handler = std::make_unique<SignalHandler>();
    handler->callback = std::move(callback);
    VERIFY(sd_event_add_signal(event_,
                               &handler->source,
                               signal_number | SD_EVENT_SIGNAL_PROCMASK,
                               on_signal_received,
                               handler.get()) >= 0);
    prepare_source(handler->source, "signal", kSignalPriority);
    signals_.push_back(std::move(handler));
  }

  int run() override {
    const int code = sd_event_loop(event_);
    VERIFY(code >= 0);  // a source failed: the loop is of no more use
    return code;
  }

  void exit(int code) override { VERIFY(sd_event_exit(event_, code) >= 0); }

  [[nodiscard]] sd_event* raw() override { return event_; }

 private:
  struct SignalHandler {
    std::function<void()> callback;
    sd_event_source* source = nullptr;
  };

  static int on_deferred(sd_event_source*, void* userdata) noexcept {
    // Only what is queued now: a callback that defers again must not keep timers from running.
    std::deque<std::function<void()>> batch;
    batch.swap(static_cast<SdEventLoop*>(userdata)->deferred_);
    for (const std::function<void()>& callback : batch) {
      callback();
    }
    return 0;
  }

  static int on_signal_received(sd_event_source*,
                                const signalfd_siginfo*,
                                void* userdata) noexcept {
    static_cast<SignalHandler*>(userdata)->callback();
    return 0;
  }

  sd_event* event_;
  sd_event_source* deferred_source_ = nullptr;
  std::deque<std::function<void()>> deferred_;
  std::vector<std::unique_ptr<SignalHandler>> signals_;
};

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  // libcurl is told not to touch signals, so a peer that goes away must not kill the process.
  if (std::signal(SIGPIPE, SIG_IGN) == SIG_ERR) {
    return system_error("signal", -errno);
  }
  sd_event* event = nullptr;
  const int made = sd_event_new(&event);
  if (made < 0) {
    return system_error("sd_event_new", made);
  }
  return std::unique_ptr<EventLoop>(std::make_unique<SdEventLoop>(event));
}

}  // namespace imagefs_guard
