#include "agent/actions/set_taint.h"

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/wire/kube_json.h"
#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::set_taint_test {
namespace {

constexpr const char* kNode = "/api/v1/nodes/n1";
constexpr const char* kKey = "example.io/guard";

std::string node_with(const std::string& taints) {
  return R"({"metadata":{"uid":"u1"},"spec":{"podCIDR":"10.0.0.0/24","taints":)" + taints + "}}";
}

std::string other_taint(const std::string& key) {
  return R"({"key":")" + key + R"(","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z"})";
}

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 1}};
  std::unique_ptr<SetTaintRunner> runner = std::make_unique<SetTaintRunner>(api, "n1");
  int done = 0;
  std::optional<Error> error;

  void begin(TaintEffect effect) {
    runner->start(SetTaint{kKey, "v", effect, ""}, [this](std::optional<Error> outcome) {
      ++done;
      error = std::move(outcome);
    });
  }

  void set(TaintEffect effect) {
    done = 0;
    begin(effect);
    loop.run_ready();
    CHECK(done == 1);
  }

  /// "a:NoExecute example.io/guard:NoSchedule"
  std::string taints() {
    const Result<Node> node = parse_node(server.get(kNode));
    REQUIRE(node);
    std::string text;
    for (const Taint& taint : node->taints) {
      text += (text.empty() ? "" : " ") + taint.key + ":" + taint.effect;
    }
    return text;
  }

  /// Somebody else adds a taint before each of the next `times` writes.
  void race(int times) {
    if (times == 0) {
      return;
    }
    server.before_next_write([this, times] {
      server.put(kNode, node_with("[" + other_taint("race-" + std::to_string(times)) + "]"));
      race(times - 1);
    });
  }
};

}  // namespace

TEST_CASE("our taint comes, changes its effect and goes; the others stay as they are") {
  World world;
  world.server.put(kNode, node_with("[" + other_taint("a") + "]"));
  world.set(TaintEffect::PreferNoSchedule);
  CHECK(world.taints() == "a:NoExecute example.io/guard:PreferNoSchedule");
  world.set(TaintEffect::NoSchedule);
  CHECK(world.taints() == "a:NoExecute example.io/guard:NoSchedule");
  world.set(TaintEffect::NoSchedule);
  CHECK(world.taints() == "a:NoExecute example.io/guard:NoSchedule");
  world.set(TaintEffect::None);
  CHECK(world.taints() == "a:NoExecute");
  CHECK_FALSE(world.error.has_value());
  CHECK(world.server.get(kNode).find("timeAdded") != std::string::npos);
  CHECK(world.server.get(kNode).find("podCIDR") != std::string::npos);
}

TEST_CASE("a node without any taint") {
  World world;
  world.server.put(kNode, "{}");
  world.set(TaintEffect::None);
  CHECK_FALSE(world.error.has_value());
  world.set(TaintEffect::NoSchedule);
  CHECK_FALSE(world.error.has_value());
  CHECK(world.taints() == "example.io/guard:NoSchedule");
}

TEST_CASE("somebody else writes in between: read again, lose nothing") {
  World world;
  world.server.put(kNode, node_with("[]"));
  world.race(2);
  world.set(TaintEffect::NoSchedule);
  CHECK_FALSE(world.error.has_value());
  CHECK(world.taints() == "race-1:NoExecute example.io/guard:NoSchedule");
}

TEST_CASE("three lost races in a row go back to the planner") {
  World world;
  world.server.put(kNode, node_with("[]"));
  world.race(3);
  world.set(TaintEffect::NoSchedule);
  REQUIRE(world.error.has_value());
  CHECK(world.error->kind == ErrorKind::InvalidArgument);
  CHECK(world.taints() == "race-1:NoExecute");
}

TEST_CASE("a node of the same name that came in between is another one") {
  World world;
  world.server.put(kNode, node_with("[]"));
  world.server.before_next_write(
      [&] { world.server.put(kNode, R"({"metadata":{"uid":"u2"},"spec":{"taints":[]}})"); });
  world.set(TaintEffect::NoSchedule);
  CHECK_FALSE(world.error.has_value());  // read again, and meant for the node of this name
  CHECK(world.taints() == "example.io/guard:NoSchedule");
}

TEST_CASE("a node that is gone has no taint") {
  World world;
  world.set(TaintEffect::None);
  CHECK_FALSE(world.error.has_value());
  world.set(TaintEffect::NoSchedule);
  REQUIRE(world.error.has_value());
  CHECK(world.error->kind == ErrorKind::NotFound);
}

TEST_CASE("faults of the server end in an outcome, the next order succeeds") {
  struct Case {
    int status;  // 0 = no answer
    ErrorKind want;
  };

  for (const Case& c : {Case{403, ErrorKind::PermissionDenied},
                        Case{429, ErrorKind::Unavailable},
                        Case{500, ErrorKind::Unavailable},
                        Case{0, ErrorKind::DeadlineExceeded}}) {
    CAPTURE(c.status);
    World world;
    world.server.put(kNode, node_with("[]"));
    if (c.status == 0) {
      world.server.break_next(1, ErrorKind::DeadlineExceeded);
    } else {
      world.server.fail_next(1, c.status);
    }
    world.set(TaintEffect::NoSchedule);
    REQUIRE(world.error.has_value());
    CHECK(world.error->kind == c.want);
    CHECK(world.taints().empty());
    world.loop.advance(std::chrono::seconds(2));
    world.set(TaintEffect::NoSchedule);
    CHECK_FALSE(world.error.has_value());
    CHECK(world.taints() == "example.io/guard:NoSchedule");
  }
}

TEST_CASE("a conflict on the write is a lost race too, a denial is not") {
  for (const int status : {409, 403}) {
    CAPTURE(status);
    World world;
    world.server.put(kNode, node_with("[]"));
    world.begin(TaintEffect::NoSchedule);
    world.loop.defer([&] { world.server.fail_next(1, status); });  // behind the read
    world.loop.run_ready();
    CHECK(world.error.has_value() == (status == 403));
    CHECK(world.taints() == (status == 403 ? "" : "example.io/guard:NoSchedule"));
  }
}

TEST_CASE("a newer order replaces the one under way; a destroyed runner says nothing") {
  World world;
  world.server.put(kNode, node_with("[]"));
  world.begin(TaintEffect::NoSchedule);
  world.begin(TaintEffect::PreferNoSchedule);
  CHECK(world.done == 1);
  REQUIRE(world.error.has_value());
  CHECK(world.error->kind == ErrorKind::Cancelled);
  world.loop.run_ready();
  CHECK(world.done == 2);
  CHECK(world.taints() == "example.io/guard:PreferNoSchedule");

  world.begin(TaintEffect::None);
  world.runner.reset();
  world.loop.run_ready();
  CHECK(world.done == 2);
}

}  // namespace imagefs_guard::set_taint_test
