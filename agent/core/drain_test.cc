#include "agent/core/drain.h"

#include <doctest/doctest.h>

#include "agent/core/decide.h"
#include "tests/unit/drain_world.h"

namespace imagefs_guard::drain_test {
namespace {

using testing::actions_of;
using testing::digest;
using testing::DrainWorld;
using testing::gib;
using testing::layer;
using testing::told;

}  // namespace

TEST_CASE("protocol S: suspended with its record, cancelled, gone, resumed; in under 15 s") {
  DrainWorld world;
  world.run(15);
  CHECK(world.suspends == 1);
  CHECK(world.resumes == 1);
  CHECK(world.executions == 1);
  CHECK(world.failures_counted == 0);
  CHECK_FALSE(world.job->suspend);
  CHECK(world.job->hold_text.empty());
  REQUIRE(world.job->drained.drains.size() == 1);
  CHECK(world.job->drained.drains[0].capacity_bytes == gib(2000));
  CHECK(world.node.snapshot_.pods->empty());
  CHECK(world.log.starts_with("fetch_job suspend"));
}

TEST_CASE("protocol S: nothing before the node's NoSchedule taint is acknowledged") {
  DrainWorld world;
  world.taint_works = false;
  world.run(60);
  CHECK(world.suspends == 0);
  CHECK(world.node.snapshot_.pods->size() == 1);
}

TEST_CASE("nobody is drained before the pull is stopped") {
  for (const HoldState state : {HoldState::Opening, HoldState::TooLate}) {
    DrainWorld world;
    world.hold_state = state;
    world.run(30);
    CHECK(world.suspends == 0);
    CHECK(world.log == "fetch_job ");
    world.hold_state = HoldState::Held;
    world.run(15);
    CHECK(world.suspends == 1);
    CHECK(world.executions == 1);
  }
  // What can't be held is cancelled instead, again and again.
  for (const HoldState state : {HoldState::NothingToHold, HoldState::Failed}) {
    DrainWorld world;
    world.hold_state = state;
    world.run(15);
    CHECK(world.suspends == 1);
  }
}

TEST_CASE("protocol S: the agent dies after any step, nothing is lost or doubled") {
  for (int death = 0; death <= 12; ++death) {
    CAPTURE(death);
    DrainWorld world;
    world.run(death);
    world.restart_agent();
    world.run(30);
    CHECK(world.failures_counted == 0);
    CHECK(world.suspends == 1);
    if (world.resumes == 0) {
      // The pod is gone and with it all that this agent could know: the coordinator's turn.
      CHECK(world.node.snapshot_.pods->empty());
      CHECK(world.job->suspend);
      CHECK(why_leave_hold(*world.job).empty());
    } else {
      CHECK(world.executions == 1);
      CHECK_FALSE(world.job->suspend);
    }
  }
}

TEST_CASE("protocol S: the next agent finishes what it finds under way") {
  DrainWorld world;
  world.pods_leave = false;
  world.run_until_suspended();
  world.run(2);
  REQUIRE(world.pod().deleting);
  world.restart_agent();
  world.run(5);
  CHECK(world.resumes == 0);
  world.pods_leave = true;
  world.run(10);
  CHECK(world.suspends == 1);
  CHECK(world.resumes == 1);
  CHECK(world.executions == 1);
}

TEST_CASE("protocol S: the same image is not drained twice from nodes of one capacity") {
  DrainWorld world;
  world.run(15);
  REQUIRE(world.suspends == 1);
  world.pod_comes_back("second");
  world.run(30);
  CHECK(world.suspends == 1);
  CHECK(world.node.snapshot_.pods->size() == 1);
  CHECK(told(world.events, "HeldInPlace") ==
        "stays held on this node: this image was drained before from a node of this capacity; "
        "needs a volume of 27 GiB");

  // A node of another capacity may try once more.
  DrainWorld larger;
  larger.job->drained.drains = {{.digest = digest(3'000'001),
                                 .capacity_bytes = gib(1000),
                                 .owner_uid = "job-uid",
                                 .pod_uid = "earlier"}};
  larger.run(15);
  CHECK(larger.suspends == 1);
  CHECK(larger.job->drained.drains.size() == 2);
}

TEST_CASE("protocol S: what somebody else did is left alone, and said") {
  struct Case {
    const char* name;
    void (*change)(Job&);
    const char* words;
  };

  const Case cases[] = {
      {"edited by hand", [](Job& j) { j.hold->resume_by += std::chrono::hours(1); }, "edited"},
      {"no JSON any more", [](Job& j) { j.hold.reset(); }, "can't be read"},
      {"a newer version", [](Job& j) { j.hold->version = 2; }, "version 2"},
      {"resumed by somebody", [](Job& j) { j.suspend = false; }, "somebody else has resumed"},
      {"finished", [](Job& j) { j.failed_for_good = true; }, "has ended"},
      {"deleted", [](Job& j) { j.deleting = true; }, "has ended"},
      {"of an earlier node of this name",
       [](Job& j) {
         j.hold->node_uid = "old";
         j.hold->token = hold_token(*j.hold);
       },
       "earlier node"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    DrainWorld world;
    world.run_until_suspended();
    c.change(*world.job);
    world.fetch_job();
    world.run(30);
    CHECK(world.resumes == 0);
    CHECK(told(world.events, "JobHoldLeftAlone").find(c.words) != std::string::npos);
  }
}

TEST_CASE("protocol S: a hold of another node is its own agent's") {
  DrainWorld world;
  world.run_until_suspended();
  world.job->hold->node = "node-b";
  world.job->hold->token = hold_token(*world.job->hold);
  world.fetch_job();
  world.run(30);
  CHECK(world.resumes == 0);
  CHECK(told(world.events, "JobHoldLeftAlone").empty());
}

TEST_CASE("protocol S: the pod's owner is not what it was") {
  struct Case {
    const char* name;
    void (*change)(DrainWorld&);
  };

  const Case cases[] = {
      {"vanished", [](DrainWorld& w) { w.job.reset(); }},
      {"of the same name, another one", [](DrainWorld& w) { w.job->uid = "other"; }},
      {"finished", [](DrainWorld& w) { w.job->complete = true; }},
      {"being deleted", [](DrainWorld& w) { w.job->deleting = true; }},
      {"suspended by somebody else", [](DrainWorld& w) { w.job->suspend = true; }},
      {"its drain record can't be read", [](DrainWorld& w) { w.job->drained.readable = false; }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    DrainWorld world;
    world.job_controller_works = false;
    c.change(world);
    world.run(30);
    CHECK(world.suspends == 0);
    CHECK(world.resumes == 0);
    CHECK_FALSE(told(world.events, "HeldInPlace").empty());
  }
}

TEST_CASE("protocol S: refused, failing and unanswered writes") {
  for (const ErrorKind kind : {ErrorKind::InvalidArgument,
                               ErrorKind::Aborted,
                               ErrorKind::NotFound,
                               ErrorKind::Unavailable,
                               ErrorKind::DeadlineExceeded,
                               ErrorKind::PermissionDenied}) {
    CAPTURE(std::string(to_string(kind)));
    for (const bool done_all_the_same : {false, true}) {
      DrainWorld world;
      world.fail = {.prefix = "suspend:", .kind = kind, .times = 2, .applied = done_all_the_same};
      world.run(kind == ErrorKind::PermissionDenied ? 700 : 40);
      CHECK(world.suspends == 1);
      CHECK(world.resumes == 1);
      CHECK(world.executions == 1);
    }
    DrainWorld world;
    world.fail = {.prefix = "resume:", .kind = kind, .times = 2, .applied = false};
    world.run(kind == ErrorKind::PermissionDenied ? 700 : 40);
    CHECK(world.resumes == 1);
    CHECK(world.executions == 1);
  }
}

TEST_CASE("protocol S: the pod that won't go keeps its Job suspended, and that is said") {
  DrainWorld world;
  world.pods_leave = false;
  world.run(11 * 60);
  CHECK(world.resumes == 0);
  CHECK(world.job->suspend);
  CHECK_FALSE(told(world.events, "JobHoldExpired").empty());
  CHECK(world.log.find("delete_pod") != std::string::npos);  // its grace period made shorter
  world.pods_leave = true;
  world.run(10);
  CHECK(world.resumes == 1);
}

TEST_CASE("protocol S: while the Job controller sleeps the pod is not deleted under its nose") {
  DrainWorld world;
  world.job_controller_works = false;
  world.run(60);
  CHECK(world.suspends == 1);
  CHECK(world.log.find("delete_pod") == std::string::npos);
  CHECK(world.failures_counted == 0);
  world.job_controller_works = true;
  world.run(10);
  CHECK(world.resumes == 1);
}

TEST_CASE("protocol P: recorded, marked, deleted; the Job counts no failure") {
  DrainWorld world;
  world.job->failure_rules = {
      {.action = FailureAction::Ignore, .conditions = {{.type = "DisruptionTarget"}}}};
  world.run(20);
  CHECK(world.log == "fetch_job record mark delete_pod ");
  CHECK(world.suspends == 0);
  CHECK(world.failures_counted == 0);
  CHECK(world.node.snapshot_.pods->empty());
}

TEST_CASE("a ReplicaSet's pod: recorded on the node, deleted, not twice") {
  DrainWorld world;
  world.pod().controller = OwnerReference{"apps/v1", "ReplicaSet", "rs", "rs-uid"};
  world.run(20);
  CHECK(world.log == "record delete_pod ");
  REQUIRE(world.node.snapshot_.node->drained.drains.size() == 1);
  CHECK(world.node.snapshot_.node->drained.drains[0].owner_uid == "rs-uid");
  CHECK(world.node.snapshot_.pods->empty());

  world.pod_comes_back("second");
  world.pod().controller = OwnerReference{"apps/v1", "ReplicaSet", "rs", "rs-uid"};
  world.run(20);
  CHECK(world.log == "record delete_pod ");
  CHECK_FALSE(told(world.events, "HeldInPlace").empty());
}

TEST_CASE("nobody is drained who must not be") {
  struct Case {
    const char* name;
    void (*change)(DrainWorld&);
  };

  const Case cases[] = {
      {"observe mode", [](DrainWorld& w) { w.policy.mode = Mode::Observe; }},
      {"drain is off", [](DrainWorld& w) { w.policy.drain_enabled = false; }},
      {"the kubelet's pressure",
       [](DrainWorld& w) { w.node.snapshot_.node->disk_pressure = true; }},
      {"two agents claim one node",
       [](DrainWorld& w) { w.node.snapshot_.rival_agent = "agent-x"; }},
      {"protected",
       [](DrainWorld& w) { w.pod().annotations["imagefs-guard.io/protect"] = "true"; }},
      {"started", [](DrainWorld& w) { w.pod().containers[0].started = true; }},
      {"bare", [](DrainWorld& w) { w.pod().controller.reset(); }},
      {"no node seen", [](DrainWorld& w) { w.node.snapshot_.node.reset(); }},
      {"no disk seen", [](DrainWorld& w) { w.node.snapshot_.filesystems.reset(); }},
      {"a protected pod waits for the same image",
       [](DrainWorld& w) {
         w.node.pod({.name = "hub", .image = "etl", .priority = 2'000'000'000});
       }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    DrainWorld world;
    world.kubelet_works = false;
    c.change(world);
    world.run(60);
    CHECK(world.suspends == 0);
    CHECK(world.log.find("delete") == std::string::npos);
    CHECK(world.log.find("mark") == std::string::npos);
  }
}

TEST_CASE("a pull that fits later is nobody's reason to move") {
  DrainWorld world;
  world.node.snapshot_.filesystems->front().available_bytes = gib(1600);
  world.node.image("big", 2, {layer(7, gib(200), gib(100))});
  world.node.pod({.name = "early", .image = "big", .priority = 10});
  world.node.lease("big-lease", 2).ingest(7, gib(1), gib(200));
  world.kubelet_works = false;
  world.run(30);
  CHECK(world.suspends == 0);
}

TEST_CASE("one drain at a time on a node") {
  DrainWorld world;
  world.pods_leave = false;
  world.node.pod({.name = "web", .image = "etl"});
  world.node.snapshot_.pods->back().controller =
      OwnerReference{"apps/v1", "ReplicaSet", "rs", "rs-uid"};
  world.run(60);
  CHECK(world.suspends + (world.log.find("record") == std::string::npos ? 0 : 1) == 1);
  world.pods_leave = true;
  world.run(60);
  CHECK(world.suspends == 1);
  CHECK(world.log.find("record") != std::string::npos);
  CHECK(world.node.snapshot_.pods->empty());
}

TEST_CASE("a run of an old Prefect worker is never let start once its worker has given up") {
  DrainWorld world;
  world.pod().labels = {{"prefect.io/flow-run-id", "r"}, {"prefect.io/version", "3.1.0"}};
  world.job->labels = world.pod().labels;
  world.kubelet_works = false;
  world.run(30);
  CHECK(world.suspends == 0);
  CHECK(told(world.events, "LegacyRunLost").empty());
  CHECK(told(world.events, "DeadlineAtRisk").find("the worker gives up after 60 s") !=
        std::string::npos);
  world.run(40);
  CHECK_FALSE(told(world.events, "LegacyRunLost").empty());

  // Space comes back: it fits, it stays held all the same, also by an agent that has just begun.
  world.node.snapshot_.filesystems->front().available_bytes = gib(1900);
  world.run(5);
  CHECK(world.node.snapshot_.holds.size() == 1);
  world.restart_agent();
  world.run(5);
  CHECK(world.node.snapshot_.holds.size() == 1);
  CHECK(world.releases == 0);
  CHECK(world.log.find("delete_job") == std::string::npos);

  world.policy.legacy_prefect_action = LegacyPrefectAction::DeleteJob;
  world.run(15);
  CHECK(world.log.find("delete_job") != std::string::npos);

  // A worker with an observer waits as long as it takes.
  DrainWorld observer;
  observer.pod().labels = {{"prefect.io/flow-run-id", "r"}, {"prefect.io/version", "3.1.0"}};
  observer.job->labels = {{"app.kubernetes.io/managed-by", "prefect"},
                          {"prefect.io/flow-run-id", "r"}};
  observer.run(30);
  CHECK(observer.suspends == 1);
}

TEST_CASE("hold tokens: a checksum in the form of a UUID") {
  HoldRecord record{.node = "n", .node_uid = "u", .pod = "p", .pod_uid = "pu", .image = "i"};
  const std::string token = hold_token(record);
  CHECK(token.size() == 36);
  CHECK(token[8] == '-');
  CHECK(token == hold_token(record));
  record.image = "j";
  CHECK(token != hold_token(record));
  CHECK(same_capacity(gib(2000), gib(2000) + 4096));
  CHECK_FALSE(same_capacity(gib(2000), gib(2100)));
}

}  // namespace imagefs_guard::drain_test
