#include "agent/wire/json.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace imagefs_guard::json_test {

TEST_CASE("json: absent, wrong and unfitting values all read as absent") {
  const auto document = parse_json(
      R"({"s":"x","i":-5,"f":1.0,"e":1e3,"big":9223372036854775807,"over":9223372036854775808,
          "huge":1e999999,"b":true,"n":null,"a":[1,"2"],"o":{"z":1,"a":2}})");
  // 1e999999 does not fit a double: the whole text is refused, no infinity gets in.
  CHECK(!document);

  const auto good = parse_json(
      R"({"s":"x","i":-5,"f":1.0,"e":1e3,"big":9223372036854775807,"over":9223372036854775808,
          "b":true,"n":null,"a":[1,"2"],"o":{"z":1,"a":2}})");
  REQUIRE(good);
  const JsonView root = good->root();
  CHECK(root["s"].text() == "x");
  CHECK(root["i"].integer() == -5);
  CHECK(!root["f"].integer());
  CHECK(!root["e"].integer());
  CHECK(root["e"].number() == 1000.0);
  CHECK(root["big"].integer() == INT64_MAX);
  CHECK(!root["over"].integer());
  CHECK(root["b"].boolean() == true);
  CHECK(!root["n"]);
  CHECK(root["n"].is_null());
  CHECK(root["a"].size() == 2);
  CHECK(root["a"].at(1).text() == "2");
  CHECK(root["a"].at(2).is_null());
  CHECK(root["none"]["deeper"].at(3)["still"].text().empty());
  CHECK(root["i"].scalar_text() == "-5");
  CHECK(root["o"].scalar_text().empty());
  std::vector<std::string> keys;
  root["o"].for_each_member([&](std::string_view key, JsonView) { keys.emplace_back(key); });
  CHECK(keys == std::vector<std::string>{"a", "z"});
}

TEST_CASE("json: bounds") {
  std::string deep(65, '[');
  CHECK(parse_json(deep).error().message == "JSON nested deeper than 64");
  CHECK(parse_json(std::string(100'000, '[')).error().kind == ErrorKind::InvalidArgument);
  CHECK(parse_json(R"(["[[[[[[","\"[[["])", {.bytes = 100, .depth = 1}).has_value());
  CHECK(parse_json("[1,2,3]", {.bytes = 3}).error().kind == ErrorKind::ResourceExhausted);
  for (const char* text : {"", "{", "nul", "[1,]", "{\"a\":1}x", "\xff\xfe", "\"\xc3\""}) {
    CAPTURE(text);
    CHECK(parse_json(text).error().kind == ErrorKind::InvalidArgument);
  }
}

TEST_CASE("json: managedFields is skipped in Kubernetes objects only") {
  const char* text =
      R"({"metadata":{"managedFields":[{"a":1}],"name":"x"},"spec":{"y":[1,{"z":2}]}})";
  const auto kept = parse_json(text);
  const auto skipped = parse_kube_object(text);
  REQUIRE(kept);
  REQUIRE(skipped);
  CHECK(kept->root()["metadata"]["managedFields"].size() == 1);
  CHECK(skipped->root()["metadata"]["managedFields"].is_null());
  CHECK(skipped->root()["metadata"]["name"].text() == "x");
  CHECK(skipped->root()["spec"]["y"].at(1)["z"].integer() == 2);
}

}  // namespace imagefs_guard::json_test
