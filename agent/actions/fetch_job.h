#pragma once
/// Carries out FetchJob: one GET, its answer into the JobStore. No such Job is an answer too.

#include "agent/actions/action_runner.h"
#include "agent/actions/request_chain.h"
#include "agent/core/action.h"
#include "agent/kube/job_store.h"

namespace imagefs_guard {

class FetchJobRunner {
 public:
  /// Both outlive it.
  FetchJobRunner(KubeApi& api, JobStore& store) : chains_(api), store_(store) {}

  void start(const FetchJob& action, ActionDone done);

 private:
  RequestChains chains_;
  JobStore& store_;
};

}  // namespace imagefs_guard
