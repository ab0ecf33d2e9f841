#include "agent/kube/lease_keeper.h"

#include <doctest/doctest.h>

#include "agent/wire/lease_json.h"
#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::lease_keeper_test {
namespace {

constexpr const char* kPath = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l";

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 1}};

  std::unique_ptr<LeaseKeeper> keeper(const std::string& identity, bool elects) {
    auto made = std::make_unique<LeaseKeeper>(
        api,
        LeaseOptions{.namespace_name = "ns", .name = "l", .identity = identity, .elects = elects},
        [] {});
    made->start();
    loop.run_ready();
    return made;
  }

  std::string holder() {
    const Result<Lease> lease = parse_lease(server.get(kPath));
    return lease ? lease->holder : "none";
  }
};

}  // namespace

TEST_CASE("election: one holds, the other waits until it is dead or gives it back") {
  World world;
  auto first = world.keeper("a", true);
  CHECK(first->holding());
  auto second = world.keeper("b", true);
  CHECK_FALSE(second->holding());
  world.loop.advance(std::chrono::minutes(5));
  CHECK(first->holding());
  CHECK_FALSE(second->holding());
  CHECK(world.holder() == "a");

  first.reset();  // dies
  world.loop.advance(std::chrono::seconds(20));
  CHECK_FALSE(second->holding());
  world.loop.advance(std::chrono::seconds(40));
  CHECK(second->holding());
  CHECK(world.holder() == "b");

  bool released = false;
  second->release([&] { released = true; });
  world.loop.run_ready();
  CHECK(released);
  CHECK(world.holder().empty());
  CHECK(world.keeper("c", true)->holding());
}

TEST_CASE("an outage: no longer sure after the duration, sure again after the next renewal") {
  World world;
  auto keeper = world.keeper("a", true);
  world.server.fail_next(100, 500);
  world.loop.advance(std::chrono::seconds(20));
  CHECK(keeper->holding());
  world.loop.advance(std::chrono::seconds(20));
  CHECK_FALSE(keeper->holding());
  CHECK_FALSE(keeper->error().empty());
  world.server.fail_next(0, 500);
  world.loop.advance(std::chrono::seconds(20));
  CHECK(keeper->holding());
  CHECK(keeper->error().empty());
}

TEST_CASE("the agent's: taken over at once, a second agent is told from a former one") {
  World world;
  auto former = world.keeper("pod-1", false);
  CHECK(former->holding());
  former.reset();
  auto agent = world.keeper("pod-2", false);
  CHECK(agent->holding());
  CHECK(world.holder() == "pod-2");
  world.loop.advance(std::chrono::minutes(2));
  CHECK_FALSE(agent->rival().has_value());

  auto other = world.keeper("pod-3", false);
  world.loop.advance(std::chrono::minutes(1));
  CHECK(agent->rival() == "pod-3");
  CHECK(other->rival() == "pod-2");
  world.loop.advance(std::chrono::seconds(15));
  REQUIRE(agent->rival() == "pod-3");
  // A roll-out: the former one gives it back when it ends.
  other->release([] {});
  other.reset();
  world.loop.advance(std::chrono::minutes(2));
  CHECK_FALSE(agent->rival().has_value());
}

TEST_CASE("a Lease that somebody deleted comes back") {
  World world;
  auto keeper = world.keeper("a", true);
  world.server.remove(kPath);
  world.loop.advance(std::chrono::seconds(30));
  CHECK(keeper->holding());
  CHECK(world.holder() == "a");
}

}  // namespace imagefs_guard::lease_keeper_test
