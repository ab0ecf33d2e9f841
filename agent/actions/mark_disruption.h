#pragma once
/// Carries out MarkDisruption: reads the pod, then sets its condition DisruptionTarget, pinned by
/// uid.

#include "agent/actions/action_runner.h"
#include "agent/actions/request_chain.h"
#include "agent/core/action.h"
#include "agent/core/policy.h"

namespace imagefs_guard {

class MarkDisruptionRunner {
 public:
  /// Both outlive it.
  MarkDisruptionRunner(KubeApi& api, const Policy& policy)
      : api_(api), chains_(api), policy_(policy) {}

  void start(const MarkDisruption& action, ActionDone done);

 private:
  void write(RequestChains::Id id, const MarkDisruption& action);

  KubeApi& api_;
  RequestChains chains_;
  const Policy& policy_;
};

}  // namespace imagefs_guard
