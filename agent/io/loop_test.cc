#include "agent/io/loop.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace imagefs_guard::loop_test {

TEST_CASE("timers fire once, in order, and can be armed again") {
  const std::unique_ptr<EventLoop> loop = EventLoop::create().value();
  std::string order;
  std::unique_ptr<Timer> again;
  int left = 2;
  again = loop->make_timer("again", [&] {
    order += 'a';
    if (--left > 0) {
      again->arm(std::chrono::milliseconds(5));
    }
  });
  const auto late = loop->make_timer("late", [&] { loop->exit(7); });
  const auto disarmed = loop->make_timer("disarmed", [&] { order += 'x'; });
  const auto replaced = loop->make_timer("replaced", [&] { order += 'r'; });
  replaced->arm(std::chrono::milliseconds(1));
  replaced->arm(std::chrono::milliseconds(20));
  again->arm(Duration{0});
  late->arm(std::chrono::milliseconds(40));
  disarmed->arm(std::chrono::milliseconds(1));
  disarmed->disarm();
  const MonotonicTime start = loop->now();
  CHECK(loop->run() == 7);
  CHECK(order == "aar");
  CHECK(loop->now() - start >= std::chrono::milliseconds(40));
  CHECK(loop->now() - start < std::chrono::milliseconds(400));
}

TEST_CASE("a timer may destroy itself") {
  const std::unique_ptr<EventLoop> loop = EventLoop::create().value();
  std::unique_ptr<Timer> timer;
  timer = loop->make_timer("self", [&, text = std::string(100, 'x')] {
    timer.reset();
    CHECK(text.size() == 100);
    loop->exit(0);
  });
  timer->arm(Duration{0});
  CHECK(loop->run() == 0);
}

TEST_CASE("deferred calls run later, and one that defers again starves nothing") {
  const std::unique_ptr<EventLoop> loop = EventLoop::create().value();
  int rounds = 0;
  std::function<void()> round = [&] {
    ++rounds;
    loop->defer(round);
  };
  loop->defer(round);
  CHECK(rounds == 0);
  const auto end = loop->make_timer("end", [&] { loop->exit(0); });
  end->arm(std::chrono::milliseconds(5));
  CHECK(loop->run() == 0);
  CHECK(rounds > 1);
}

TEST_CASE("signals arrive in the loop") {
  const std::unique_ptr<EventLoop> loop = EventLoop::create().value();
  loop->on_signal(SIGUSR1, [&] { loop->exit(3); });
  REQUIRE(kill(getpid(), SIGUSR1) == 0);
  CHECK(loop->run() == 3);
}

}  // namespace imagefs_guard::loop_test
