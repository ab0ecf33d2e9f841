#include "agent/wire/drain_json.h"

#include <doctest/doctest.h>

#include <string>

#include "agent/core/drain.h"
#include "agent/wire/kube_json.h"

namespace imagefs_guard::drain_json_test {
namespace {

constexpr WallTime kTime{std::chrono::seconds(1'767'323'045)};  // 2026-01-02T03:04:05Z

Digest sha_of_one() {
  Digest digest;
  digest.bytes[0] = 1;
  return digest;
}

HoldRecord record() {
  HoldRecord hold{.node = "node-a",
                  .node_uid = "nu",
                  .pod = "p",
                  .pod_uid = "pu",
                  .since = kTime,
                  .resume_by = kTime + std::chrono::minutes(10),
                  .image = "repo/x:1"};
  hold.token = hold_token(hold);
  return hold;
}

SuspendJob suspend() {
  return {.job = {"ns", "j", "ju"},
          .pod = {"ns", "p", "pu"},
          .resource_version = "7",
          .hold = record(),
          .drains = {{.digest = sha_of_one(), .capacity_bytes = 100, .owner_uid = "ju"}}};
}

std::string quoted(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c == '"' ? std::string("\\\"") : std::string(1, c);
  }
  return result;
}

std::string held_job(const std::string& hold_text, const std::string& suspended = "true") {
  return R"({"metadata":{"name":"j","namespace":"ns","uid":"ju","resourceVersion":"8",
             "labels":{"imagefs-guard.io/hold":"true"},
             "annotations":{"imagefs-guard.io/hold":")" +
         quoted(hold_text) + R"("}},"spec":{"suspend":)" + suspended + "}}";
}

}  // namespace

TEST_CASE("hold record: written, read, and its token holds") {
  const std::string text = hold_record_text(record());
  CHECK(text == R"({"image":"repo/x:1","node":"node-a","nodeUID":"nu","pod":"p","podUID":"pu",)"
                R"("resumeBy":"2026-01-02T03:14:05Z","since":"2026-01-02T03:04:05Z","token":")" +
                    record().token + R"(","v":1})");
  CHECK(parse_hold_record(text) == record());
  CHECK(hold_token(parse_hold_record(text)) == record().token);
}

TEST_CASE("hold record: what can't be read, and what is newer") {
  for (const char* text : {"",
                           "x",
                           "[]",
                           "{}",
                           R"({"v":"1"})",
                           R"({"v":0})",
                           R"({"v":-1})",
                           R"({"v":1})",
                           R"({"v":1,"since":"yesterday","resumeBy":"2026-01-02T03:04:05Z"})"}) {
    CAPTURE(text);
    CHECK(parse_hold_record(text).version == 0);
  }
  CHECK(parse_hold_record(R"({"v":2,"node":"n"})") == HoldRecord{.version = 2});
  CHECK(parse_hold_record(R"({"v":99999999999})").version == 0);
}

TEST_CASE("drain records: written, read; anything odd is not readable") {
  const std::vector<DrainRecord> drains = {{sha_of_one(), 100, "o", "p"},
                                           {sha_of_one(), 7, "", ""}};
  CHECK(parse_drain_records(drain_records_text(drains)) == DrainRecords{true, drains});
  CHECK(parse_drain_records(drain_records_text({})) == DrainRecords{true, {}});
  for (const char* text : {"",
                           "[]",
                           R"({"v":1})",
                           R"({"v":2,"drains":[]})",
                           R"({"v":1,"drains":{}})",
                           R"({"v":1,"drains":[{"digest":"sha256:12","capacityBytes":1}]})",
                           R"({"v":1,"drains":[1]})"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_drain_records(text).readable);
  }
}

TEST_CASE("suspend: hold, drain record, label and suspend in one patch behind its tests") {
  const auto patch = suspend_patch(
      R"({"metadata":{"name":"j","uid":"ju","resourceVersion":"7","annotations":{"a":"b"}}})",
      suspend());
  REQUIRE(patch);
  CHECK(*patch == R"([{"op":"test","path":"/metadata/uid","value":"ju"},)"
                  R"({"op":"test","path":"/metadata/resourceVersion","value":"7"},)"
                  R"({"op":"add","path":"/metadata/labels","value":{}},)"
                  R"({"op":"add","path":"/metadata/annotations/imagefs-guard.io~1hold","value":")" +
                      quoted(hold_record_text(record())) +
                      R"("},{"op":"add","path":"/metadata/annotations/imagefs-guard.io~1drained",)"
                      R"("value":")" +
                      quoted(drain_records_text(suspend().drains)) +
                      R"("},{"op":"add","path":"/metadata/labels/imagefs-guard.io~1hold",)"
                      R"("value":"true"},{"op":"add","path":"/spec/suspend","value":true}])");
}

