#include "agent/io/log_line.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

namespace imagefs_guard::log_line_test {

namespace {

LogRecord record(std::string message, std::vector<LogField> fields = {}) {
  return {.level = LogLevel::Warn,
          .event = "pull_held",
          .logger = "runtime",
          .message = std::move(message),
          .fields = std::move(fields)};
}

}  // namespace

TEST_CASE("a JSON line has the stable fields, typed") {
  const std::string line = format_log_line(
      record("held", {{"digest", "sha256:ab"}, {"bytes_needed", std::int64_t{-5}}, {"late", true}}),
      {.node = "n1", .time = WallTime(std::chrono::milliseconds(1'700'000'000'045)), .dropped = 3});
  CHECK(line ==
        "{\"time\":\"2023-11-14T22:13:20.045Z\",\"level\":\"warn\",\"event\":\"pull_held\","
        "\"logger\":\"runtime\",\"msg\":\"held\",\"node\":\"n1\",\"dropped\":3,"
        "\"digest\":\"sha256:ab\",\"bytes_needed\":-5,\"late\":true}\n");
}

TEST_CASE("any bytes make valid JSON") {
  std::string all;
  for (int c = 0; c < 256; ++c) {
    all.push_back(static_cast<char>(c));
  }
  for (const std::string& text : {all,
                                  std::string("\xed\xa0\x80"),
                                  std::string("\xc0\xaf"),
                                  std::string("\xf4\x90\x80\x80"),
                                  std::string("\xe2\x82"),
                                  std::string("ok \xe2\x82\xac \xf0\x9f\x98\x80")}) {
    const std::string line = format_log_line(record(text, {{"value", text}}), {});
    CHECK(line.find('\n') == line.size() - 1);
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    CHECK_FALSE(parsed.is_discarded());
  }
  const auto parsed =
      nlohmann::json::parse(format_log_line(record("ok \xe2\x82\xac \"\\\n"), {}), nullptr, false);
  CHECK(parsed.at("msg").get<std::string>() == "ok \xe2\x82\xac \"\\\n");
}

TEST_CASE("a line stays below the runtime's limit") {
  std::vector<LogField> fields;
  for (int i = 0; i < 20; ++i) {
    fields.push_back({"err", std::string(30'000, '\x01')});
  }
  for (const LogFormat format : {LogFormat::Json, LogFormat::Text}) {
    const std::string line = format_log_line(record(std::string(100'000, 'x'), fields),
                                             {.format = format, .node = std::string(9999, 'n')});
    CHECK(line.size() < kLogLineLimit);
    CHECK(line.ends_with('\n'));
    if (format == LogFormat::Json) {
      const auto parsed = nlohmann::json::parse(line, nullptr, false);
      REQUIRE_FALSE(parsed.is_discarded());
      CHECK(parsed.at("truncated").get<bool>());
    }
  }
}

TEST_CASE("text is for people") {
  CHECK(format_log_line(record("a \"b\"", {{"n", std::int64_t{1}}, {"s", "x y"}}),
                        {.format = LogFormat::Text, .time = WallTime{}}) ==
        "1970-01-01T00:00:00.000Z warn pull_held: a \\\"b\\\" n=1 s=\"x y\"\n");
}

TEST_CASE("levels are read by name") {
  CHECK(parse_log_level("debug") == LogLevel::Debug);
  CHECK(parse_log_level("error") == LogLevel::Error);
  CHECK(parse_log_level("Error") == std::nullopt);
}

}  // namespace imagefs_guard::log_line_test
