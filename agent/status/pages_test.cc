#include "agent/status/pages.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

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
  SpaceHistory history;
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
            .history = history,
            .node_name = "node-a",
            .version = "1.2.3",
            .decided = decided,
            .decision_age = decision_age,
            .decision_age_limit = std::chrono::seconds(30),
            .probes = probes,
            .policy_file = policy_file,
            .process = {}};
  }

  [[nodiscard]] PageReply get(const std::string& path, const std::string& query = {}) const {
    PageRequest request{.path = path, .query = {}, .accept = {}};
    if (!query.empty()) {
      request.query.emplace_back(query, "");
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
    const PageReply reply = world.get("/readyz", "verbose");
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
  const PageReply reply = world.get("/readyz", "verbose");
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
}

TEST_CASE("the status has all that is known, and says what is not") {
  World world;
  auto status = nlohmann::json::parse(world.get("/status.json").body);
  CHECK(status["v"] == 1);
  CHECK(status["node"] == "node-a");
  CHECK(status["filesystem"].is_null());
  CHECK(status["space"].is_null());
  CHECK(status["findings"].is_null());
  CHECK(status["history"].empty());
  CHECK(status["pulls"].empty());

  world.decision.node.image_filesystem =
      Filesystem{.path = "/imagefs", .capacity_bytes = 20 << 20, .available_bytes = 9 << 20};
  world.decision.node.stage = Stage::Guard;
  world.snapshot.runtime = RuntimeState{};
  world.snapshot.wall_time = WallTime{} + std::chrono::hours(1);
  world.history.add({.at = world.snapshot.wall_time - std::chrono::seconds(30),
                     .available_bytes = std::int64_t{9} << 20});
  world.decision.memory.audit.looked_at = MonotonicTime{};
  world.decision.memory.audit.findings = {
      {.kind = FindingKind::GcTooLate, .sentence = "is so", .advice = "do this"}};
  world.decision.pulls = {{.manifest_digest = {.bytes = {1}},
                           .image = "etl",
                           .state = PullState::Held,
                           .verdict = Verdict::NeverFits,
                           .held = true,
                           .pods = {"a/1", "a/2", "a/3", "a/4", "a/5"},
                           .sentence = "needs much"}};
  world.snapshot.holds = {{.manifest_digest = {.bytes = {1}}, .state = HoldState::Held}};
  status = nlohmann::json::parse(world.get("/status.json").body);
  CHECK(status["stage"] == "guard");
  CHECK(status["filesystem"]["availableBytes"] == 9 << 20);
  CHECK(status["space"]["reclaimableBytes"].is_null());
  CHECK(status["space"]["otherBytes"] == 11 << 20);
  CHECK(status["history"] == nlohmann::json::parse("[[30,9,0,0,0]]"));
  CHECK(status["findings"][0]["advice"] == "do this");
  const nlohmann::json& pull = status["pulls"][0];
  CHECK(pull["pods"].size() == 4);
  CHECK(pull["podsMore"] == 1);
  CHECK(pull["heldSeconds"] == 0.0);
  CHECK(pull["verdict"] == "NeverFits");
  CHECK(status["reasons"][1] == "the pull of etl is held: it needs much");
  CHECK_FALSE(nlohmann::json::parse(world.get("/status.json", "now").body).contains("history"));
}

TEST_CASE("the status stays small and valid whatever the API says") {
  World world;
  world.decision.node.image_filesystem =
      Filesystem{.capacity_bytes = std::int64_t{1} << 46, .available_bytes = std::int64_t{1} << 45};
  for (int i = 0; i < 250; ++i) {
    PullReport pull{.image = std::string(4000, '\1'), .held = true};
    pull.pods.assign(20, "\xff\xfe" + std::string(400, '"'));
    pull.sentence = std::string(5000, '\\');
    world.decision.pulls.push_back(pull);
    world.decision.drains.push_back({.pod = std::string(300, '\2'),
                                     .owner = std::string(300, '"'),
                                     .method = "S",
                                     .sentence = std::string(900, '\3')});
  }
  for (std::size_t i = 0; i < kHistorySamples; ++i) {
    world.history.add({.available_bytes = std::int64_t{1} << 45,
                       .floor_bytes = std::int64_t{1} << 45,
                       .forecast_low_bytes = std::int64_t{1} << 45,
                       .forecast_high_bytes = std::int64_t{1} << 45});
  }
  const std::string text = world.get("/status.json").body;
  CHECK(text.size() < 64 << 10);
  const auto status = nlohmann::json::parse(text);
  CHECK(status["pulls"].size() + status["pullsMore"].get<std::size_t>() == 250);
  CHECK(status["drains"].size() + status["drainsMore"].get<std::size_t>() == 250);
}

TEST_CASE("the page holds the status, and nothing that is said there can leave its element") {
  World world;
  world.decision.pulls = {{.image = "</script><script>alert(1)</script><!--", .held = true}};
  const PageReply reply = world.get("/");
  CHECK(reply.content_type == "text/html; charset=utf-8");
  CHECK_FALSE(has(reply.body, "alert(1)</script>"));
  CHECK_FALSE(has(reply.body, "@STATUS@"));
  CHECK_FALSE(has(reply.body, "@SCRIPT_HASH@"));
  CHECK(has(reply.body, "script-src 'sha256-"));
  const std::string begin = "id=\"initial\">";
  const std::size_t from = reply.body.find(begin) + begin.size();
  const std::string embedded = reply.body.substr(from, reply.body.find("</script>", from) - from);
  CHECK(nlohmann::json::parse(embedded)["pulls"][0]["image"] == world.decision.pulls[0].image);
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
  world.decision.memory.audit.looked_at = MonotonicTime{};
  world.decision.memory.audit.findings = {{.kind = FindingKind::GcTooLate}};
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
                           "imagefs_guard_findings{finding=\"image_gc_too_late\"} 1\n",
                           "imagefs_guard_findings{finding=\"volume_wrong\"} 0\n",
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
  CHECK_FALSE(has(text, "imagefs_guard_findings"));
  CHECK(has(text, "imagefs_guard_pull_cancels_total{result=\"ok\"} 0\n"));
}

}  // namespace imagefs_guard::pages_test
