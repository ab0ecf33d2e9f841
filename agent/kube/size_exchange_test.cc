#include "agent/kube/size_exchange.h"

#include <doctest/doctest.h>

#include "agent/core/sha256.h"
#include "agent/wire/size_json.h"
#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::size_exchange_test {
namespace {

const std::string kMaps = "/api/v1/namespaces/ns/configmaps";
const std::string kOwn = kMaps + "/imagefs-guard-sizes-n1";
const std::string kMerged = kMaps + "/imagefs-guard-sizes";

SizeRecord record(const std::string& name, std::int64_t bytes = 1) {
  return {.diff_id = sha256(name), .bytes = bytes, .inodes = 2, .measured_on = FilesystemKind::Xfs};
}

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 1}};
  std::vector<SizeRecord> own;
  std::vector<std::vector<SizeRecord>> merged;
  std::vector<std::string> troubles;
  std::unique_ptr<SizeExchange> exchange = std::make_unique<SizeExchange>(
      api,
      SizeExchangeOptions{.namespace_name = "ns", .node_name = "n1"},
      SizeExchangeHandlers{
          .own = [this](const std::vector<SizeRecord>& records) { own = records; },
          .merged = [this](std::vector<SizeRecord> records) { merged.push_back(records); },
          .trouble = [this](const Error& error) { troubles.push_back(error.message); }});

  void start() {
    exchange->start();
    loop.advance(std::chrono::milliseconds(1));
  }

  void put_merged(const std::vector<SizeRecord>& records) {
    SizeShards shards;
    for (const SizeRecord& one : records) {
      shards[size_shard_of(one.diff_id)].push_back(one);
    }
    server.put(kMerged, merged_sizes_body("ns", shards, 0xffff));
  }

  std::vector<SizeRecord> on_server() {
    const auto map = parse_size_map(server.get(kOwn));
    return map ? map->node : std::vector<SizeRecord>();
  }

  /// Requests since the last call.
  int requests() {
    const int before = counted_;
    counted_ = server.request_count();
    return counted_ - before;
  }

  int counted_ = 0;
};

TEST_CASE("size exchange: what the node and the others had learned is read at the start") {
  World world;
  world.server.put(kOwn,
                   node_sizes_body({.namespace_name = "ns",
                                    .node = "n1",
                                    .node_uid = "u",
                                    .records = {record("a"), record("b")}}));
  world.put_merged({record("c")});
  world.start();
  CHECK(world.own == std::vector{record("a"), record("b")});
  REQUIRE(world.merged.size() == 1);
  CHECK(world.merged[0] == std::vector{record("c")});
  CHECK(world.requests() == 2);
}

TEST_CASE("size exchange: says when there is nothing more to wait for") {
  {
    World world;  // neither map is there
    CHECK_FALSE(world.exchange->has_asked());
    world.start();
    CHECK(world.exchange->has_asked());
    CHECK(world.own.empty());
  }
  {
    World world;
    world.server.put(
        kOwn,
        node_sizes_body(
            {.namespace_name = "ns", .node = "n1", .node_uid = "u", .records = {record("a")}}));
    world.server.fail_next(1, 503);
    world.start();
    CHECK(world.exchange->has_asked());
    CHECK(world.own.empty());
  }
}

TEST_CASE("size exchange: the merged map is read again only if it has changed") {
  World world;
  world.put_merged({record("c")});
  world.start();
  world.requests();
  world.loop.advance(std::chrono::hours(1));
  const int idle = world.requests();
  CHECK(idle >= 9);
  CHECK(idle <= 12);  // one small read every 5 to 6.25 minutes
  CHECK(world.merged.size() == 1);
  world.put_merged({record("c"), record("d")});
  world.loop.advance(std::chrono::minutes(7));
  REQUIRE(world.merged.size() == 2);
  CHECK(world.merged[1].size() == 2);
}

TEST_CASE("size exchange: the first map is made, with its Node as owner, then changed") {
  World world;
  world.exchange->publish({record("a")}, "uid-1");
  world.loop.run_ready();
  CHECK(world.server.get(kOwn).empty());  // not before it has been read
  world.start();
  CHECK(world.on_server() == std::vector{record("a")});
  CHECK(world.server.get(kOwn).find("\"uid\":\"uid-1\"") != std::string::npos);
  world.loop.advance(std::chrono::minutes(2));
  world.exchange->publish({record("b"), record("a")}, "uid-1");
  world.loop.advance(std::chrono::milliseconds(1));
  CHECK(world.on_server() == std::vector{record("b"), record("a")});
}

TEST_CASE("size exchange: one write a minute at most, and none without news") {
  World world;
  world.start();
  world.requests();
  for (int i = 0; i < 100; ++i) {
    world.exchange->publish({record(std::to_string(i))}, "uid-1");
    world.loop.advance(std::chrono::seconds(1));
  }
  CHECK(world.requests() == 2);
  world.loop.advance(std::chrono::minutes(1));
  CHECK(world.on_server() == std::vector{record("99")});
  CHECK(world.requests() == 1);
  for (int i = 0; i < 50; ++i) {
    world.exchange->publish({record("99")}, "uid-1");
    world.loop.advance(std::chrono::seconds(2));
  }
  CHECK(world.requests() == 0);
  world.exchange->publish({record("new")}, "");
  world.loop.advance(std::chrono::minutes(1));
  CHECK(world.on_server() == std::vector{record("99")});  // no owner is known
}

TEST_CASE("size exchange: a map that came or went meanwhile") {
  World world;
  world.start();
  world.server.put(kOwn, node_sizes_body({"ns", "n1", "u", {record("x")}}));
  world.exchange->publish({record("a")}, "u");
  world.loop.advance(std::chrono::minutes(2));
  CHECK(world.on_server() == std::vector{record("a")});
  world.server.remove(kOwn);
  world.exchange->publish({record("b")}, "u");
  world.loop.advance(std::chrono::minutes(2));
  CHECK(world.on_server() == std::vector{record("b")});
  CHECK(world.troubles.empty());
}

TEST_CASE("size exchange: failures are told once and tried again, refusals much later") {
  World world;
  world.put_merged({record("c")});
  world.server.fail_next(3, 500);
  world.start();
  world.loop.advance(std::chrono::minutes(5));
  CHECK(world.troubles.size() == 1);
  CHECK(world.merged.size() == 1);

  World refused;
  refused.server.fail_next(1000, 403);
  refused.start();
  refused.exchange->publish({record("a")}, "u");
  refused.loop.advance(std::chrono::hours(2));
  CHECK(refused.troubles.size() == 1);
  CHECK(refused.requests() <= 5);
}

TEST_CASE("size exchange: a merged map that can't be read changes nothing") {
  World world;
  world.server.put(kMerged, R"({"metadata":{"name":"imagefs-guard-sizes"},"data":{"0":"junk"}})");
  world.start();
  REQUIRE(world.merged.size() == 1);
  CHECK(world.merged[0].empty());
}

}  // namespace
}  // namespace imagefs_guard::size_exchange_test
