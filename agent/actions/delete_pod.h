#pragma once
/// Carries out DeletePod: reads the pod, then deletes it with its uid and the resource version
/// just read, which proves that it has not started meanwhile.

#include "agent/actions/action_runner.h"
#include "agent/actions/request_chain.h"
#include "agent/core/action.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

class DeletePodRunner {
 public:
  /// Both outlive it.
  DeletePodRunner(KubeApi& api, const Policy& policy) : chains_(api), policy_(policy) {}

  void start(const DeletePod& action, ActionDone done);

 private:
  void on_pod(RequestChains::Id id, const DeletePod& action, const Pod& pod);

  RequestChains chains_;
  const Policy& policy_;
};

}  // namespace imagefs_guard
