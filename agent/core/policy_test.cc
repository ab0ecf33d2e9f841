#include "agent/core/policy.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace imagefs_guard::policy_test {

TEST_CASE("policy: who is protected by default") {
  using Labels = std::map<std::string, std::string>;

  struct Case {
    const char* name;
    Labels labels;
    bool want;
  };

  const char* const kComponent = "app.kubernetes.io/component";
  const char* const kName = "app.kubernetes.io/name";
  for (const Case& c : {
           Case{"hub", {{"app", "jupyterhub"}, {"component", "hub"}, {"release", "r"}}, true},
           Case{"hub, new labels", {{kName, "jupyterhub"}, {kComponent, "hub"}}, true},
           Case{"user scheduler", {{"app", "jupyterhub"}, {"component", "user-scheduler"}}, true},
           Case{"placeholder", {{"app", "jupyterhub"}, {"component", "user-placeholder"}}, false},
           Case{"puller", {{"app", "jupyterhub"}, {"component", "hook-image-puller"}}, false},
           Case{"user server", {{"app", "jupyterhub"}, {"component", "singleuser-server"}}, false},
           Case{"someone's hub", {{"component", "hub"}}, false},
           Case{"ingress", {{kComponent, "traefik-ingress"}}, true},
           Case{"conda store", {{"role", "qhub-conda-store-server"}}, true},
           Case{"conda store elsewhere", {{"role", "conda-store-server-test"}}, false},
           Case{"dask gateway", {{kName, "dask-gateway"}, {kComponent, "controller"}}, true},
           Case{"dask scheduler", {{kName, "dask-gateway"}, {kComponent, "dask-scheduler"}}, true},
           Case{"dask worker", {{kName, "dask-gateway"}, {kComponent, "dask-worker"}}, false},
           Case{"prefect worker", {{kName, "prefect-worker"}}, true},
           Case{"flow run", {{"prefect.io/flow-run-id", "x"}}, false},
           Case{"keycloak", {{kName, "keycloak"}}, true},
           Case{"traefik", {{kName, "traefik"}}, true},
           Case{"nothing", {}, false},
       }) {
    CAPTURE(c.name);
    const Policy policy = default_policy();
    CHECK(std::ranges::any_of(policy.protected_labels, [&](const LabelMatch& match) {
            return matches(match, c.labels);
          }) == c.want);
  }
  CHECK(!matches(LabelMatch{}, {{"a", "b"}}));
}

}  // namespace imagefs_guard::policy_test
