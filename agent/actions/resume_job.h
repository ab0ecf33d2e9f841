#pragma once
/// Carries out ResumeJob: asks the store once more that the pod is gone, then reads the Job, then
/// resumes it if its hold is byte for byte the one that was seen.

#include <string>

#include "agent/actions/action_runner.h"
#include "agent/actions/request_chain.h"
#include "agent/core/action.h"
#include "agent/kube/job_store.h"

namespace imagefs_guard {

class ResumeJobRunner {
 public:
  /// Both outlive it.
  ResumeJobRunner(KubeApi& api, JobStore& store) : chains_(api), store_(store) {}

  void start(const ResumeJob& action, ActionDone done);

 private:
  using Id = RequestChains::Id;

  void read_job(Id id, const ResumeJob& action);
  void write(Id id, const ResumeJob& action, const std::string& job_json);
  void fail(Id id, const ResumeJob& action, Error error);

  RequestChains chains_;
  JobStore& store_;
};

}  // namespace imagefs_guard
