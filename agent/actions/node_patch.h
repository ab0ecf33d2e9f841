#pragma once
/// One PATCH at a time of the own node: what set_node_metadata and set_condition share.

#include <memory>
#include <string>

#include "agent/actions/action_runner.h"
#include "agent/kube/api_client.h"

namespace imagefs_guard {

class NodePatch {
 public:
  /// `subresource` is "" or "/status". `api` outlives it.
  NodePatch(KubeApi& api, const std::string& node_name, const std::string& subresource);

  /// A second start ends the first, whose `done` then gets Cancelled at once. Destroying cancels
  /// without a callback.
  void start(KubeVerb verb, std::string body, ActionDone done);

 private:
  void finish(std::optional<Error> error);

  KubeApi& api_;
  std::string resource_;
  std::string path_;
  ActionDone done_;
  std::unique_ptr<KubeCall> call_;
};

}  // namespace imagefs_guard
