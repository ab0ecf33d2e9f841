#include "agent/wire/quantity.h"

#include <doctest/doctest.h>

#include <bit>
#include <limits>
#include <string>

namespace imagefs_guard::quantity_test {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST_CASE("quantity: as the API reads it") {
  struct Case {
    const char* text;
    std::int64_t want;
  };

  constexpr std::int64_t kMaximum = std::numeric_limits<std::int64_t>::max();
  for (const Case& c : {
           Case{"0", 0},
           Case{"100Mi", 104'857'600},
           Case{"1Gi", 1'073'741'824},
           Case{"1.5Gi", 1'610'612'736},
           Case{"5G", 5'000'000'000},
           Case{"+7", 7},
           Case{"-7k", -7000},
           Case{"1500m", 2},
           Case{"1n", 1},
           Case{"0.1", 1},
           Case{".5Ki", 512},
           Case{"1e3", 1000},
           Case{"1E3", 1000},
           Case{"12e-1", 2},
           Case{"1E", 1'000'000'000'000'000'000},
           Case{"2997940Ki", 3'069'890'560},
           Case{"2275616480000000001", 2'275'616'480'000'000'001},
           Case{"9223372036854775807", kMaximum},
           Case{"7Ei", 8'070'450'532'247'928'832},
           Case{"8Ei", kMaximum},
           Case{"9223372036854775808", kMaximum},
           Case{"99999999999999999999999", kMaximum},
           Case{"1e999", kMaximum},
           Case{"1.00000000000000000000001", 2},
           Case{"000000000000000000000000001", 1},
       }) {
    CAPTURE(c.text);
    const auto value = parse_quantity(c.text);
    REQUIRE(value);
    CHECK(*value == c.want);
  }
  for (const char* text : {"",
                           "Mi",
                           "1MiB",
                           "1 Mi",
                           "1ki",
                           "--1",
                           "1.2.3",
                           "abc",
                           "1e",
                           "1ee3",
                           "0x10",
                           "10%",
                           "1e99999999999"}) {
    CAPTURE(text);
    CHECK(parse_quantity(text).error().kind == ErrorKind::InvalidArgument);
  }
  CHECK(!parse_quantity(std::string(1000, '1')));
}

TEST_CASE("percentage: the kubelet's float32, to the bit") {
  struct Case {
    const char* text;
    std::uint32_t bits;
  };

  for (const Case& c : {
           Case{"10%", 0x3dcccccd},
           Case{"15%", 0x3e19999a},
           Case{"5%", 0x3d4ccccd},
           Case{"0%", 0},
           Case{"-0%", 0},
           Case{"100%", 0x3f800000},
           Case{"7.5%", std::bit_cast<std::uint32_t>(7.5F / 100.0F)},
           Case{"16.1%%", std::bit_cast<std::uint32_t>(16.1F / 100.0F)},
           Case{"1e-60%", 0},
       }) {
    CAPTURE(c.text);
    const auto bits = parse_percentage(c.text);
    REQUIRE(bits);
    CHECK(*bits == c.bits);
  }
  for (const char* text : {"", "%", "10", "101%", "-1%", "nan%", "inf%", "1e60%", "ten%", "1 %"}) {
    CAPTURE(text);
    CHECK(parse_percentage(text).error().kind == ErrorKind::InvalidArgument);
  }
}

TEST_CASE("threshold: quantity, percentage or none") {
  CHECK(*parse_threshold_value("1.5Gi") == ThresholdValue{1'610'612'736, 0});
  CHECK(*parse_threshold_value("10%") == ThresholdValue{0, 0x3dcccccd});
  for (const char* text : {"", "0", "0%", "100%"}) {
    CAPTURE(text);
    CHECK(!parse_threshold_value(text)->is_set());
  }
  CHECK(!parse_threshold_value("-5Gi"));
  CHECK(!parse_threshold_value("five"));
  // 10 % of the volume of a quoted eviction message, as the kubelet computes it.
  CHECK(threshold_quantity(*parse_threshold_value("10%"), std::int64_t{98'831'908} * 1024) ==
        10'120'387'530);
}

TEST_CASE("duration: as Go reads it") {
  struct Case {
    const char* text;
    Duration want;
  };

  for (const Case& c : {
           Case{"0", Duration{}},
           Case{"0s", Duration{}},
           Case{"2m0s", minutes(2)},
           Case{"1h30m", minutes(90)},
           Case{"1.5h", minutes(90)},
           Case{"300ms", milliseconds(300)},
           Case{"5us", microseconds(5)},
           Case{"5\xc2\xb5s", microseconds(5)},
           Case{"999ns", Duration{}},
           Case{"-10s", -seconds(10)},
           Case{"1000000h", hours(1'000'000)},
       }) {
    CAPTURE(c.text);
    const auto value = parse_duration(c.text);
    REQUIRE(value);
    CHECK(*value == c.want);
  }
  for (const char* text : {"", "5", "5d", "s", "1h 2m", "99999999h", "10S", "-", "1e3s"}) {
    CAPTURE(text);
    CHECK(parse_duration(text).error().kind == ErrorKind::InvalidArgument);
  }
}

TEST_CASE("quantity and duration: format and back") {
  CHECK(format_quantity(0) == "0");
  CHECK(format_quantity(std::int64_t{512} << 20) == "512Mi");
  CHECK(format_quantity(1000) == "1000");
  CHECK(format_duration(Duration{}) == "0s");
  CHECK(format_duration(minutes(10)) == "10m");
  CHECK(format_duration(seconds(90) + milliseconds(5)) == "1m30s5ms");
  for (const char* text : {"10s", "1h30m", "250ms", "-5m"}) {
    CHECK(format_duration(*parse_duration(text)) == text);
  }
}

}  // namespace imagefs_guard::quantity_test
