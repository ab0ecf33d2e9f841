#pragma once
/// Carries out CleanNode for the coordinator: reads the node, takes our taint, labels and
/// annotations off in one JSON patch with tests, then our condition.

#include <string>

#include "agent/actions/action_runner.h"
#include "agent/actions/request_chain.h"
#include "agent/core/coordinator.h"

namespace imagefs_guard {

class CleanNodeRunner {
 public:
  /// `api` outlives it.
  CleanNodeRunner(KubeApi& api, std::string taint_key)
      : chains_(api), taint_key_(std::move(taint_key)) {}

  void start(const CleanNode& action, ActionDone done);

 private:
  using Id = RequestChains::Id;

  void patch_node(Id id, const CleanNode& action, const std::string& node_json);
  void patch_status(Id id, const CleanNode& action, const std::string& body);

  RequestChains chains_;
  std::string taint_key_;
};

}  // namespace imagefs_guard
