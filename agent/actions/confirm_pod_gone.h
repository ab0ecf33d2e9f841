#pragma once
/// Carries out ConfirmPodGone: one quorum GET of the pod, its answer into the JobStore.

#include "agent/actions/action_runner.h"
#include "agent/actions/request_chain.h"
#include "agent/core/action.h"
#include "agent/kube/job_store.h"

namespace imagefs_guard {

class ConfirmPodGoneRunner {
 public:
  /// Both outlive it.
  ConfirmPodGoneRunner(KubeApi& api, JobStore& store) : chains_(api), store_(store) {}

  void start(const ConfirmPodGone& action, ActionDone done);

 private:
  RequestChains chains_;
  JobStore& store_;
};

}  // namespace imagefs_guard
