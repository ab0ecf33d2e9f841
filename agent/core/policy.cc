#include "agent/core/policy.h"

#include <algorithm>

namespace imagefs_guard {

namespace {

constexpr const char* kName = "app.kubernetes.io/name";

/// Zero to JupyterHub, before and after its chart took to the recommended labels. Placeholders
/// and image pullers are left out on purpose: they exist to give way.
void add_jupyterhub(std::vector<LabelMatch>& matches) {
  for (const char* app : {"app", kName}) {
    for (const char* component_key : {"component", kComponentLabel}) {
      for (const char* component : {"hub", "proxy", "autohttps", "user-scheduler"}) {
        matches.push_back({{{app, "jupyterhub"}, {component_key, component}}});
      }
    }
  }
}

void add_nebari(std::vector<LabelMatch>& matches) {
  for (const char* component : {"traefik-ingress",
                                "jupyterhub-ssh",
                                "jupyterhub-sftp",
                                "dask-gateway-gateway",
                                "dask-gateway-controller"}) {
    matches.push_back({{{kComponentLabel, component}}});
  }
  for (const char* role : {"*-conda-store-server", "*-conda-store-worker", "*-nfs"}) {
    matches.push_back({{{"role", role}}});
  }
  matches.push_back({{{"app", "forwardauth-pod"}}});
  matches.push_back({{{kName, "keycloak"}}});
  matches.push_back({{{kName, "keycloakx"}}});
}

void add_dask_gateway(std::vector<LabelMatch>& matches) {
  for (const char* component : {"gateway", "controller", "traefik", "dask-scheduler"}) {
    matches.push_back({{{kName, "dask-gateway"}, {kComponentLabel, component}}});
  }
}

bool value_matches(const std::string& wanted, const std::string& value) {
  return wanted.starts_with('*') ? value.ends_with(wanted.substr(1)) : value == wanted;
}

}  // namespace

bool matches(const LabelMatch& match, const std::map<std::string, std::string>& labels) {
  return !match.labels.empty() && std::ranges::all_of(match.labels, [&labels](const auto& wanted) {
    const auto found = labels.find(wanted.first);
    return found != labels.end() && value_matches(wanted.second, found->second);
  });
}

std::vector<LabelMatch> default_protected_labels() {
  std::vector<LabelMatch> matches;
  add_jupyterhub(matches);
  add_nebari(matches);
  add_dask_gateway(matches);
  for (const char* name : {"traefik", "prefect-server", "prefect-worker", "imagefs-guard"}) {
    matches.push_back({{{kName, name}}});
  }
  return matches;
}

Policy default_policy() {
  Policy policy;
  policy.protected_labels = default_protected_labels();
  return policy;
}

}  // namespace imagefs_guard
