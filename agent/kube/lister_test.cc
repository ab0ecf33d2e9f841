#include "agent/kube/lister.h"

#include <doctest/doctest.h>

#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::lister_test {
namespace {

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 1}};
  Lister lister{api};
  std::vector<std::string> names;
  std::optional<Error> error;
  int done = 0;

  void list(const std::string& path, const std::string& labels) {
    names.clear();
    lister.start(
        {.resource = "jobs", .path = path, .label_selector = labels},
        [this](std::string_view json) -> Result<ListMetadata> {
          JobList page = TRY(parse_job_list(json));
          for (const Job& job : page.jobs) {
            names.push_back(job.name);
          }
          return std::move(page.metadata);
        },
        [this](std::optional<Error> outcome) {
          ++done;
          error = std::move(outcome);
        });
    loop.run_ready();
  }

  void put(const std::string& namespace_name, const std::string& name, const std::string& labels) {
    server.put("/apis/batch/v1/namespaces/" + namespace_name + "/jobs/" + name,
               R"({"metadata":{"labels":{)" + labels + "}}}");
  }
};

}  // namespace

TEST_CASE("lister: all pages, by label, of one namespace or of all") {
  World world;
  world.server.set_page_size(2);
  for (const char* name : {"1", "2", "3", "4", "5"}) {
    world.put("a", name, R"("held":"true")");
  }
  world.put("b", "6", R"("held":"true")");
  world.put("b", "7", "");
  world.list("/apis/batch/v1/jobs", "held=true");
  CHECK(world.done == 1);
  CHECK_FALSE(world.error.has_value());
  CHECK(world.names.size() == 6);
  world.list("/apis/batch/v1/namespaces/b/jobs", "");
  CHECK(world.names.size() == 2);
  world.list("/apis/batch/v1/jobs", "nobody");
  CHECK(world.names.empty());
}

TEST_CASE("lister: an error ends it, the next one begins anew") {
  World world;
  world.put("a", "1", "");
  world.server.fail_next(1, 410);
  world.list("/apis/batch/v1/jobs", "");
  REQUIRE(world.error.has_value());
  CHECK(world.error->kind == ErrorKind::FailedPrecondition);
  world.list("/apis/batch/v1/jobs", "");
  CHECK_FALSE(world.error.has_value());
  CHECK(world.names.size() == 1);
}

}  // namespace imagefs_guard::lister_test
