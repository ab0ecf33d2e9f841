#include "agent/core/stage_reasons.h"

#include <doctest/doctest.h>

#include "agent/core/decide.h"
#include "tests/unit/builders.h"

namespace imagefs_guard::stage_reasons_test {
namespace {

using testing::gib;
using testing::layer;
using testing::TestNode;

std::vector<std::string> reasons(const TestNode& node, const Memory& memory = {}) {
  const Policy policy;
  return stage_reasons(node.snapshot_, policy, decide(node.snapshot_, memory, policy));
}

TEST_CASE("a quiet node says so") {
  CHECK(reasons(TestNode(gib(2000), gib(900), gib(200))) ==
        std::vector<std::string>{"free space is above the floor, and no pull is held"});
}

TEST_CASE("what speaks for a stage is said, the gravest first") {
  TestNode node(gib(2000), gib(195), gib(200));
  node.image("etl", 1, {layer(1, gib(200), gib(450))}).pod({.name = "flow", .image = "etl"});
  node.snapshot_.node->disk_pressure = true;
  const auto said = reasons(node);
  REQUIRE(said.size() == 3);
  CHECK(said[0].starts_with("the kubelet reports DiskPressure"));
  CHECK(said[1].starts_with("only -0.05 GiB lie between free space and the floor"));
  CHECK(said[2].starts_with("the pull of etl is held: it needs 6.5 GiB"));
}

TEST_CASE("many held pulls don't make an endless list") {
  TestNode node(gib(2000), gib(300), gib(200));
  for (unsigned i = 1; i <= 20; ++i) {
    const std::string image = "etl-" + std::to_string(i);
    node.image(image, i, {layer(i, gib(200), gib(450))}).pod({.name = image, .image = image});
  }
  CHECK(reasons(node).size() < kReasonsMaximum);
}

TEST_CASE("the way down is explained") {
  TestNode node(gib(2000), gib(900), gib(200));
  node.snapshot_.taken_at += std::chrono::hours(1);
  node.snapshot_.runtime_observed_at = node.snapshot_.taken_at;
  Memory memory;
  memory.stage = {.stage = Stage::Guard,
                  .calm_since = node.snapshot_.taken_at - std::chrono::minutes(4),
                  .started = true};
  CHECK(reasons(node, memory) ==
        std::vector<std::string>{
            "nothing has spoken for it for 4 min; it ends after 10 min of calm"});
  node.snapshot_.filesystems->front().available_bytes = gib(230);
  memory.stage.calm_since.reset();
  CHECK(reasons(node, memory) ==
        std::vector<std::string>{"nothing speaks for it any more, but less than 0.50 GiB above the "
                                 "floor is too little to end it"});
}

TEST_CASE("what can't be seen is no reason to be silent") {
  TestNode node(gib(2000), gib(900), gib(200));
  node.snapshot_.filesystems.reset();
  const auto said = reasons(node);
  REQUIRE(said.size() == 2);
  CHECK(said[0] == "the image filesystem can't be observed");
  CHECK(said[1].starts_with("no pull could be judged for 0 s"));
}

}  // namespace
}  // namespace imagefs_guard::stage_reasons_test
