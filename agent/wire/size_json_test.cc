#include "agent/wire/size_json.h"

#include <doctest/doctest.h>

#include "agent/core/sha256.h"

namespace imagefs_guard::size_json_test {
namespace {

SizeRecord record(const char* name, std::int64_t bytes, FilesystemKind kind) {
  return {.diff_id = sha256(name), .bytes = bytes, .inodes = 7, .measured_on = kind};
}

TEST_CASE("size records: written and read again") {
  const std::vector<SizeRecord> records = {record("a", 1, FilesystemKind::Xfs),
                                           record("b", 99'000'000'000, FilesystemKind::Ext4),
                                           record("c", 0, FilesystemKind::Other)};
  const std::string text = encode_size_records(records);
  CHECK(parse_size_records(text, 100) == records);
  CHECK(parse_size_records(text, 2).size() == 2);
  CHECK(text.size() < 3 * 100);
}

TEST_CASE("size records: cut and damaged lines are left out") {
  const std::string good = encode_size_records({record("a", 12, FilesystemKind::Xfs)});
  for (std::size_t size = 0; size + 1 < good.size(); ++size) {
    const auto records = parse_size_records(good.substr(0, size), 10);
    CHECK(records.empty());
  }
  const std::string hex = to_string(sha256("a")).substr(7);
  for (const std::string& line : {hex + " -1 7 xfs",
                                  hex + " 1 7 zfs",
                                  hex + " 1 7 xfs more",
                                  hex + " 1.5 7 xfs",
                                  hex + "  1 7 xfs",
                                  hex + " 99999999999999999999 7 xfs",
                                  hex + " 1 99999999999 xfs",
                                  "f" + hex + " 1 7 xfs",
                                  std::string("sha256:") + hex + " 1 7 xfs"}) {
    CAPTURE(line);
    CHECK(parse_size_records(line, 10).empty());
    CHECK(parse_size_records(line + "\n" + good, 10).size() == 1);
  }
}

TEST_CASE("size maps: a node's, with its Node as owner") {
  const std::vector<SizeRecord> records = {record("a", 12, FilesystemKind::Xfs)};
  const std::string body = node_sizes_body(
      {.namespace_name = "ns", .node = "n1", .node_uid = "uid-1", .records = records});
  const auto map = parse_size_map(body);
  REQUIRE(map.has_value());
  CHECK(map->name == "imagefs-guard-sizes-n1");
  CHECK(map->node == records);
  CHECK(body.find(
            R"("ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n1","uid":"uid-1"}])") !=
        std::string::npos);
  CHECK(node_sizes_name("").empty());
  CHECK(node_sizes_name(std::string(240, 'n')).empty());
}

TEST_CASE("size maps: the merged one, shard by shard") {
  SizeShards shards;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    const SizeRecord one = record(name, 5, FilesystemKind::Ext4);
    shards[size_shard_of(one.diff_id)].push_back(one);
  }
  const auto all = parse_size_map(merged_sizes_body("ns", shards, 0xffff));
  REQUIRE(all.has_value());
  CHECK(all->shards == shards);
  CHECK(all->name == "imagefs-guard-sizes");
  const std::size_t shard = size_shard_of(sha256("a"));
  const auto one = parse_size_map(merged_sizes_body("ns", shards, 1U << shard));
  REQUIRE(one.has_value());
  CHECK(one->shards[shard] == shards[shard]);
  CHECK(one->shards[(shard + 1) % 16].empty());
  // A record in the wrong shard would never be found again by a merge.
  SizeShards wrong;
  wrong[(shard + 1) % 16] = shards[shard];
  CHECK(parse_size_map(merged_sizes_body("ns", wrong, 0xffff))->shards == SizeShards{});
}

TEST_CASE("size maps: lists name the nodes' maps, and nonsense is refused") {
  std::vector<NamedVersion> versions;
  const auto page = parse_size_versions(
      R"({"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"9","continue":"c"},)"
      R"("items":[{"metadata":{"name":"imagefs-guard-sizes-a","resourceVersion":"3"}},)"
      R"({"metadata":{"name":"imagefs-guard-sizes"}},{"metadata":{"name":"other"}}]})",
      versions);
  REQUIRE(page.has_value());
  CHECK(page->continue_token == "c");
  CHECK(versions ==
        std::vector<NamedVersion>{{.name = "imagefs-guard-sizes-a", .resource_version = "3"}});
  CHECK(!parse_size_versions("{}", versions).has_value());
  CHECK(!parse_size_versions("x", versions).has_value());
  CHECK(!parse_size_map("{}").has_value());
  CHECK(!parse_size_map("[").has_value());
  CHECK(parse_size_map(R"({"metadata":{"name":"n"},"data":{"sizes":7,"0":[]}})")->node.empty());
}

}  // namespace
}  // namespace imagefs_guard::size_json_test
