#include "agent/status/counters.h"

#include <doctest/doctest.h>

namespace imagefs_guard::counters_test {

TEST_CASE("a drain is counted once, by its owner") {
  AgentCounters counters;
  const std::vector<DrainReport> reports = {
      {.pod = "flows/a", .owner = "Prefect flow run", .method = "S", .sentence = ""},
      {.pod = "web/b", .owner = "ReplicaSet", .method = "delete", .sentence = ""}};
  const NamedObject flow{.namespace_name = "flows", .name = "a", .uid = "1"};
  const NamedObject web{.namespace_name = "web", .name = "b", .uid = "2"};
  SuspendJob suspend;
  suspend.pod = flow;
  counters.count_outcome(suspend, reports, "ok");
  counters.count_outcome(DeletePod{.pod = flow, .leaving = true}, reports, "ok");
  counters.count_outcome(DeletePod{.pod = web}, reports, "ok");
  counters.count_outcome(DeletePod{.pod = web}, reports, "Aborted");
  counters.count_outcome(DeletePod{.pod = {.name = "c"}}, reports, "ok");
  counters.count_outcome(MarkDisruption{.pod = web}, reports, "ok");
  counters.count_outcome(ConfirmPodGone{.pod = web}, reports, "ok");
  CHECK(counters.drains() == std::map<DrainLabels, std::uint64_t>{
                                 {{"Prefect flow run", "S", "ok"}, 1},
                                 {{"ReplicaSet", "delete", "ok"}, 1},
                                 {{"ReplicaSet", "delete", "Aborted"}, 1},
                                 {{"unknown", "unknown", "ok"}, 1},
                             });
}

TEST_CASE("cancels are counted by result, ticks by their time") {
  AgentCounters counters;
  counters.count_outcome(CancelPull{}, {}, "ok");
  counters.count_outcome(CancelPull{}, {}, "ok");
  counters.count_outcome(CancelPull{}, {}, "skipped");
  counters.count_outcome(SetTaint{}, {}, "ok");
  CHECK(counters.cancels() == std::map<std::string, std::uint64_t>{{"ok", 2}, {"skipped", 1}});
  counters.count_tick(std::chrono::microseconds(300));
  CHECK(counters.ticks() == 1);
  CHECK(counters.decide_times().count() == 1);
}

}  // namespace imagefs_guard::counters_test
