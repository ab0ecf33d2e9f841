#include "agent/commands/coordinator_sizes.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "agent/core/sha256.h"
#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::coordinator_sizes_test {
namespace {

const std::string kMaps = "/api/v1/namespaces/ns/configmaps";
const std::string kMerged = kMaps + "/imagefs-guard-sizes";

SizeRecord record(const std::string& name, std::int64_t bytes = 1) {
  return {.diff_id = sha256(name), .bytes = bytes, .inodes = 2, .measured_on = FilesystemKind::Xfs};
}

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 1}};
  CoordinatorSizes sizes{api, "ns"};

  void node(const std::string& name, const std::vector<SizeRecord>& records) {
    server.put(kMaps + "/imagefs-guard-sizes-" + name, node_sizes_body({"ns", name, "u", records}));
  }

  std::optional<Error> round() {
    std::optional<std::optional<Error>> result;
    sizes.run([&](std::optional<Error> error) { result = std::move(error); });
    loop.advance(std::chrono::seconds(1));
    REQUIRE(result.has_value());
    return *result;
  }

  std::vector<SizeRecord> merged() {
    std::vector<SizeRecord> records;
    if (const auto map = parse_size_map(server.get(kMerged))) {
      for (const std::vector<SizeRecord>& shard : map->shards) {
        records.insert(records.end(), shard.begin(), shard.end());
      }
    }
    return records;
  }

  int requests() {
    const int before = counted_;
    counted_ = server.request_count();
    return counted_ - before;
  }

  int counted_ = 0;
};

bool has(const std::vector<SizeRecord>& records, const SizeRecord& wanted) {
  return std::ranges::find(records, wanted) != records.end();
}

TEST_CASE("merged sizes: all that the nodes have learned, once") {
  World world;
  world.node("a", {record("x", 10), record("y", 20)});
  world.node("b", {record("x", 10), record("z", 30)});
  CHECK(!world.round().has_value());
  const auto merged = world.merged();
  CHECK(merged.size() == 3);
  CHECK(has(merged, record("x", 10)));
  CHECK(has(merged, record("y", 20)));
  CHECK(has(merged, record("z", 30)));
}

TEST_CASE("merged sizes: without news a round is one request, and writes nothing") {
  World world;
  CHECK(!world.round().has_value());
  CHECK(world.server.get(kMerged).empty());
  world.node("a", {record("x", 10)});
  CHECK(!world.round().has_value());
  world.requests();
  CHECK(!world.round().has_value());
  CHECK(world.requests() == 1);
  world.node("a", {record("y", 5), record("x", 10)});
  CHECK(!world.round().has_value());
  CHECK(world.requests() == 3);  // list, that map, the patch
  CHECK(world.merged().size() == 2);
}

TEST_CASE("merged sizes: a new coordinator goes on with what there is") {
  World world;
  world.node("a", {record("x", 10)});
  CHECK(!world.round().has_value());
  world.server.remove(kMaps + "/imagefs-guard-sizes-a");
  world.node("b", {record("y", 20)});
  world.sizes.forget();
  CHECK(!world.round().has_value());
  CHECK(world.merged().size() == 2);
  world.server.remove(kMerged);  // somebody has deleted it: whole again with the next news
  world.node("b", {record("z", 30), record("y", 20)});
  CHECK(!world.round().has_value());
  CHECK(world.merged().size() == 3);
}

TEST_CASE("merged sizes: many nodes are read in turns") {
  World world;
  for (int i = 0; i < 120; ++i) {
    world.node("n" + std::to_string(i), {record(std::to_string(i))});
  }
  for (const std::size_t after : {50U, 100U, 120U}) {
    CHECK(!world.round().has_value());
    CHECK(world.merged().size() == after);
  }
  world.requests();
  CHECK(!world.round().has_value());
  CHECK(world.requests() == 1);
}

/// Lets one request fail, the others through.
struct FailOne final : HttpTransport {
  FailOne(FakeLoop& event_loop, HttpTransport& real) : loop(event_loop), inner(real) {}

  std::unique_ptr<HttpCall> start(HttpRequest request, HttpDone done) override {
    if (--left != 0) {
      return inner.start(std::move(request), std::move(done));
    }
    loop.defer([done = std::move(done)] { done(Error{ErrorKind::Unavailable, "broken"}); });
    return std::make_unique<HttpCall>();
  }

  FakeLoop& loop;
  HttpTransport& inner;
  int left = 0;
};

TEST_CASE("merged sizes: whichever request fails, the next rounds make up for it") {
  // Merged map, list, first map, second map, patch, create.
  for (int failing = 1; failing <= 6; ++failing) {
    CAPTURE(failing);
    World world;
    FailOne transport(world.loop, world.server);
    KubeApi api(world.loop, transport, {"https://api", "", "", 1});
    CoordinatorSizes sizes(api, "ns");
    world.node("a", {record("x", 10)});
    world.node("b", {record("y", 10)});
    transport.left = failing;
    int failures = 0;
    for (int round = 0; round < 2; ++round) {
      sizes.run([&](const std::optional<Error>& error) { failures += error ? 1 : 0; });
      world.loop.advance(std::chrono::seconds(1));
    }
    CHECK(failures == 1);
    CHECK(world.merged().size() == 2);
  }
}

TEST_CASE("merged sizes: a node's map that is nonsense hurts nobody") {
  World world;
  world.server.put(kMaps + "/imagefs-guard-sizes-bad",
                   R"({"metadata":{"name":"imagefs-guard-sizes-bad",)"
                   R"("labels":{"imagefs-guard.io/sizes":"node"}},"data":{"sizes":"what"}})");
  world.node("good", {record("x", 10)});
  CHECK(!world.round().has_value());
  CHECK(world.merged() == std::vector{record("x", 10)});
  world.requests();
  CHECK(!world.round().has_value());
  CHECK(world.requests() == 1);
}

}  // namespace
}  // namespace imagefs_guard::coordinator_sizes_test
