#include "agent/core/coordinator.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "agent/core/drain.h"

namespace imagefs_guard::coordinator_test {
namespace {

template <typename T>
std::vector<T> actions_of(const CoordinatorDecision& decision) {
  std::vector<T> found;
  for (const CoordinatorAction& action : decision.actions) {
    if (const T* one = std::get_if<T>(&action)) {
      found.push_back(*one);
    }
  }
  return found;
}

Job held_job() {
  HoldRecord hold{.node = "n1",
                  .node_uid = "nu",
                  .pod = "p",
                  .pod_uid = "pu",
                  .since = WallTime{std::chrono::hours(1)},
                  .resume_by = WallTime{std::chrono::hours(2)},
                  .image = "etl"};
  hold.token = hold_token(hold);
  return Job{.namespace_name = "ns",
             .name = "j",
             .uid = "ju",
             .suspend = true,
             .hold_text = "text",
             .hold = hold};
}

/// A coordinator that is asked again and again.
struct Rounds {
  ClusterSnapshot snapshot;
  CoordinatorMemory memory;

  Rounds() {
    snapshot.taken_at = MonotonicTime{} + std::chrono::hours(1);
    snapshot.wall_time = WallTime{} + std::chrono::hours(1);
    snapshot.held_jobs.emplace();
    snapshot.nodes.emplace();
    snapshot.leases.emplace();
    snapshot.agent_nodes.emplace();
  }

  CoordinatorDecision next(Duration later = std::chrono::seconds(30)) {
    snapshot.taken_at += later;
    snapshot.wall_time += later;
    CoordinatorDecision decision = decide_coordinator(snapshot, memory);
    CHECK(decision == decide_coordinator(snapshot, memory));
    for (const CoordinatorAction& action : decision.actions) {
      CHECK_FALSE(describe(action).empty());
      CHECK_FALSE(action_key(action).empty());
    }
    memory = decision.memory;
    return decision;
  }

