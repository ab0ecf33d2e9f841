#include "agent/commands/status_text.h"

#include <doctest/doctest.h>

namespace imagefs_guard::status_text_test {
namespace {

constexpr const char* kStatus = R"({
  "v":1,"version":"0.1.0","node":"node-a","mode":"enforce","stage":"guard","alive":true,
  "decisionAgeSeconds":0.4,"time":"2026-01-02T03:04:05Z",
  "reasons":["the pull of etl is held: it needs 12.9 GiB"],
  "filesystem":{"path":"/imagefs","capacityBytes":21474836480,"availableBytes":10737418240,
    "floorBytes":2147483648,"floorSource":"nodefs.available","headroomBytes":8589934592,
    "forecastLowBytes":10737418240,"waitingBytes":13851170406,"outstandingBytes":0},
  "space":{"imagesBytes":5368709120,"otherBytes":2147483648,"blobsBytes":0,"leftoverBytes":0,
    "inFlightBytes":0,"reclaimableBytes":null,"layersUnmeasured":2},
  "pulls":[{"image":"etl","state":"held","held":true,"heldSeconds":300.2,"verdict":"NeverFits",
    "peakBytes":13851170406,"pods":["flows/etl-x"],"podsMore":1,"sentence":"needs 12.9 GiB"}],
  "pullsMore":0,"drains":[{"pod":"flows/etl-x","owner":"Job","method":"S","sentence":"moves"}],
  "findings":[{"finding":"image_gc_too_late","sentence":"is so","advice":"do this"}],
  "parts":[{"name":"runtime","ok":true,"required":true,"reason":""},
           {"name":"registry","ok":false,"required":false,"reason":"1 of 1 images not known"}],
  "history":[[600,9216,2048,9216,9216],[30,10240,2048,10240,10240]]})";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("all that the page shows stands in the text") {
  const auto text = status_text(kStatus, 80);
  REQUIRE(text);
  CAPTURE(*text);
  for (const char* part : {"node-a: guard, mode enforce, decided 0 s ago, version 0.1.0\n",
                           "- the pull of etl is held: it needs 12.9 GiB\n",
                           "not seen: registry: 1 of 1 images not known\n",
                           "/imagefs: 20.0 GiB, 10.0 GiB free, floor 2.0 GiB (nodefs.available),",
                           "[IIIIIIIIIIIIIIIIIII",
                           "|||||||]\n",
                           "I images in use",
                           "u unused images           not known\n",
                           "2 layers are not measured yet",
                           "in the last 10 min at least 9.0 GiB were free\n",
                           "held for 5 min",
                           "etl for flows/etl-x and 1 more: needs 12.9 GiB\n",
                           "Pods that can't stay:\nflows/etl-x (Job): moves\n",
                           "Findings:\n- is so; do this\n"}) {
    CAPTURE(part);
    CHECK(has(*text, part));
  }
}

TEST_CASE("what is not known is said to be so") {
  const auto text = status_text(
      R"({"v":1,"node":"n","mode":"observe","stage":null,"alive":false,"filesystem":null,
          "space":null,"findings":null,"parts":[],"pulls":[],"drains":[],"reasons":[]})",
      0);
  REQUIRE(text);
  for (const char* part : {"n: not decided yet, mode observe",
                           "has stopped to decide",
                           "how much is free is not known",
                           "No pull is under way or held.",
                           "Findings: not looked at yet\n"}) {
    CAPTURE(part);
    CHECK(has(*text, part));
  }
}

TEST_CASE("a name can't steer the terminal") {
  const auto text = status_text(
      R"({"v":1,"node":"a\u001b[31m\u009b2J\r\nb","parts":[],"pulls":[{"image":"\u0007x\u007f"}]})",
      80);
  REQUIRE(text);
  CHECK(text->starts_with("a?[31m?2J??b: "));
  CHECK(has(*text, "?x?"));
}

TEST_CASE("what is no status is one sentence") {
  for (const char* json : {"", "[]", "ok\n", "{\"v\":1}", "<html>"}) {
    CAPTURE(json);
    const auto text = status_text(json, 80);
    REQUIRE(!text.has_value());
    CHECK(text.error().message == "what answers there is no imagefs-guard agent");
  }
  const auto newer = status_text(R"({"v":2,"parts":[]})", 80);
  REQUIRE(!newer.has_value());
  CHECK(newer.error().message ==
        "the agent speaks version 2 of the status, this command version 1");
}

}  // namespace
}  // namespace imagefs_guard::status_text_test
