#include "probes/node.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::node_test {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr const char* kNode = "/api/v1/nodes/n1";

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 5}};
  NodeProbe probe{api, "n1"};
  NodeSnapshot snapshot;
  int changes = 0;

  void put(const std::string& pressure) {
    server.put(kNode,
               R"({"kind":"Node","status":{"conditions":[
      {"type":"DiskPressure","status":")" +
                   pressure + R"("}]}})");
  }

  void start() {
    probe.start([this] { ++changes; });
    loop.run_ready();
  }

  bool present() {
    probe.contribute(snapshot);
    return snapshot.node.has_value();
  }
};

}  // namespace

TEST_CASE("node: follows its own object only") {
  World world;
  world.server.put("/api/v1/nodes/n2", "{}");
  world.put("False");
  world.start();
  REQUIRE(world.present());
  CHECK(world.snapshot.node->name == "n1");
  CHECK_FALSE(world.snapshot.node->disk_pressure);
  world.changes = 0;
  world.server.put("/api/v1/nodes/n2", "{}");
  CHECK(world.changes == 0);
  world.put("False");  // a heartbeat
  CHECK(world.changes == 0);
  world.put("True");
  CHECK(world.changes == 1);
  REQUIRE(world.present());
  CHECK(world.snapshot.node->disk_pressure);
}

TEST_CASE("node: absent with a reason when it is not registered, or the server is away too long") {
  World world;
  world.start();
  CHECK_FALSE(world.present());
  CHECK(world.snapshot.probe_errors.at("node") == "the API server has no node n1");
  world.put("False");
  CHECK(world.present());
  CHECK(world.snapshot.probe_errors.empty());
  world.server.remove(kNode);
  CHECK_FALSE(world.present());
  world.put("False");
  CHECK(world.present());

  world.loop.advance(seconds(10));
  world.server.break_next(1000, ErrorKind::Unavailable);
  world.server.end_watches(Error{ErrorKind::Unavailable, "reset"});
  world.loop.advance(minutes(4));
  CHECK(world.present());
  world.loop.advance(minutes(2));
  CHECK_FALSE(world.present());
  CHECK(world.snapshot.probe_errors.contains("node"));
}

}  // namespace imagefs_guard::node_test
