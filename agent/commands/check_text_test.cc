#include "agent/commands/check_text.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/unit/builders.h"

namespace imagefs_guard::check_text_test {
namespace {

using testing::digest;
using testing::gib;
using testing::layer;
using testing::TestNode;

constexpr const char* kLongName =
    "123456789012.dkr.ecr.us-east-2.amazonaws.com/teams/data/flows/etl:v1.2.3-longest";

CheckReport two_images() {
  TestNode node(gib(10000), gib(3000), gib(1000));
  const Layer base = layer(1, gib(150), gib(300));
  Layer guessed = layer(2, gib(350), gib(600));
  guessed.facts.clear();
  node.image(kLongName, 1, {base, guessed})
      .image("quay.io/y:1", 2, {base, layer(3, gib(250), gib(500))})
      .unpacked(1);
  return check_images(node.snapshot_, default_policy(), {kLongName, "quay.io/y:1"});
}

std::size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::size_t most = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto width = std::ranges::count_if(
        line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; });
    most = std::max(most, static_cast<std::size_t>(width));
  }
  return most;
}

TEST_CASE("sizes in the unit that people would use") {
  CHECK(size_text(gib(1290)) == "12.9 GiB");
  CHECK(size_text(640LL << 20) == "640 MiB");
  CHECK(size_text((3LL << 20) + (400LL << 10)) == "3.4 MiB");
  CHECK(size_text(2048) == "2.0 KiB");
  CHECK(size_text(12) == "12 B");
  CHECK(size_text(0) == "0 B");
}

TEST_CASE("the table fits the terminal, and nothing is cut where there is none") {
  const CheckReport report = two_images();
  for (const int columns : {80, 100, 150}) {
    CAPTURE(columns);
    const std::string table =
        check_table(report, {.name = "this node"}, {.columns = columns, .layers = true});
    // Names stand alone on lines of their own and in sentences; they are never broken.
    CHECK(widest(table) <= std::max<std::size_t>(static_cast<std::size_t>(columns), 80));
  }
  const std::string narrow = check_table(report, {.name = "this node"}, {.columns = 80});
  CHECK(narrow.find("…") != std::string::npos);
  const std::string wide = check_table(report, {.name = "this node"}, {});
  CHECK(wide.find("…") == std::string::npos);
  CHECK(wide.find("together") != std::string::npos);
  CHECK(wide.find("Smallest volume that fits all of them: ") != std::string::npos);
  CHECK(wide.find("this node: 100.0 GiB, 30.0 free, floor 10.0 (nodefs.available)\n") == 0);
}

TEST_CASE("one image has no sum; an unknown one has no numbers") {
  TestNode node(gib(10000), gib(3000), gib(1000));
  node.image("x", 1, {layer(1, gib(10), gib(20))});
  const std::string one =
      check_table(check_images(node.snapshot_, default_policy(), {"x"}), {.name = "n"}, {});
  CHECK(one.find("together") == std::string::npos);
  const std::string none =
      check_table(check_images(node.snapshot_, default_policy(), {"gone"}), {.name = "n"}, {});
  CHECK(none.find("?  Unknown\n") != std::string::npos);
  CHECK(none.find("gone can't be judged: no answer in time\n") != std::string::npos);
  CHECK(none.find("Smallest volume") == std::string::npos);
}

TEST_CASE("JSON: bytes as integers, what is not known is null") {
  const auto json = nlohmann::json::parse(
      check_json(two_images(), {.name = "EKS AL2023 with 20 GiB", .assumption = "4 GiB used"}));
  CHECK(json["v"] == 1);
  CHECK(json["verdict"] == "NeverFits");
  CHECK(json["fits"] == false);
  CHECK(json["node"]["availableBytes"] == gib(3000));
  CHECK(json["node"]["floorFrom"] == "nodefs.available");
  CHECK(json["node"]["assumption"] == "4 GiB used");
  REQUIRE(json["images"].size() == 2);
  CHECK(json["images"][0]["image"] == kLongName);
  const auto& layers = json["images"][0]["layers"];
  CHECK(layers[0]["state"] == "here");
  CHECK(layers[0]["unpackedBytes"].is_null());
  CHECK(layers[1]["state"] == "to come");
  CHECK(layers[1]["sizeFrom"] == "prior");
  CHECK(layers[1]["unpackedBytes"]["low"] < layers[1]["unpackedBytes"]["high"]);
  CHECK(json["images"][0]["needs"]["layersOfUnknownSize"] == 1);
  CHECK(json["total"]["layersMissing"] == 2);
  CHECK(json["smallestVolumeGib"].is_number_integer());

  TestNode node(gib(10000), gib(3000), gib(1000));
  node.snapshot_.filesystems.reset();
  const auto blind = nlohmann::json::parse(
      check_json(check_images(node.snapshot_, default_policy(), {"x"}), {.name = "this node"}));
  CHECK(blind["node"]["availableBytes"].is_null());
  CHECK(blind["smallestVolumeGib"].is_null());
  CHECK(blind["images"][0]["needs"].is_null());
  CHECK(blind["images"][0]["digest"].is_null());
}

TEST_CASE("what no JSON could hold is replaced, not a crash") {
  TestNode node(gib(10000), gib(3000), gib(1000));
  const std::string text = check_json(check_images(node.snapshot_, default_policy(), {"bad\xff"}),
                                      {.name = "this node"});
  CHECK(nlohmann::json::parse(text)["verdict"] == "Unknown");
}

}  // namespace
}  // namespace imagefs_guard::check_text_test
