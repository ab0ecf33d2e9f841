#include "agent/wire/cluster_json.h"

#include <doctest/doctest.h>

namespace imagefs_guard::cluster_json_test {

TEST_CASE("cluster: nodes, agents' pods and Leases, page by page") {
  std::vector<MarkedNode> nodes;
  const auto page = parse_marked_nodes(
      R"({"kind":"PartialObjectMetadataList","metadata":{"continue":"c"},
          "items":[{"metadata":{"name":"a","uid":"1"}},{"metadata":{}}]})",
      nodes);
  REQUIRE(page);
  CHECK(page->continue_token == "c");
  CHECK(nodes == std::vector<MarkedNode>{{"a", "1"}});

  std::vector<std::string> with_agent;
  REQUIRE(parse_agent_nodes(
      R"({"kind":"PodList","items":[
          {"spec":{"nodeName":"a"},"status":{"phase":"Running"}},
          {"spec":{"nodeName":"b"},"status":{"phase":"Failed"}},
          {"spec":{},"status":{"phase":"Pending"}}]})",
      with_agent));
  CHECK(with_agent == std::vector<std::string>{"a"});

  std::vector<AgentLease> leases;
  REQUIRE(parse_agent_leases(
      R"({"kind":"LeaseList","items":[
          {"metadata":{"name":"imagefs-guard.io-a"},"spec":{"renewTime":"t"}},
          {"metadata":{"name":"imagefs-guard-coordinator"}}]})",
      leases));
  CHECK(leases == std::vector<AgentLease>{{"a", "t"}});
  CHECK(agent_lease_name("a") == "imagefs-guard.io-a");
  for (const char* text :
       {"", "{}", "[]", R"({"kind":"Status"})", R"({"kind":"XList","items":1})"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_marked_nodes(text, nodes));
    CHECK_FALSE(parse_agent_nodes(text, with_agent));
    CHECK_FALSE(parse_agent_leases(text, leases));
  }
}

TEST_CASE("clean a node: ours goes, each with its test; the rest stays") {
  const char* node =
      R"({"metadata":{"name":"n","uid":"u","labels":{"a":"b","imagefs-guard.io/stage":"guard"},
            "annotations":{"imagefs-guard.io/status":"{\"v\":1}","other":"x"}},
          "spec":{"taints":[{"key":"k","effect":"NoSchedule","value":"guard"},
                            {"key":"other","effect":"NoExecute","timeAdded":"t"},
                            {"key":"k","effect":"PreferNoSchedule"}]},
          "status":{"conditions":[{"type":"Ready"},{"type":"ImageFilesystemRisk"}]}})";
  const auto cleaning = clean_node_patches(node, {.node = "n", .uid = "u"}, "k");
  REQUIRE(cleaning);
  REQUIRE(cleaning->node_patch.has_value());
  CHECK(*cleaning->node_patch ==
        R"([{"op":"test","path":"/metadata/uid","value":"u"},)"
        R"({"op":"test","path":"/spec/taints","value":[)"
        R"({"effect":"NoSchedule","key":"k","value":"guard"},)"
        R"({"effect":"NoExecute","key":"other","timeAdded":"t"},)"
        R"({"effect":"PreferNoSchedule","key":"k"}]},)"
        R"({"op":"remove","path":"/spec/taints/2"},{"op":"remove","path":"/spec/taints/0"},)"
        R"({"op":"test","path":"/metadata/labels/imagefs-guard.io~1stage","value":"guard"},)"
        R"({"op":"remove","path":"/metadata/labels/imagefs-guard.io~1stage"},)"
        R"({"op":"test","path":"/metadata/annotations/imagefs-guard.io~1status",)"
        R"("value":"{\"v\":1}"},)"
        R"({"op":"remove","path":"/metadata/annotations/imagefs-guard.io~1status"}])");
  CHECK(cleaning->status_patch ==
        R"({"metadata":{"uid":"u"},"status":{"conditions":[{"$patch":"delete",)"
        R"("type":"ImageFilesystemRisk"}]}})");
}

TEST_CASE("clean a node: nothing to do, and another node of that name") {
  const auto nothing = clean_node_patches(
      R"({"metadata":{"uid":"u","labels":{"a":"b"}},"spec":{"taints":[{"key":"other"}]}})",
      {.node = "n", .uid = "u"},
      "k");
  REQUIRE(nothing);
  CHECK_FALSE(nothing->node_patch.has_value());
  CHECK_FALSE(nothing->status_patch.has_value());
  const auto odd = clean_node_patches(
      R"({"metadata":{"uid":"u"},"spec":{"taints":[{"key":5},7,{}]}})", {.uid = "u"}, "k");
  REQUIRE(odd);
  CHECK_FALSE(odd->node_patch.has_value());
  const auto other =
      clean_node_patches(R"({"metadata":{"uid":"x"}})", {.node = "n", .uid = "u"}, "k");
  REQUIRE_FALSE(other);
  CHECK(other.error().kind == ErrorKind::FailedPrecondition);
}

}  // namespace imagefs_guard::cluster_json_test
