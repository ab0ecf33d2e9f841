// untested: here; node_patch_test.cc covers both runners that share it

#include "agent/actions/set_condition.h"

#include <utility>

#include "agent/wire/kube_patch.h"

namespace imagefs_guard {

SetConditionRunner::SetConditionRunner(KubeApi& api, const std::string& node_name)
    : api_(api), patch_(api, node_name, "/status") {}

void SetConditionRunner::start(const SetCondition& action, ActionDone done) {
  std::string body = condition_patch(action, api_.loop().wall_now());
  patch_.start(KubeVerb::StrategicMergePatch, std::move(body), std::move(done));
}

}  // namespace imagefs_guard
