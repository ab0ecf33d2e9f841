#include "agent/wire/yaml.h"

#include <doctest/doctest.h>

#include <string>

namespace imagefs_guard::yaml_test {

TEST_CASE("yaml: scalars by the core schema, quoted ones as text") {
  const auto document = parse_yaml(
      "a: 10%\nb: 85\nc: \"85\"\nd: true\ne: ~\nf: [1, x]\ng: {h: 1.5}\ni: 0x1f\nj: nan\nk: -3\n");
  REQUIRE(document);
  const JsonView root = document->root();
  CHECK(root["a"].text() == "10%");
  CHECK(root["b"].integer() == 85);
  CHECK(root["c"].text() == "85");
  CHECK(root["d"].boolean() == true);
  CHECK(root["e"].is_null());
  CHECK(root["f"].at(1).text() == "x");
  CHECK(root["g"]["h"].number() == 1.5);
  CHECK(root["i"].text() == "0x1f");
  CHECK(root["j"].text() == "nan");
  CHECK(root["k"].integer() == -3);
  CHECK(parse_yaml("{\"json\": [1, null]}")->root()["json"].at(0).integer() == 1);
  CHECK(parse_yaml("")->root().is_null());
}

TEST_CASE("yaml: errors name the line, bombs are refused") {
  CHECK(parse_yaml("a: 1\nb: [\n").error().message.starts_with("line "));
  CHECK(parse_yaml("a: 1\n\tb: 2\n").error().kind == ErrorKind::InvalidArgument);
  CHECK(parse_yaml("? [a]\n: 1\n").error().kind == ErrorKind::InvalidArgument);
  CHECK(parse_yaml(std::string(5000, '[')).error().kind == ErrorKind::InvalidArgument);
  CHECK(parse_yaml("aaaa", {.bytes = 3}).error().kind == ErrorKind::ResourceExhausted);
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string from = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + from;
    for (int k = 0; k < 9; ++k) {
      bomb += "," + from;
    }
    bomb += "]\n";
  }
  CHECK(parse_yaml(bomb).error().kind == ErrorKind::ResourceExhausted);
}

TEST_CASE("yaml: an alias to its own parent ends") {
  CHECK(!parse_yaml("&a [*a]"));
}

}  // namespace imagefs_guard::yaml_test
