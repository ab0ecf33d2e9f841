#include "agent/core/stage.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/unit/builders.h"

namespace imagefs_guard::stage_test {
namespace {

using testing::gib;

struct Observation {
  int minute;
  std::int64_t available;
  bool disk_pressure;
};

constexpr std::int64_t kFloor = gib(540);

/// Plays case 4's node minute by minute; gives the stage after each observation.
std::vector<Stage> play(const std::vector<Observation>& observations) {
  const Policy policy{.guard_margin_bytes = gib(60),
                      .clear_margin_bytes = gib(260),
                      .clear_after = std::chrono::minutes(10)};
  std::vector<Stage> stages;
  StageState state;
  for (const Observation& seen : observations) {
    state = next_stage(state,
                       {.taken_at = MonotonicTime{} + std::chrono::minutes(seen.minute),
                        .disk_pressure = seen.disk_pressure,
                        .near_floor = seen.available < kFloor + policy.guard_margin_bytes,
                        .has_room = seen.available >= kFloor + policy.clear_margin_bytes},
                       policy);
    stages.push_back(state.stage);
  }
  return stages;
}

int taint_writes(const std::vector<Stage>& stages) {
  int writes = 0;
  bool tainted = false;
  for (const Stage stage : stages) {
    const bool wanted = stage == Stage::StandDown ? tainted : stage == Stage::Guard;
    writes += wanted != tainted ? 1 : 0;
    tainted = wanted;
  }
  return writes;
}

TEST_CASE("case 4: the flapper costs two taint writes") {
  const std::vector<Stage> stages = play({{0, gib(640), false},
                                          {1, gib(590), false},
                                          {2, gib(520), true},
                                          {3, gib(810), true},
                                          {5, gib(800), true},
                                          {6, gib(800), true},
                                          {7, gib(580), false},
                                          {8, gib(820), false},
                                          {12, gib(830), false},
                                          {17, gib(830), false},
                                          {18, gib(830), false},
                                          {19, gib(830), false}});
  const std::vector<Stage> want = {Stage::Clear,
                                   Stage::Guard,
                                   Stage::StandDown,
                                   Stage::StandDown,
                                   Stage::StandDown,
                                   Stage::StandDown,
                                   Stage::Guard,
                                   Stage::Guard,
                                   Stage::Guard,
                                   Stage::Guard,
                                   Stage::Clear,
                                   Stage::Clear};
  CHECK(stages == want);
  CHECK(taint_writes(stages) == 2);
}

TEST_CASE("case 4, variant: while the kubelet stays under pressure nothing is cleared") {
  const std::vector<Stage> stages = play({{0, gib(640), false},
                                          {1, gib(590), false},
                                          {2, gib(520), true},
                                          {3, gib(810), true},
                                          {8, gib(830), true},
                                          {18, gib(830), true},
                                          {30, gib(830), true}});
  CHECK(stages.back() == Stage::StandDown);
  CHECK(taint_writes(stages) == 1);
}

TEST_CASE("a queue warns, and the warning does not flap") {
  const Policy policy{.clear_after = std::chrono::minutes(10)};
  StageState state;
  const auto at = [](int minute) { return MonotonicTime{} + std::chrono::minutes(minute); };
  state =
      next_stage(state, {.taken_at = at(0), .has_room = true, .something_queued = true}, policy);
  CHECK(state.stage == Stage::Warn);
  state = next_stage(state, {.taken_at = at(1), .has_room = true}, policy);
  CHECK(state.stage == Stage::Warn);
  state = next_stage(state, {.taken_at = at(11), .has_room = true}, policy);
  CHECK(state.stage == Stage::Clear);
}

}  // namespace
}  // namespace imagefs_guard::stage_test
