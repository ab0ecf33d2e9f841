#include "agent/commands/coordinator.h"

#include <doctest/doctest.h>

#include "agent/core/drain.h"
#include "agent/wire/drain_json.h"
#include "agent/wire/kube_json.h"
#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::coordinator_test {
namespace {

constexpr const char* kPod = "/api/v1/namespaces/ns/pods/p";
constexpr const char* kJob = "/apis/batch/v1/namespaces/ns/jobs/j";
constexpr const char* kLeases = "/apis/coordination.k8s.io/v1/namespaces/imagefs-guard/leases/";
constexpr const char* kAgents = "/api/v1/namespaces/imagefs-guard/pods/";

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 1}};
  std::unique_ptr<Coordinator> coordinator = make("c-1");

  std::unique_ptr<Coordinator> make(const std::string& identity) {
    auto made = std::make_unique<Coordinator>(
        api, CoordinatorSettings{.identity = identity, .taint_key = "k"});
    made->start();
    return made;
  }

  void put_held_job() {
    HoldRecord hold{.node = "n1",
                    .node_uid = "nu",
                    .pod = "p",
                    .pod_uid = "pu",
                    .since = WallTime{std::chrono::seconds(1'767'323'045)},
                    .resume_by = WallTime{std::chrono::seconds(1'767'323'645)},
                    .image = "etl"};
    hold.token = hold_token(hold);
    std::string text;
    for (const char c : hold_record_text(hold)) {
      text += c == '"' ? std::string("\\\"") : std::string(1, c);
    }
    server.put(kJob,
               R"({"metadata":{"namespace":"ns","name":"j","uid":"ju",
                    "labels":{"imagefs-guard.io/hold":"true"},
                    "annotations":{"imagefs-guard.io/hold":")" +
                   text + R"("}},"spec":{"suspend":true}})");
  }

  void put_node() {
    server.put("/api/v1/nodes/n1",
               R"({"metadata":{"uid":"nu","labels":{"imagefs-guard.io/stage":"guard","a":"b"},
                    "annotations":{"imagefs-guard.io/status":"{}"}},
                   "spec":{"taints":[{"key":"k","effect":"NoSchedule"},{"key":"o"}]},
                   "status":{"conditions":[{"type":"ImageFilesystemRisk","status":"True"}]}})");
  }

  void put_agent() {
    server.put(std::string(kAgents) + "a",
               R"({"metadata":{"namespace":"imagefs-guard","labels":{
                    "app.kubernetes.io/name":"imagefs-guard",
                    "app.kubernetes.io/component":"agent"}},
                   "spec":{"nodeName":"n1"},"status":{"phase":"Running"}})");
  }

  void renew_agent(int number) {
    server.put(std::string(kLeases) + "imagefs-guard.io-n1",
               R"({"metadata":{"namespace":"imagefs-guard"},"spec":{"renewTime":")" +
                   std::to_string(number) + R"("}})");
  }

  bool suspended() { return parse_job(server.get(kJob)).value().suspend; }

  Node node() { return parse_node(server.get("/api/v1/nodes/n1")).value(); }
};

}  // namespace

TEST_CASE("a Job whose agent died is resumed once its pod is gone, within a minute") {
  World world;
  world.put_held_job();
  world.server.put(kPod, R"({"metadata":{"namespace":"ns","uid":"pu"}})");
  world.loop.advance(std::chrono::minutes(3));
  CHECK(world.suspended());
  world.server.remove(kPod);
  world.loop.advance(std::chrono::minutes(1));
  CHECK_FALSE(world.suspended());
  CHECK(world.server.paths("/apis/events.k8s.io/v1/namespaces/ns/events").size() == 1);
}

TEST_CASE("only the elected one acts; the next one goes on where it stopped") {
  World world;
  world.loop.advance(std::chrono::seconds(10));
  auto second = world.make("c-2");
  world.coordinator->shut_down([] {});
  world.loop.advance(std::chrono::seconds(1));
  world.put_held_job();
  world.loop.advance(std::chrono::minutes(2));
  CHECK_FALSE(world.suspended());
}

TEST_CASE("the API server fails for a while: nothing is lost") {
  World world;
  world.put_held_job();
  world.server.fail_next(40, 503);
  world.loop.advance(std::chrono::minutes(10));
  CHECK_FALSE(world.suspended());
}

TEST_CASE("a node without an agent is cleaned, one with an agent keeps its marks") {
  World world;
  world.put_node();
  world.put_agent();
  for (int i = 0; i < 20; ++i) {
    world.renew_agent(i);
    world.loop.advance(std::chrono::minutes(1));
  }
  CHECK(world.node().labels.contains("imagefs-guard.io/stage"));
  CHECK(world.node().taints.size() == 2);

  world.server.remove(std::string(kAgents) + "a");
  world.loop.advance(std::chrono::minutes(4));
  CHECK(world.node().labels == std::map<std::string, std::string>{{"a", "b"}});
  CHECK(world.node().annotations.empty());
  CHECK(world.node().taints == std::vector<Taint>{{"o", "", ""}});
  CHECK_FALSE(world.node().risk_condition.has_value());
}

}  // namespace imagefs_guard::coordinator_test
