#include "agent/commands/replay.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "agent/commands/flight_recorder.h"
#include "agent/core/decide.h"
#include "tests/unit/builders.h"

namespace imagefs_guard::replay_test {
namespace {

using testing::gib;
using testing::layer;
using testing::TestNode;

/// A recorder on a directory in memory, and an agent that decides.
class Recorded {
 public:
  explicit Recorded(std::size_t bytes = std::size_t{1} << 20) {
    REQUIRE(mkdtemp(folder.data()) != nullptr);
    auto ring = RingFile::open(folder, bytes);
    REQUIRE(ring);
    recorder.emplace(*std::move(ring), [this](const Error& error) { trouble = error.message; });
  }

  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  ~Recorded() {
    for (const char* name : {kRingNewer, kRingOlder}) {
      unlink((folder + "/" + name).c_str());
    }
    rmdir(folder.c_str());
  }

  void tick(Duration later = std::chrono::seconds(10)) {
    node.snapshot_.taken_at += later;
    node.snapshot_.runtime_observed_at = node.snapshot_.taken_at;
    const Decision decision = decide(node.snapshot_, memory, policy);
    recorder->note({.number = ++ticks,
                    .snapshot = node.snapshot_,
                    .memory = memory,
                    .policy = policy,
                    .decision = decision});
    memory = decision.memory;
  }

  [[nodiscard]] std::string read(const char* name) const {
    std::ostringstream text;
    text << std::ifstream(folder + "/" + name).rdbuf();
    return text.str();
  }

  static std::ptrdiff_t lines(const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  }

  std::string folder = "/dev/shm/replay-test-XXXXXX";
  std::optional<FlightRecorder> recorder;
  TestNode node{gib(2000), gib(950), gib(200)};
  Memory memory;
  Policy policy = default_policy();
  std::uint64_t ticks = 0;
  std::string trouble;
};

TEST_CASE("what was recorded is decided again, the same") {
  Recorded recorded;
  recorded.tick();
  recorded.node.image("etl", 1, {layer(1, gib(200), gib(450)), layer(2, gib(190), gib(450))})
      .pod({.name = "flow-etl", .image = "etl"});
  recorded.tick();
  recorded.node.hold(1);
  recorded.tick();
  recorded.node.snapshot_.runtime.reset();
  recorded.tick();
  const std::string trace = recorded.read(kRingNewer);
  CHECK(Recorded::lines(trace) == 4);
  const auto report = replay_trace(trace, std::nullopt);
  REQUIRE(report);
  CHECK(report->text == "4 decisions, all the same\n");
  CHECK(report->differing == 0);

  SUBCASE("another policy decides otherwise, and it is shown where") {
    Policy wide = recorded.policy;
    wide.floor_margin_bytes = gib(300);
    const auto other = replay_trace(trace, wide);
    REQUIRE(other);
    CHECK(other->differing == 4);
    CHECK(other->text.find("tick 2 (") != std::string::npos);
    CHECK(other->text.find("node.floor.bytes: 2147483648 → 5368709120\n") != std::string::npos);
    CHECK(other->text.ends_with("4 decisions, 4 differ\n"));
  }
  SUBCASE("its decisions are renewed where they have changed on purpose") {
    CHECK(renew_trace(trace).value() == trace);
    std::string old = trace;
    old.replace(old.find("NeverFits"), 9, "FitsLater");
    REQUIRE(replay_trace(old, std::nullopt));
    CHECK(replay_trace(old, std::nullopt)->differing == 1);
    CHECK(renew_trace(old).value() == trace);
  }
  SUBCASE("a trace that was cut, is empty or is something else") {
    struct Case {
      std::string text;
      const char* part;
    };

    for (const Case& c :
         {Case{trace.substr(0, trace.size() - 1), "line 4: it is cut off"},
          Case{trace.substr(0, trace.size() - 20) + "\n", "line 4: it is cut off or no trace"},
          Case{"", "the trace is empty"},
          Case{"hello\n", "line 1: it is cut off or no trace"},
          Case{trace.substr(trace.find('\n') + 1), "line 1: it is not the beginning"}}) {
      CAPTURE(c.part);
      const auto failed = replay_trace(c.text, std::nullopt);
      REQUIRE(!failed.has_value());
      CHECK(failed.error().message.starts_with(c.part));
      CHECK(failed.error().message.find('\n') == std::string::npos);
    }
  }
}

TEST_CASE("a quiet node is written once a minute, a busy one not without end") {
  Recorded recorded;
  recorded.tick();
  recorded.node.snapshot_.node.reset();  // nothing to publish
  recorded.tick();
  const auto before = Recorded::lines(recorded.read(kRingNewer));
  for (int i = 0; i < 60; ++i) {
    recorded.node.snapshot_.filesystems->front().available_bytes -= 1;
    recorded.tick();
  }
  CHECK(Recorded::lines(recorded.read(kRingNewer)) - before == 10);
  const auto quiet = Recorded::lines(recorded.read(kRingNewer));
  for (int i = 0; i < 1000; ++i) {
    recorded.node.snapshot_.probe_errors["kubelet"] = "down";
    if (i % 2 == 0) {
      recorded.node.snapshot_.probe_errors.clear();
    }
    recorded.tick(std::chrono::milliseconds(10));
  }
  CHECK(Recorded::lines(recorded.read(kRingNewer)) - quiet <= 60);
}

TEST_CASE("each file of the ring can be replayed by itself") {
  Recorded recorded(64 << 10);
  for (unsigned i = 0; i < 400; ++i) {
    recorded.node.image("etl-" + std::to_string(i), i + 1, {layer(i + 1, gib(2), gib(4))});
    recorded.node.snapshot_.probe_errors["kubelet"] = std::string(i % 2 + 1, 'x');
    if (recorded.node.snapshot_.manifests.size() > 20) {
      recorded.node.snapshot_.manifests.erase(recorded.node.snapshot_.manifests.begin());
    }
    recorded.node.snapshot_.resolved.clear();
    recorded.tick(std::chrono::seconds(61));
  }
  CHECK(recorded.trouble.empty());
  for (const char* name : {kRingNewer, kRingOlder}) {
    const std::string trace = recorded.read(name);
    CHECK(trace.size() <= 32 << 10);
    const auto report = replay_trace(trace, std::nullopt);
    REQUIRE(report);
    CHECK(report->decisions > 0);
    CHECK(report->differing == 0);
  }
}

TEST_CASE("what can't be written stops the recording, once") {
  Recorded recorded(1000);
  recorded.tick();
  CHECK(recorded.trouble.find("is more than a file may have") != std::string::npos);
  recorded.trouble.clear();
  recorded.tick();
  CHECK(recorded.trouble.empty());
}

}  // namespace
}  // namespace imagefs_guard::replay_test
