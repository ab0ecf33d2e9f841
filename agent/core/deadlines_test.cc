#include "agent/core/deadlines.h"

#include <doctest/doctest.h>

#include "tests/unit/drain_world.h"

namespace imagefs_guard::deadlines_test {

using testing::DrainWorld;
using testing::gib;
using testing::told;

TEST_CASE("deadlines: said before they pass, in words") {
  const Demand demand{.download_bytes = gib(400), .unpack_mid_bytes = gib(900)};
  CHECK(pull_duration(demand, {std::int64_t{100} << 20, std::int64_t{100} << 20}) ==
        std::chrono::milliseconds(133'120));
  CHECK(pull_duration(demand, {0, 0}) > std::chrono::hours(1));

  DrainWorld world;
  world.pod().controller.reset();
  world.pod().labels = {{"component", "singleuser-server"}};
  world.run(5);
  CHECK(told(world.events, "DeadlineAtRisk").empty());
  world.run(200);
  CHECK(told(world.events, "DeadlineAtRisk") ==
        "pull of 12.9 GiB is held and will take about 102 s once it may go; the hub gives up "
        "after 300 s, that is in 101 s");
  world.run(200);
  CHECK(told(world.events, "DeadlineAtRisk").ends_with("the hub has given up after 300 s"));

  DrainWorld job;
  job.taint_works = false;
  job.job->active_deadline_seconds = 90;
  job.job->start_time = job.node.snapshot_.wall_time;
  job.run(5);
  CHECK(told(job.events, "DeadlineAtRisk").find("the Job gives up after 90 s") !=
        std::string::npos);
}

}  // namespace imagefs_guard::deadlines_test
