#pragma once
/// Carries out SetCondition: our node condition in one strategic-merge patch of nodes/status, where
/// conditions merge by type, so that the kubelet's stay as they are.

#include <string>

#include "agent/actions/action_runner.h"
#include "agent/actions/node_patch.h"
#include "agent/kube/api_client.h"

namespace imagefs_guard {

class SetConditionRunner {
 public:
  /// `api` outlives it.
  SetConditionRunner(KubeApi& api, const std::string& node_name);

  /// A second start ends the first, whose `done` then gets Cancelled at once. Destroying the runner
  /// cancels without a callback.
  void start(const SetCondition& action, ActionDone done);

 private:
  KubeApi& api_;
  NodePatch patch_;
};

}  // namespace imagefs_guard
