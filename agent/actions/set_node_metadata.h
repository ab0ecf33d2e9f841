#pragma once
/// Carries out SetNodeMetadata: labels and annotations of the own node in one merge patch, which
/// adds, replaces and removes without a read before it.

#include <string>

#include "agent/actions/action_runner.h"
#include "agent/actions/node_patch.h"
#include "agent/kube/api_client.h"

namespace imagefs_guard {

class SetNodeMetadataRunner {
 public:
  /// `api` outlives it.
  SetNodeMetadataRunner(KubeApi& api, const std::string& node_name);

  /// A second start ends the first, whose `done` then gets Cancelled at once. Destroying the runner
  /// cancels without a callback.
  void start(const SetNodeMetadata& action, ActionDone done);

 private:
  NodePatch patch_;
};

}  // namespace imagefs_guard
