#include "agent/wire/lease_json.h"

#include <doctest/doctest.h>

namespace imagefs_guard::lease_json_test {

TEST_CASE("lease: written, read") {
  const WallTime now{std::chrono::seconds(1'767'323'045)};
  const std::string body = lease_body({.namespace_name = "ns",
                                       .name = "l",
                                       .resource_version = "7",
                                       .holder = "me",
                                       .transitions = 2,
                                       .duration_seconds = 30,
                                       .now = now});
  CHECK(body == R"({"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l",)"
                R"("namespace":"ns","resourceVersion":"7"},"spec":{)"
                R"("acquireTime":"2026-01-02T03:04:05.000000Z","holderIdentity":"me",)"
                R"("leaseDurationSeconds":30,"leaseTransitions":2,)"
                R"("renewTime":"2026-01-02T03:04:05.000000Z"}})");
  const auto lease = parse_lease(body);
  REQUIRE(lease);
  CHECK(*lease ==
        Lease{"l", "7", "me", "2026-01-02T03:04:05.000000Z", "2026-01-02T03:04:05.000000Z", 2});
  CHECK(lease_body({.name = "l", .now = now}).find("resourceVersion") == std::string::npos);
}

TEST_CASE("lease: lists, and what is none") {
  const auto list = parse_lease_list(
      R"({"kind":"LeaseList","metadata":{"resourceVersion":"5","continue":"c"},
          "items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"spec":{}}]})");
  REQUIRE(list);
  CHECK(list->leases.size() == 2);
  CHECK(list->metadata.continue_token == "c");
  for (const char* text :
       {"", "[]", "{}", R"({"kind":"Status"})", R"({"kind":"LeaseList","items":[{}]})"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_lease_list(text));
  }
  CHECK_FALSE(parse_lease("{}"));
}

}  // namespace imagefs_guard::lease_json_test
