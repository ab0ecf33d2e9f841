#include "agent/wire/kube_patch.h"

#include <doctest/doctest.h>

#include <string>

#include "agent/wire/json.h"

namespace imagefs_guard::kube_patch_test {
namespace {

constexpr const char* kKey = "example.io/guard";

std::string node_json(const std::string& taints) {
  return R"({"metadata":{"name":"n1","uid":"u1","resourceVersion":"7"},"spec":{)" +
         (taints.empty() ? std::string() : R"("taints":)" + taints) + "}}";
}

/// "test /metadata/uid, add /spec/taints/-": operations and paths, in order.
std::string outline(const std::string& patch) {
  const Result<JsonDocument> document = parse_json(patch);
  REQUIRE(document);
  std::string text;
  for (std::size_t i = 0; i < document->root().size(); ++i) {
    const JsonView operation = document->root().at(i);
    text += (i == 0 ? "" : ", ") + std::string(operation["op"].text()) + " " +
            std::string(operation["path"].text());
  }
  return text;
}

}  // namespace

TEST_CASE("taint_patch pins what it read and touches our key alone") {
  struct Case {
    const char* name;
    std::string taints;
    TaintEffect effect;
    std::string want;  // empty = nothing to do
  };

  const std::string other =
      R"({"key":"a","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z"})";
  const std::string prefer = R"({"key":"example.io/guard","effect":"PreferNoSchedule"})";
  const std::string no = R"({"key":"example.io/guard","effect":"NoSchedule"})";
  const std::string pins = "test /metadata/uid, test /spec/taints, ";
  const Case cases[] = {
      {"no list",
       "",
       TaintEffect::NoSchedule,
       "test /metadata/uid, test /metadata/resourceVersion, add /spec/taints"},
      {"null list",
       "null",
       TaintEffect::NoSchedule,
       "test /metadata/uid, test /metadata/resourceVersion, add /spec/taints"},
      {"append", "[" + other + "]", TaintEffect::NoSchedule, pins + "add /spec/taints/-"},
      {"already so", "[" + other + "," + no + "]", TaintEffect::NoSchedule, ""},
      {"nothing to remove", "[" + other + "]", TaintEffect::None, ""},
      {"no list, nothing to remove", "", TaintEffect::None, ""},
      {"remove", "[" + no + "," + other + "]", TaintEffect::None, pins + "remove /spec/taints/0"},
      {"stronger, in one patch",
       "[" + prefer + "," + other + "]",
       TaintEffect::NoSchedule,
       pins + "remove /spec/taints/0, add /spec/taints/-"},
      {"weaker, in one patch",
       "[" + other + "," + no + "]",
       TaintEffect::PreferNoSchedule,
       pins + "remove /spec/taints/1, add /spec/taints/-"},
      {"both effects, from the end",
       "[" + prefer + "," + other + "," + no + "]",
       TaintEffect::None,
       pins + "remove /spec/taints/2, remove /spec/taints/0"},
      {"both effects, keep one",
       "[" + prefer + "," + no + "]",
       TaintEffect::NoSchedule,
       pins + "remove /spec/taints/0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const auto patch = taint_patch(node_json(c.taints), SetTaint{kKey, "", c.effect, ""});
    REQUIRE(patch);
    CHECK(patch->has_value() == !c.want.empty());
    if (patch->has_value()) {
      CHECK(outline(**patch) == c.want);
    }
  }
}

TEST_CASE("taint_patch tests the list with fields that it does not know") {
  const auto patch = taint_patch(
      node_json(R"([{"key":"a","effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z","x":[1]}])"),
      SetTaint{kKey, "v", TaintEffect::NoSchedule, ""});
  REQUIRE(patch);
  REQUIRE(patch->has_value());
  CHECK((*patch)->find(R"("timeAdded":"2026-01-01T00:00:00Z","x":[1])") != std::string::npos);
  CHECK((*patch)->find(R"({"effect":"NoSchedule","key":"example.io/guard","value":"v"})") !=
        std::string::npos);
}

TEST_CASE("taint_patch copes with a node without spec") {
  const auto patch = taint_patch(R"({"metadata":{"uid":"u1","resourceVersion":"7"}})",
                                 SetTaint{kKey, "", TaintEffect::NoSchedule, ""});
  REQUIRE(patch);
  REQUIRE(patch->has_value());
  CHECK(outline(**patch) == "test /metadata/uid, test /metadata/resourceVersion, add /spec");
}

TEST_CASE("taint_patch replaces another value under our key") {
  const auto patch =
      taint_patch(node_json(R"([{"key":"example.io/guard","value":"old","effect":"NoSchedule"}])"),
                  SetTaint{kKey, "new", TaintEffect::NoSchedule, ""});
  REQUIRE(patch);
  REQUIRE(patch->has_value());
  CHECK(outline(**patch) ==
        "test /metadata/uid, test /spec/taints, remove /spec/taints/0, add /spec/taints/-");
}

TEST_CASE("taint_patch refuses what is no node") {
  const SetTaint wanted{kKey, "", TaintEffect::NoSchedule, ""};
  for (const char* text : {"",
                           "[]",
                           "{",
                           "{}",
                           R"({"metadata":1})",
                           R"({"metadata":{"uid":"u"}})",
                           R"({"metadata":{"uid":"u","resourceVersion":"1"},"spec":{"taints":{}}})",
                           R"({"metadata":{"uid":7,"resourceVersion":"1"}})"}) {
    CAPTURE(text);
    CHECK_FALSE(taint_patch(text, wanted));
  }
  // A taint list of anything else than objects is somebody's, and stays.
  const auto odd = taint_patch(node_json(R"([1,"x",null])"), wanted);
  REQUIRE(odd);
  CHECK(outline(**odd) == "test /metadata/uid, test /spec/taints, add /spec/taints/-");
}

TEST_CASE("metadata_patch sets and removes") {
  SetNodeMetadata wanted;
  wanted.labels = {{"imagefs-guard.io/stage", "guard"}, {"imagefs-guard.io/old", std::nullopt}};
  CHECK(
      metadata_patch(wanted) ==
      R"({"metadata":{"labels":{"imagefs-guard.io/old":null,"imagefs-guard.io/stage":"guard"}}})");
  wanted.labels.clear();
  wanted.annotations = {{"imagefs-guard.io/status", "{\"a\":1}"}};
  CHECK(metadata_patch(wanted) ==
        R"({"metadata":{"annotations":{"imagefs-guard.io/status":"{\"a\":1}"}}})");
}

