// The runners of the drain against a small API server: what they write, what they leave alone.
#include <doctest/doctest.h>

#include <functional>
#include <optional>
#include <string>

#include "agent/actions/confirm_pod_gone.h"
#include "agent/actions/delete_job.h"
#include "agent/actions/delete_pod.h"
#include "agent/actions/fetch_job.h"
#include "agent/actions/mark_disruption.h"
#include "agent/actions/record_drain.h"
#include "agent/actions/resume_job.h"
#include "agent/actions/suspend_job.h"
#include "agent/core/drain.h"
#include "agent/wire/drain_json.h"
#include "agent/wire/kube_json.h"
#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::drain_actions_test {
namespace {

constexpr const char* kPod = "/api/v1/namespaces/ns/pods/p";
constexpr const char* kJob = "/apis/batch/v1/namespaces/ns/jobs/j";
constexpr const char* kNode = "/api/v1/nodes/n1";
constexpr const char* kPending =
    R"({"metadata":{"namespace":"ns","uid":"pu"},"status":{"phase":"Pending"}})";

const NamedObject kPodName{"ns", "p", "pu"};
const NamedObject kJobName{"ns", "j", "ju"};

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 1}};
  Policy policy = default_policy();
  JobStore store{loop, [] {}};
  int done = 0;
  std::optional<Error> error;

  FetchJobRunner fetch_job{api, store};
  SuspendJobRunner suspend_job{api, store, policy};
  ResumeJobRunner resume_job{api, store};
  RecordDrainRunner record_drain{api, store, "n1"};
  MarkDisruptionRunner mark_disruption{api, policy};
  DeletePodRunner delete_pod{api, policy};
  ConfirmPodGoneRunner confirm_pod_gone{api, store};
  DeleteJobRunner delete_job{api, store};

  World() {
    server.put(kPod, kPending);
    server.put(kJob, R"({"metadata":{"namespace":"ns","uid":"ju"},"spec":{"backoffLimit":0}})");
    server.put(kNode, R"({"metadata":{"uid":"nu"}})");
  }

  template <typename Runner, typename Action>
  void begin(Runner& runner, const Action& action) {
    done = 0;
    error.reset();
    runner.start(action, [this](std::optional<Error> outcome) {
      ++done;
      error = std::move(outcome);
    });
  }

  /// "" for success, else the kind of the error.
  template <typename Runner, typename Action>
  std::string run(Runner& runner, const Action& action) {
    begin(runner, action);
    loop.run_ready();
    CHECK(done == 1);
    return error.has_value() ? to_string(error->kind) : "";
  }

  Job job() { return parse_job(server.get(kJob)).value(); }

  SuspendJob suspend() {
    HoldRecord hold{.node = "n1",
                    .node_uid = "nu",
                    .pod = "p",
                    .pod_uid = "pu",
                    .since = WallTime{std::chrono::seconds(1'767'323'045)},
                    .resume_by = WallTime{std::chrono::seconds(1'767'323'645)},
                    .image = "etl"};
    hold.token = hold_token(hold);
    return {.job = kJobName,
            .pod = kPodName,
            .resource_version = job().resource_version,
            .hold = hold,
            .drains = {{.capacity_bytes = 7, .owner_uid = "ju", .pod_uid = "pu"}}};
  }

  ResumeJob resume() { return {.job = kJobName, .pod = kPodName, .hold_text = job().hold_text}; }

  JobState state() {
    NodeSnapshot snapshot;
    store.contribute(snapshot);
    REQUIRE(snapshot.jobs.size() == 1);
    return snapshot.jobs[0];
  }

  void put_pod(const std::string& metadata, const std::string& status) {
    server.put(kPod,
               R"({"metadata":{"namespace":"ns","uid":"pu")" + metadata + R"(},"status":{)" +
                   status + "}}");
  }
};

}  // namespace

TEST_CASE("fetch: the Job, that there is none, and failures") {
  World world;
  CHECK(world.run(world.fetch_job, FetchJob{"ns", "j", ""}).empty());
  CHECK(world.state().job->uid == "ju");
  world.server.remove(kJob);
  CHECK(world.run(world.fetch_job, FetchJob{"ns", "j", ""}).empty());
  CHECK_FALSE(world.state().job.has_value());
  world.server.fail_next(1, 500);
  CHECK(world.run(world.fetch_job, FetchJob{"ns", "j", ""}) == "Unavailable");
}

TEST_CASE("suspend and resume: the Job ends as it began, its records tell the story") {
  World world;
  CHECK(world.run(world.suspend_job, world.suspend()).empty());
  Job job = world.job();
  CHECK(job.suspend);
  CHECK(job.labels.at("imagefs-guard.io/hold") == "true");
  REQUIRE(job.hold.has_value());
  CHECK(job.hold->token == hold_token(*job.hold));
  CHECK(job.drained.drains.size() == 1);
  CHECK(world.state().job->hold == job.hold);

  // While the pod is there it is not resumed.
  CHECK(world.run(world.resume_job, world.resume()) == "FailedPrecondition");
  CHECK(world.job().suspend);
  CHECK(world.state().doubtful);

  // Another pod of that name is another one.
  world.server.remove(kPod);
  world.server.put(kPod, R"({"metadata":{"uid":"pu2"}})");
  const std::string text = world.job().hold_text;
  CHECK(world.run(world.resume_job, world.resume()).empty());
  job = world.job();
  CHECK_FALSE(job.suspend);
  CHECK(job.hold_text.empty());
  CHECK_FALSE(job.labels.contains("imagefs-guard.io/hold"));
  CHECK(job.annotations.at("imagefs-guard.io/last-hold") == text);
  CHECK_FALSE(world.state().doubtful);
}

TEST_CASE("suspend: what is not as ordered is left alone") {
  struct Case {
    const char* name;
    std::function<void(World&)> change;
    const char* want;
  };

  const Case cases[] = {
      {"pod gone", [](World& w) { w.server.remove(kPod); }, "FailedPrecondition"},
      {"another pod",
       [](World& w) { w.server.put(kPod, R"({"metadata":{"uid":"x"}})"); },
       "FailedPrecondition"},
      {"pod going",
       [](World& w) { w.put_pod(R"(,"deletionTimestamp":"t")", R"("phase":"Pending")"); },
       "FailedPrecondition"},
      {"pod running",
       [](World& w) { w.put_pod("", R"("phase":"Running")"); },
       "FailedPrecondition"},
      {"an init container ran",
       [](World& w) {
         w.server.put(kPod,
                      R"({"metadata":{"uid":"pu"},"spec":{"initContainers":[{"name":"i"}]},
                          "status":{"phase":"Pending","initContainerStatuses":[
                             {"name":"i","state":{"terminated":{}}}]}})");
       },
       "FailedPrecondition"},
      {"pod protected",
       [](World& w) {
         w.put_pod(R"(,"annotations":{"imagefs-guard.io/protect":"true"})", R"("phase":"Pending")");
       },
       "FailedPrecondition"},
      {"job gone", [](World& w) { w.server.remove(kJob); }, "NotFound"},
      {"another job",
       [](World& w) { w.server.put(kJob, R"({"metadata":{"uid":"x"}})"); },
       "FailedPrecondition"},
      {"job changed",
       [](World& w) { w.server.put(kJob, R"({"metadata":{"uid":"ju"},"spec":{"a":1}})"); },
       "Aborted"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    World world;
    const SuspendJob action = world.suspend();
    c.change(world);
    const std::string before = world.server.get(kJob);
    CHECK(world.run(world.suspend_job, action) == c.want);
    CHECK(world.server.get(kJob) == before);
  }
}

TEST_CASE("suspend: somebody writes in between, the server fails, or does not answer") {
  World world;
  world.server.before_next_write(
      [&] { world.server.put(kJob, R"({"metadata":{"namespace":"ns","uid":"ju"}})"); });
  CHECK(world.run(world.suspend_job, world.suspend()) == "InvalidArgument");
  CHECK_FALSE(world.job().suspend);

  for (const int status : {403, 409, 410, 422, 429, 500, 504}) {
    CAPTURE(status);
    for (int request = 0; request < 3; ++request) {
      World failing;
      CHECK(failing.run(failing.fetch_job, FetchJob{"ns", "j", ""}).empty());
      failing.begin(failing.suspend_job, failing.suspend());
      // The pod's read, the Job's read, the write.
      std::function<void(int)> arm = [&](int left) {
        if (left == 0) {
          failing.server.fail_next(1, status);
        } else {
          failing.loop.defer([&arm, left] { arm(left - 1); });
        }
      };
      arm(request);
      failing.loop.run_ready();
      CHECK(failing.done == 1);
      CHECK(failing.error.has_value());
      CHECK_FALSE(failing.job().suspend);
      CHECK(failing.state().doubtful);
    }
  }
  World silent;
  silent.server.break_next(1, ErrorKind::DeadlineExceeded);
  CHECK(silent.run(silent.suspend_job, silent.suspend()) == "DeadlineExceeded");
}

TEST_CASE("resume: a hold that somebody has touched is left alone; a Job that is gone is fine") {
  World world;
  CHECK(world.run(world.suspend_job, world.suspend()).empty());
  world.server.remove(kPod);
  ResumeJob action = world.resume();
  action.hold_text += " ";
  CHECK(world.run(world.resume_job, action) == "FailedPrecondition");
  CHECK(world.job().suspend);

  world.server.before_next_write([&] {
    std::string json = world.server.get(kJob);
    json.replace(json.find("\"suspend\":true"), 14, "\"suspend\":false");
    world.server.put(kJob, json);
  });
  CHECK(world.run(world.resume_job, world.resume()) == "InvalidArgument");
  CHECK_FALSE(world.job().hold_text.empty());

  world.server.remove(kJob);
  CHECK(world.run(world.resume_job, action).empty());
  CHECK_FALSE(world.state().job.has_value());
}

TEST_CASE("drain record: on the Job, on the node") {
  World world;
  const SuspendJob like = world.suspend();
  CHECK(world
            .run(world.record_drain,
                 RecordDrain{.job = kJobName,
                             .resource_version = like.resource_version,
                             .drains = like.drains})
            .empty());
  CHECK(world.job().drained.drains == like.drains);
  CHECK_FALSE(world.job().suspend);
  CHECK(world.run(world.record_drain,
                  RecordDrain{.job = kJobName, .resource_version = "1", .drains = {}}) ==
        "Aborted");
  CHECK(world.run(world.record_drain, RecordDrain{.drains = like.drains}).empty());
  CHECK(parse_node(world.server.get(kNode))->drained.drains == like.drains);
}

TEST_CASE("mark, then delete: pinned by uid and version, never what has started") {
  World world;
  CHECK(world.run(world.delete_pod, DeletePod{.pod = kPodName, .marked = true}) ==
        "FailedPrecondition");
  CHECK(world.run(world.mark_disruption, MarkDisruption{kPodName, "too large", ""}).empty());
  const Result<Pod> marked = parse_pod(world.server.get(kPod));
  REQUIRE(marked);
  CHECK(marked->disruption_target);
  CHECK(world.run(world.delete_pod, DeletePod{.pod = kPodName, .marked = true}).empty());
  CHECK(world.server.get(kPod).empty());
  CHECK(world.server.last_delete() ==
        delete_pod_body({.uid = "pu", .resource_version = marked->resource_version}));
  // Gone already is done.
  CHECK(world.run(world.delete_pod, DeletePod{.pod = kPodName}).empty());
  CHECK(world.run(world.mark_disruption, MarkDisruption{kPodName, "", ""}).empty());
}

TEST_CASE("delete: it starts in between, or is another pod by now") {
  World world;
  world.server.before_next_write([&] { world.put_pod("", R"("phase":"Running")"); });
  CHECK(world.run(world.delete_pod, DeletePod{.pod = kPodName}) == "Aborted");
  CHECK_FALSE(world.server.get(kPod).empty());
  CHECK(world.run(world.delete_pod, DeletePod{.pod = kPodName}) == "FailedPrecondition");
  CHECK(world.run(world.mark_disruption, MarkDisruption{kPodName, "", ""}) == "FailedPrecondition");
  CHECK(world.run(world.delete_pod, DeletePod{.pod = {"ns", "p", "older"}}).empty());
  CHECK_FALSE(world.server.get(kPod).empty());

  // Only the grace period of a leaving pod; one that stays is its Job's.
  world.put_pod("", R"("phase":"Pending")");
  CHECK(world.run(world.delete_pod, DeletePod{.pod = kPodName, .leaving = true}) ==
        "FailedPrecondition");
  world.put_pod(R"(,"deletionTimestamp":"t")", R"("phase":"Pending")");
  CHECK(world.run(world.delete_pod, DeletePod{.pod = kPodName}).empty());
  CHECK_FALSE(world.server.get(kPod).empty());
  CHECK(world.run(world.delete_pod, DeletePod{.pod = kPodName, .leaving = true}).empty());
  CHECK(world.server.get(kPod).empty());
}

TEST_CASE("is it gone? Only the store's own answer counts") {
  World world;
  const auto answer = [&] {
    NodeSnapshot snapshot;
    world.store.contribute(snapshot);
    return !snapshot.pod_checks.empty() && snapshot.pod_checks[0].gone;
  };
  CHECK(world.run(world.confirm_pod_gone, ConfirmPodGone{kPodName, ""}).empty());
  CHECK_FALSE(answer());
  world.server.remove(kPod);
  world.server.break_next(1, ErrorKind::Unavailable);
  CHECK(world.run(world.confirm_pod_gone, ConfirmPodGone{kPodName, ""}) == "Unavailable");
  CHECK_FALSE(answer());
  CHECK(world.run(world.confirm_pod_gone, ConfirmPodGone{kPodName, ""}).empty());
  CHECK(answer());
  CHECK(world.server.urls().back().find('?') == std::string::npos);  // no resourceVersion: quorum
}

TEST_CASE("delete a Job: in the foreground, only as it was seen") {
  World world;
  const std::string version = world.job().resource_version;
  CHECK(world.run(world.delete_job, DeleteJob{kJobName, "1", ""}) == "Aborted");
  CHECK(world.run(world.delete_job, DeleteJob{{"ns", "j", "x"}, version, ""}) == "Aborted");
  CHECK(world.run(world.delete_job, DeleteJob{kJobName, version, ""}).empty());
  CHECK(world.server.get(kJob).empty());
  CHECK(world.server.last_delete().find("\"Foreground\"") != std::string::npos);
  CHECK(world.run(world.delete_job, DeleteJob{kJobName, version, ""}).empty());
}

TEST_CASE("runs at once are bounded; a destroyed runner says nothing") {
  World world;
  int refused = 0;
  auto runner = std::make_unique<FetchJobRunner>(world.api, world.store);
  for (int i = 0; i < 40; ++i) {
    runner->start(FetchJob{"ns", "j", ""}, [&](const std::optional<Error>& error) {
      CHECK(error->kind == ErrorKind::ResourceExhausted);
      ++refused;
    });
  }
  CHECK(refused == 8);
  runner.reset();
  world.loop.run_ready();
  CHECK(refused == 8);
}

}  // namespace imagefs_guard::drain_actions_test
