#pragma once
/// Carries out DeleteJob: in the foreground, with uid and resource version. Only ordered for runs
/// that are lost already, by opt-in of the policy.

#include "agent/actions/action_runner.h"
#include "agent/actions/request_chain.h"
#include "agent/core/action.h"
#include "agent/kube/job_store.h"

namespace imagefs_guard {

class DeleteJobRunner {
 public:
  /// Both outlive it.
  DeleteJobRunner(KubeApi& api, JobStore& store) : chains_(api), store_(store) {}

  void start(const DeleteJob& action, ActionDone done);

 private:
  RequestChains chains_;
  JobStore& store_;
};

}  // namespace imagefs_guard
