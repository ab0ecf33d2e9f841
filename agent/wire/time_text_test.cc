#include "agent/wire/time_text.h"

#include <doctest/doctest.h>

#include <initializer_list>

namespace imagefs_guard::time_text_test {

namespace {

WallTime at(std::int64_t seconds, std::int64_t microseconds = 0) {
  return WallTime(Duration(seconds * 1'000'000 + microseconds));
}

}  // namespace

TEST_CASE("rfc3339: what Kubernetes and AWS write") {
  struct Case {
    const char* text;
    WallTime want;
  };

  for (const Case& c : {
           Case{"1970-01-01T00:00:00Z", at(0)},
           Case{"2026-01-02T03:04:05Z", at(1'767'323'045)},
           Case{"2026-01-02T03:04:05.678901Z", at(1'767'323'045, 678'901)},
           Case{"2026-01-02T03:04:05.6Z", at(1'767'323'045, 600'000)},
           Case{"2026-01-02T03:04:05.123456789+00:00", at(1'767'323'045, 123'456)},
           Case{"2026-01-02T05:04:05+02:00", at(1'767'323'045)},
           Case{"2026-01-01T22:34:05-04:30", at(1'767'323'045)},
           Case{"2028-02-29T00:00:00z", at(1'835'395'200)},
       }) {
    CAPTURE(c.text);
    CHECK(parse_rfc3339(c.text) == c.want);
  }
  for (const char* text : {"",
                           "2026-01-02",
                           "2026-13-02T03:04:05Z",
                           "2026-02-30T03:04:05Z",
                           "2026-01-02T24:04:05Z",
                           "2026-01-02T03:04:05",
                           "2026-01-02T03:04:05.Z",
                           "2026-01-02T03:04:05Zx",
                           "1969-12-31T23:59:59Z",
                           "+026-01-02T03:04:05Z",
                           "2026-01-02T03:04:05+0200"}) {
    CAPTURE(text);
    CHECK(!parse_rfc3339(text));
  }
  CHECK(format_rfc3339(at(1'767'323'045, 999'999)) == "2026-01-02T03:04:05Z");
  CHECK(format_rfc3339_micro(at(1'767'323'045, 42)) == "2026-01-02T03:04:05.000042Z");
}

TEST_CASE("http dates and Retry-After") {
  CHECK(parse_http_date("Fri, 02 Jan 2026 03:04:05 GMT") == at(1'767'323'045));
  CHECK(!parse_http_date("Friday, 02-Jan-26 03:04:05 GMT"));
  CHECK(!parse_http_date("Fri, 02 Foo 2026 03:04:05 GMT"));
  CHECK(!parse_http_date("Fri, 02 anF 2026 03:04:05 GMT"));
  const WallTime now = at(1'767'323'000);
  CHECK(parse_retry_after("120", now) == std::chrono::seconds(120));
  CHECK(parse_retry_after("Fri, 02 Jan 2026 03:04:05 GMT", now) == std::chrono::seconds(45));
  CHECK(parse_retry_after("Fri, 02 Jan 2026 03:04:05 GMT", at(1'800'000'000)) == Duration{});
  CHECK(parse_retry_after("9223372036854775807", now) == std::chrono::hours(24 * 366));
  CHECK(!parse_retry_after("-5", now));
  CHECK(!parse_retry_after("soon", now));
}

TEST_CASE("epoch seconds") {
  CHECK(wall_time_from_seconds(1420070400.5) == at(1'420'070'400, 500'000));
  CHECK(!wall_time_from_seconds(-1));
  CHECK(!wall_time_from_seconds(1e30));
}

}  // namespace imagefs_guard::time_text_test