TEST_CASE("suspend: a Job that is not as it was seen is left alone") {
  struct Case {
    const char* name;
    const char* job;
    ErrorKind want;
  };

  for (const Case& c :
       {Case{"another uid",
             R"({"metadata":{"name":"j","uid":"x","resourceVersion":"7"}})",
             ErrorKind::FailedPrecondition},
        Case{"changed",
             R"({"metadata":{"name":"j","uid":"ju","resourceVersion":"8"}})",
             ErrorKind::Aborted},
        Case{
            "suspended",
            R"({"metadata":{"name":"j","uid":"ju","resourceVersion":"7"},"spec":{"suspend":true}})",
            ErrorKind::FailedPrecondition},
        Case{
            "deleted",
            R"({"metadata":{"name":"j","uid":"ju","resourceVersion":"7","deletionTimestamp":"t"}})",
            ErrorKind::FailedPrecondition},
        Case{"finished",
             R"({"metadata":{"name":"j","uid":"ju","resourceVersion":"7"},
                 "status":{"conditions":[{"type":"Complete","status":"True"}]}})",
             ErrorKind::FailedPrecondition},
        Case{"no object", "[]", ErrorKind::InvalidArgument}}) {
    CAPTURE(c.name);
    const auto patch = suspend_patch(c.job, suspend());
    REQUIRE_FALSE(patch);
    CHECK(patch.error().kind == c.want);
  }
}

TEST_CASE("resume: only the very hold that was seen") {
  const std::string text = hold_record_text(record());
  const ResumeJob action{.job = {"ns", "j", "ju"}, .pod = {"ns", "p", "pu"}, .hold_text = text};
  const auto patch = resume_patch(held_job(text), action);
  REQUIRE(patch);
  CHECK(*patch ==
        R"([{"op":"test","path":"/metadata/uid","value":"ju"},)"
        R"({"op":"test","path":"/metadata/annotations/imagefs-guard.io~1hold","value":")" +
            quoted(text) +
            R"("},{"op":"test","path":"/spec/suspend","value":true},)"
            R"({"op":"replace","path":"/spec/suspend","value":false},)"
            R"({"op":"remove","path":"/metadata/annotations/imagefs-guard.io~1hold"},)"
            R"({"op":"add","path":"/metadata/annotations/imagefs-guard.io~1last-hold",)"
            R"("value":")" +
            quoted(text) +
            R"("},{"op":"remove","path":"/metadata/labels/imagefs-guard.io~1hold"}])");
  CHECK_FALSE(resume_patch(held_job(text + " "), action));
  CHECK_FALSE(resume_patch(held_job(text, "false"), action));
  CHECK_FALSE(resume_patch(R"({"metadata":{"name":"j","uid":"ju"}})", action));

  const auto job = parse_job(held_job(text));
  REQUIRE(job);
  CHECK(job->hold == record());
  CHECK(job->hold_text == text);
}

TEST_CASE("drain record on a Job and on a Node") {
  const RecordDrain on_job{
      .job = NamedObject{"ns", "j", "ju"}, .resource_version = "7", .drains = suspend().drains};
  const auto patch =
      drain_record_patch(R"({"metadata":{"name":"j","uid":"ju","resourceVersion":"7"}})", on_job);
  REQUIRE(patch);
  CHECK(patch->find("suspend") == std::string::npos);
  CHECK(patch->find("imagefs-guard.io~1drained") != std::string::npos);
  CHECK_FALSE(
      drain_record_patch(R"({"metadata":{"name":"j","uid":"ju","resourceVersion":"8"}})", on_job));

  const std::string on_node = node_drain_record_patch({.drains = suspend().drains});
  const auto node = parse_node(R"({"metadata":{"name":"n","uid":"u",)" + on_node.substr(13));
  REQUIRE(node);
  CHECK(node->drained.drains == suspend().drains);
}

TEST_CASE("disruption and deletes: pinned by uid and version") {
  const MarkDisruption mark{.pod = {"ns", "p", "pu"}, .message = "image x needs 9 GiB"};
  CHECK(disruption_patch(mark, kTime) ==
        R"({"metadata":{"uid":"pu"},"status":{"conditions":[{"lastTransitionTime":)"
        R"("2026-01-02T03:04:05Z","message":"image x needs 9 GiB",)"
        R"("reason":"ImagePullExceedsDisk","status":"True","type":"DisruptionTarget"}]}})");
  CHECK(delete_pod_body({"pu", "9"}) ==
        R"({"apiVersion":"v1","gracePeriodSeconds":1,"kind":"DeleteOptions",)"
        R"("preconditions":{"resourceVersion":"9","uid":"pu"}})");
  CHECK(delete_job_body({"ju", "9"}) ==
        R"({"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"9",)"
        R"("uid":"ju"},"propagationPolicy":"Foreground"})");
  const auto pod = parse_pod(
      R"({"metadata":{"name":"p","uid":"pu"},"status":{"conditions":[{"type":"DisruptionTarget",
          "status":"True","reason":"ImagePullExceedsDisk"}]}})");
  REQUIRE(pod);
  CHECK(pod->disruption_target);
  CHECK_FALSE(parse_pod(R"({"metadata":{"name":"p","uid":"pu"},"status":{"conditions":[
      {"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler"}]}})")
                  ->disruption_target);
}

}  // namespace imagefs_guard::drain_json_test