TEST_CASE("condition_patch sends the transition time only on a transition") {
  const WallTime now{std::chrono::seconds(1'767'323'045)};
  SetCondition wanted{ConditionStatus::True, "PredictedPullExceedsHeadroom", "too much", true, ""};
  CHECK(condition_patch(wanted, now) ==
        R"({"status":{"conditions":[{"lastHeartbeatTime":"2026-01-02T03:04:05Z",)"
        R"("lastTransitionTime":"2026-01-02T03:04:05Z","message":"too much",)"
        R"("reason":"PredictedPullExceedsHeadroom","status":"True",)"
        R"("type":"ImageFilesystemRisk"}]}})");
  wanted.transition = false;
  CHECK(condition_patch(wanted, now).find("lastTransitionTime") == std::string::npos);
}

TEST_CASE("event_body stays within what the API server takes") {
  EmitEvent event;
  event.regarding = {"v1", "Pod", "ns", "p", "u"};
  event.warning = true;
  event.event_reason = "PullHeld";
  event.event_action = "Hold";
  event.note = std::string(1022, 'x') + "€€";
  const EventOrigin origin{"p.1", std::string(300, 'n'), WallTime{std::chrono::microseconds(1)}};
  const Result<JsonDocument> document = parse_json(event_body(event, origin));
  REQUIRE(document);
  const JsonView root = document->root();
  CHECK(root["note"].text() == std::string(1022, 'x'));
  CHECK(root["reportingInstance"].text().size() == 128);
  CHECK(root["metadata"]["namespace"].text() == "ns");
  CHECK(root["regarding"]["namespace"].text() == "ns");
  CHECK(root["eventTime"].text() == "1970-01-01T00:00:00.000001Z");
  CHECK(root["type"].text() == "Warning");
  CHECK(root["reportingController"].text() == "imagefs-guard.io/agent");

  event.regarding = {"v1", "Node", "", "n1", "u"};
  const Result<JsonDocument> about_node = parse_json(event_body(event, origin));
  REQUIRE(about_node);
  CHECK(about_node->root()["metadata"]["namespace"].text() == "default");
  CHECK_FALSE(about_node->root()["regarding"]["namespace"]);
}

TEST_CASE("json_pointer escapes tilde and slash") {
  CHECK(json_pointer({}).empty());
  CHECK(json_pointer({"spec", "taints", "0"}) == "/spec/taints/0");
  CHECK(json_pointer({"metadata", "annotations", "a.io/b~c/~1"}) ==
        "/metadata/annotations/a.io~1b~0c~1~01");
}

TEST_CASE("cut_utf8 cuts between characters and replaces what is none") {
  struct Case {
    std::string text;
    std::size_t limit;
    std::string want;
  };

  const Case cases[] = {
      {"", 3, ""},
      {"abc", 3, "abc"},
      {"abcd", 3, "abc"},
      {"aé", 2, "a"},
      {"aé", 3, "aé"},
      {"€€", 5, "€"},
      {"\xF0\x9F\x98\x80", 3, ""},
      {"\xF0\x9F\x98\x80", 4, "\xF0\x9F\x98\x80"},
      {"a\xFFz", 9, "a?z"},
      {"\xE2\x82", 9, "??"},            // ends early
      {"\xC0\x80", 9, "??"},            // over-long
      {"\xE0\x80\x80", 9, "???"},       // over-long
      {"\xED\xA0\x80", 9, "???"},       // a surrogate
      {"\xF4\x90\x80\x80", 9, "????"},  // past the last character
      {std::string("a\0b", 3), 9, std::string("a\0b", 3)},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    CAPTURE(c.limit);
    CHECK(cut_utf8(c.text, c.limit) == c.want);
  }
}

}  // namespace imagefs_guard::kube_patch_test
