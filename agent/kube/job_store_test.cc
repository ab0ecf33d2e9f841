#include "agent/kube/job_store.h"

#include <doctest/doctest.h>

#include "tests/unit/fake_loop.h"

namespace imagefs_guard::job_store_test {

TEST_CASE("job store: the latest answer counts, doubts end with the next one") {
  FakeLoop loop;
  int changes = 0;
  JobStore store(loop, [&] { ++changes; });
  NodeSnapshot snapshot;
  store.put(Job{.namespace_name = "b", .name = "j", .uid = "1"});
  store.put_gone("a", "z");
  store.doubt("b", "j");
  store.doubt("b", "unknown");
  store.put(PodCheck{.uid = "u", .gone = true});
  CHECK(changes == 4);
  store.contribute(snapshot);
  REQUIRE(snapshot.jobs.size() == 2);
  CHECK(snapshot.jobs[0].name == "z");
  CHECK_FALSE(snapshot.jobs[0].job.has_value());
  CHECK(snapshot.jobs[1].job->uid == "1");
  CHECK(snapshot.jobs[1].doubtful);
  CHECK(snapshot.jobs[1].observed_at == loop.now());
  CHECK(snapshot.pod_checks.size() == 1);

  store.put(Job{.namespace_name = "b", .name = "j", .uid = "2"});
  store.contribute(snapshot);
  CHECK(snapshot.jobs[1].job->uid == "2");
  CHECK_FALSE(snapshot.jobs[1].doubtful);
}

TEST_CASE("job store: bounded in time and number") {
  FakeLoop loop;
  JobStore store(loop, [] {});
  NodeSnapshot snapshot;
  for (int i = 0; i < 600; ++i) {
    store.put(Job{.namespace_name = "n", .name = std::to_string(i)});
    store.put(PodCheck{.uid = std::to_string(i)});
  }
  store.contribute(snapshot);
  CHECK(snapshot.jobs.size() == 512);
  CHECK(snapshot.pod_checks.size() == 512);
  loop.advance(std::chrono::minutes(16));
  store.contribute(snapshot);
  CHECK(snapshot.jobs.empty());
  CHECK(snapshot.pod_checks.empty());
}

}  // namespace imagefs_guard::job_store_test
