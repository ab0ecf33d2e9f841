#pragma once
/// Carries out SuspendJob: reads the pod, then the Job, then suspends it with its hold record in
/// one JSON patch. Whatever goes wrong, the Job is read again before the next step.

#include <string>

#include "agent/actions/action_runner.h"
#include "agent/actions/request_chain.h"
#include "agent/core/action.h"
#include "agent/core/policy.h"
#include "agent/kube/job_store.h"

namespace imagefs_guard {

class SuspendJobRunner {
 public:
  /// All outlive it.
  SuspendJobRunner(KubeApi& api, JobStore& store, const Policy& policy)
      : chains_(api), store_(store), policy_(policy) {}

  void start(const SuspendJob& action, ActionDone done);

 private:
  using Id = RequestChains::Id;

  void read_job(Id id, const SuspendJob& action);
  void write(Id id, const SuspendJob& action, const std::string& job_json);
  void fail(Id id, const SuspendJob& action, Error error);

  RequestChains chains_;
  JobStore& store_;
  const Policy& policy_;
};

}  // namespace imagefs_guard
