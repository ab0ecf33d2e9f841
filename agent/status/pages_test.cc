#include "agent/status/pages.h"

#include <doctest/doctest.h>

#include "agent/status/metrics.h"
#include "agent/status/readiness.h"

namespace imagefs_guard::pages_test {

namespace {

/// A node that is well, and what the agent has counted there.
struct World {
  Decision decision;
  NodeSnapshot snapshot;
  Policy policy;
  AgentCounters counters;
  ApiRequestCounts api = {{{"PATCH", "nodes", 200}, 3}, {{"WATCH", "pods", 0}, 1}};
  ApiRequestCounts kubelet = {{{"GET", "configz", 403}, 2}};
  std::map<int, std::uint64_t> registry = {{0, 1}, {429, 4}};
  PolicyView policy_file;
  Duration decision_age = std::chrono::seconds(1);
  bool decided = true;
  std::vector<ProbeView> probes = {{"filesystem", "", {}},
                                   {"kubelet", "", {}},
                                   {"node", "", {}},
                                   {"pods", "", {}},
                                   {"runtime", "", {}}};

  [[nodiscard]] StatusView view() const {
    return {.decision = decision,
            .snapshot = snapshot,
            .policy = policy,
            .counters = counters,
            .api_requests = api,
            .kubelet_requests = kubelet,
            .registry_requests = registry,
            .version = "1.2.3",
            .decided = decided,
            .decision_age = decision_age,
            .decision_age_limit = std::chrono::seconds(30),
            .probes = probes,
            .policy_file = policy_file,
            .process = {}};
  }

  [[nodiscard]] PageReply get(const std::string& path, bool verbose = false) const {
    PageRequest request{.path = path, .query = {}, .accept = {}};
    if (verbose) {
      request.query.emplace_back("verbose", "");
    }
    return answer_page(request, view());
  }

  void blind(const std::string& name, const std::string& why) {
    for (ProbeView& probe : probes) {
      if (probe.name == name) {
        probe.error = why;
      }
    }
  }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("liveness looks at the ticks alone") {
  World world;
  for (const char* name : {"filesystem", "kubelet", "node", "pods", "runtime"}) {
    world.blind(name, "gone");
  }
  world.decided = false;
  CHECK(world.get("/livez").status == 200);
  CHECK(world.get("/healthz").status == 200);
  world.decision_age = std::chrono::seconds(31);
  CHECK(world.get("/livez").status == 503);
}

TEST_CASE("readiness needs what judging and holding needs") {
  struct Case {
    const char* probe;
    int status;
  };

  for (const Case& c : {Case{"filesystem", 503},
                        Case{"kubelet", 200},
                        Case{"node", 503},
                        Case{"pods", 503},
                        Case{"runtime", 503}}) {
    CAPTURE(c.probe);
    World world;
    CHECK(world.get("/readyz").status == 200);
    CHECK(world.get("/readyz").body == "ok\n");
    world.blind(c.probe, "connection\nrefused");
    const PageReply reply = world.get("/readyz", true);
    CHECK(reply.status == c.status);
    CHECK(has(reply.body,
              std::string("[-]") + c.probe + (c.status == 200 ? " (does not count)" : "") +
                  ": connection refused\n"));
  }
  World world;
  world.decided = false;
  CHECK(world.get("/readyz").status == 503);
}

TEST_CASE("a roll-out goes on while a registry is down or a policy was refused") {
  World world;
  world.snapshot.resolved = {{.image = "secret.example/name",
                              .manifest_digest = {},
                              .error = Error{ErrorKind::Unavailable, "down"}}};
  world.policy_file.refusal = "line 3: unknown key mod";
  const PageReply reply = world.get("/readyz", true);
  CHECK(reply.status == 200);
  CHECK(has(reply.body, "[-]registry (does not count): 1 of 1 images not known\n"));
  CHECK(has(reply.body, "[-]policy (does not count): line 3: unknown key mod\n"));
  CHECK(has(reply.body, "[+]runtime ok\n"));
  CHECK_FALSE(has(reply.body, "secret.example"));
}

TEST_CASE("other paths lead nowhere") {
  const World world;
  for (const char* path : {"/metrics/", "/livez/x", "/etc/passwd", "/../x", "/index.html"}) {
    CAPTURE(path);
    CHECK(world.get(path).status == 404);
  }
  CHECK(has(world.get("/").body, "/metrics"));
}

TEST_CASE("metrics say what was decided and counted") {
  World world;
  world.decision.node.image_filesystem =
      Filesystem{.capacity_bytes = 20 << 20, .available_bytes = 9 << 20};
  world.decision.node.floor.bytes = 2 << 20;
  world.decision.node.headroom_bytes = -5;
  world.decision.node.stage = Stage::Guard;
  world.decision.pulls = {{.image = "secret.example/name:v1", .state = PullState::Held},
                          {.image = "secret.example/two:v1", .state = PullState::Held}};
  world.decision.pulls[0].demand.download_bytes = 100;
  world.decision.pulls[1].demand.unpack_high_bytes = 11;
  world.snapshot.holds = {{.state = HoldState::Held}, {.state = HoldState::Opening}};
  const std::string text = world.get("/metrics").body;
  for (const char* line : {"imagefs_guard_imagefs_available_bytes 9437184\n",
                           "imagefs_guard_imagefs_size_bytes 20971520\n",
                           "imagefs_guard_imagefs_floor_bytes 2097152\n",
                           "imagefs_guard_headroom_bytes -5\n",
                           "imagefs_guard_stage{stage=\"guard\"} 1\n",
                           "imagefs_guard_stage{stage=\"clear\"} 0\n",
                           "imagefs_guard_pulls{state=\"held\"} 2\n",
                           "imagefs_guard_demand_bytes{state=\"held\"} 111\n",
                           "imagefs_guard_held_pulls 1\n",
                           "imagefs_guard_registry_requests_total{code=\"429\"} 4\n",
                           "imagefs_guard_registry_requests_total{code=\"none\"} 1\n",
                           "imagefs_guard_apiserver_requests_total{code=\"200\",resource=\"nodes\","
                           "verb=\"PATCH\"} 3\n",
                           "imagefs_guard_build_info{version=\"1.2.3\"} 1\n",
                           "imagefs_guard_policy_in_force 1\n",
                           "imagefs_guard_probe_up{probe=\"runtime\"} 1\n"}) {
    CAPTURE(line);
    CHECK(has(text, std::string("\n") + line));
  }
  CHECK_FALSE(has(text, "secret.example"));
}

TEST_CASE("what was not observed is absent") {
  const World world;
  const std::string text = world.get("/metrics").body;
  CHECK_FALSE(has(text, "imagefs_guard_imagefs_available_bytes"));
  CHECK_FALSE(has(text, "imagefs_guard_headroom_bytes"));
  CHECK_FALSE(has(text, "imagefs_guard_drains"));
  CHECK(has(text, "imagefs_guard_pull_cancels_total{result=\"ok\"} 0\n"));
}

}  // namespace imagefs_guard::pages_test
