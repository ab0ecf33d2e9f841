#include "agent/actions/node_patch.h"

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>

#include "agent/actions/set_condition.h"
#include "agent/actions/set_node_metadata.h"
#include "agent/wire/kube_json.h"
#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::node_patch_test {
namespace {

constexpr const char* kNode = "/api/v1/nodes/n1";

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 1}};
  SetNodeMetadataRunner metadata{api, "n1"};
  SetConditionRunner condition{api, "n1"};
  int done = 0;
  std::optional<Error> error;

  World() {
    server.put(kNode, R"({"metadata":{"labels":{"zone":"a","imagefs-guard.io/old":"1"}},"status":{
      "conditions":[{"type":"DiskPressure","status":"True"}]}})");
  }

  ActionDone outcome() {
    return [this](std::optional<Error> result) {
      ++done;
      error = std::move(result);
    };
  }

  Node node() {
    const Result<Node> parsed = parse_node(server.get(kNode));
    REQUIRE(parsed);
    return *parsed;
  }
};

}  // namespace

TEST_CASE("set_node_metadata adds, replaces and removes; other keys stay") {
  World world;
  SetNodeMetadata action;
  action.labels = {{"imagefs-guard.io/stage", "guard"}, {"imagefs-guard.io/old", std::nullopt}};
  action.annotations = {{"imagefs-guard.io/status", "{}"}};
  for (int i = 0; i < 2; ++i) {
    world.metadata.start(action, world.outcome());
    world.loop.run_ready();
    CHECK_FALSE(world.error.has_value());
    CHECK(world.node().labels ==
          std::map<std::string, std::string>{{"zone", "a"}, {"imagefs-guard.io/stage", "guard"}});
    CHECK(world.node().annotations ==
          std::map<std::string, std::string>{{"imagefs-guard.io/status", "{}"}});
  }
  CHECK(world.done == 2);
}

TEST_CASE("set_condition leaves the kubelet's conditions and its own transition time") {
  World world;
  SetCondition action{ConditionStatus::True, "PredictedPullExceedsHeadroom", "m1", true, ""};
  world.condition.start(action, world.outcome());
  world.loop.run_ready();
  CHECK(world.node().disk_pressure);
  const std::string began = "2026-01-02T03:04:05Z";
  CHECK(world.node().risk_condition ==
        RiskCondition{ConditionStatus::True, "PredictedPullExceedsHeadroom", "m1", began});

  world.loop.advance(std::chrono::minutes(5));
  action.transition = false;
  action.message = "m2";
  world.condition.start(action, world.outcome());
  world.loop.run_ready();
  CHECK(world.node().risk_condition ==
        RiskCondition{ConditionStatus::True, "PredictedPullExceedsHeadroom", "m2", began});
  CHECK(world.server.get(kNode).find(R"("lastHeartbeatTime":"2026-01-02T03:09:05Z")") !=
        std::string::npos);
}

TEST_CASE("a failure is the outcome, and nothing is tried again") {
  World world;
  world.server.fail_next(1, 500);
  world.condition.start({}, world.outcome());
  world.loop.run_ready();
  REQUIRE(world.error.has_value());
  CHECK(world.error->kind == ErrorKind::Unavailable);
  CHECK(world.server.request_count() == 1);
  world.server.remove(kNode);
  world.metadata.start({}, world.outcome());
  world.loop.run_ready();
  REQUIRE(world.error.has_value());
  CHECK(world.error->kind == ErrorKind::NotFound);
}

TEST_CASE("a newer patch replaces the one under way; a destroyed one says nothing") {
  World world;
  auto patch = std::make_unique<NodePatch>(world.api, "n1", "");
  const std::string label = R"({"metadata":{"labels":{"x":")";
  patch->start(KubeVerb::MergePatch, label + R"(1"}}})", world.outcome());
  patch->start(KubeVerb::MergePatch, label + R"(2"}}})", world.outcome());
  CHECK(world.done == 1);
  CHECK(world.error.has_value());
  world.loop.run_ready();
  CHECK(world.done == 2);
  CHECK(world.node().labels.at("x") == "2");
  patch->start(KubeVerb::MergePatch, "{}", world.outcome());
  patch.reset();
  world.loop.run_ready();
  CHECK(world.done == 2);
}

}  // namespace imagefs_guard::node_patch_test