  void check_pod(bool gone) {
    snapshot.pod_checks = {{.namespace_name = "ns", .name = "p", .uid = "pu", .gone = gone}};
  }
};

}  // namespace

TEST_CASE("a held Job is resumed once its pod is gone for certain") {
  Rounds rounds;
  rounds.snapshot.held_jobs = {held_job()};
  auto decision = rounds.next();
  CHECK(actions_of<ConfirmPodGone>(decision).size() == 1);
  CHECK(actions_of<ResumeJob>(decision).empty());

  rounds.check_pod(false);
  decision = rounds.next();
  CHECK(actions_of<ConfirmPodGone>(decision).size() == 1);  // asked again
  CHECK(actions_of<ResumeJob>(decision).empty());

  rounds.check_pod(true);
  decision = rounds.next();
  const auto resumes = actions_of<ResumeJob>(decision);
  REQUIRE(resumes.size() == 1);
  CHECK(resumes[0].hold_text == "text");
  CHECK(resumes[0].pod.uid == "pu");
  CHECK(actions_of<EmitEvent>(decision).size() == 1);
}

TEST_CASE("what somebody else has touched is left alone, and said once") {
  struct Case {
    const char* name;
    void (*change)(Job&);
  };

  for (const Case& c : {Case{"edited", [](Job& j) { j.hold->pod = "q"; }},
                        Case{"unreadable", [](Job& j) { j.hold->version = 0; }},
                        Case{"newer", [](Job& j) { j.hold->version = 3; }},
                        Case{"no record, only the label", [](Job& j) { j.hold.reset(); }},
                        Case{"resumed", [](Job& j) { j.suspend = false; }},
                        Case{"failed", [](Job& j) { j.failed_for_good = true; }},
                        Case{"complete", [](Job& j) { j.complete = true; }},
                        Case{"being deleted", [](Job& j) { j.deleting = true; }}}) {
    CAPTURE(c.name);
    Rounds rounds;
    rounds.snapshot.held_jobs = {held_job()};
    c.change(rounds.snapshot.held_jobs->front());
    rounds.check_pod(true);
    const auto decision = rounds.next();
    CHECK(actions_of<ResumeJob>(decision).empty());
    CHECK(actions_of<ConfirmPodGone>(decision).empty());
    CHECK(actions_of<EmitEvent>(decision).size() == 1);
    CHECK(decision.left_alone.size() == 1);
    CHECK(actions_of<EmitEvent>(rounds.next()).empty());
  }
}

TEST_CASE("a pod that won't go keeps its Job suspended, past its time with an Event") {
  Rounds rounds;
  rounds.snapshot.held_jobs = {held_job()};
  rounds.check_pod(false);
  CHECK(actions_of<EmitEvent>(rounds.next()).empty());
  const auto late = rounds.next(std::chrono::hours(2));
  REQUIRE(actions_of<EmitEvent>(late).size() == 1);
  CHECK(actions_of<EmitEvent>(late)[0].event_reason == "JobHoldExpired");
  CHECK(actions_of<ResumeJob>(late).empty());
}

TEST_CASE("failed and running resumes are not ordered again at once") {
  Rounds rounds;
  rounds.snapshot.held_jobs = {held_job()};
  rounds.check_pod(true);
  CHECK(actions_of<ResumeJob>(rounds.next()).size() == 1);
  rounds.snapshot.running = {"resume:ju"};
  CHECK(actions_of<ResumeJob>(rounds.next()).empty());
  rounds.snapshot.running.clear();
  rounds.snapshot.outcomes = {{.key = "resume:ju", .error = Error{ErrorKind::Unavailable, "503"}}};
  CHECK(actions_of<ResumeJob>(rounds.next(std::chrono::seconds(1))).empty());
  rounds.snapshot.outcomes.clear();
  CHECK(actions_of<ResumeJob>(rounds.next(std::chrono::seconds(6))).size() == 1);
}

TEST_CASE("a node whose agent is gone is cleaned; one with an agent never") {
  Rounds rounds;
  rounds.snapshot.nodes = {{"alive", "1"}, {"podless", "2"}, {"silent", "3"}};
  rounds.snapshot.agent_nodes = {"alive", "silent"};
  int renewals = 0;
  std::vector<std::string> cleaned;
  for (int i = 0; i < 12; ++i) {
    rounds.snapshot.leases = {
        {"alive", std::to_string(++renewals)}, {"podless", "x"}, {"silent", "y"}};
    for (const CleanNode& clean : actions_of<CleanNode>(rounds.next())) {
      cleaned.push_back(clean.node);
    }
  }
  REQUIRE_FALSE(cleaned.empty());
  CHECK(cleaned.front() == "podless");
  CHECK(std::ranges::count(cleaned, "alive") == 0);
  CHECK(std::ranges::count(cleaned, "silent") > 0);
}

TEST_CASE("a roll-out of the agents and an outage of one list clean nothing") {
  Rounds rounds;
  rounds.snapshot.nodes = {MarkedNode{"n", "1"}};
  for (int i = 0; i < 40; ++i) {
    rounds.snapshot.leases = {AgentLease{"n", std::to_string(i)}};
    rounds.snapshot.agent_nodes =
        i % 4 < 3 ? std::vector<std::string>{} : std::vector<std::string>{"n"};
    CHECK(actions_of<CleanNode>(rounds.next()).empty());
  }
  rounds.snapshot.agent_nodes.reset();
  CHECK(actions_of<CleanNode>(rounds.next(std::chrono::hours(1))).empty());
}

TEST_CASE("a coordinator that has just begun waits before it calls an agent gone") {
  Rounds rounds;
  rounds.snapshot.nodes = {MarkedNode{"n", "1"}};
  CHECK(actions_of<CleanNode>(rounds.next()).empty());
  CHECK(actions_of<CleanNode>(rounds.next(std::chrono::minutes(1))).empty());
  CHECK(actions_of<CleanNode>(rounds.next(std::chrono::minutes(1))).size() == 1);
}

TEST_CASE("a thousand nodes at once are worked off in turns") {
  Rounds rounds;
  for (int i = 0; i < 1000; ++i) {
    rounds.snapshot.nodes->push_back({"n" + std::to_string(i), "u"});
  }
  (void)rounds.next();
  CHECK(rounds.next(std::chrono::minutes(3)).actions.size() == 50);
  CHECK(rounds.next(std::chrono::seconds(1)).actions.size() == 50);
}

}  // namespace imagefs_guard::coordinator_test
