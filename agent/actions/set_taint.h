#pragma once
/// Carries out SetTaint: reads the node, patches our own key, reads again when somebody else wrote
/// in between. Other writers' taints are never touched.

#include <memory>
#include <string>

#include "agent/actions/action_runner.h"
#include "agent/kube/api_client.h"

namespace imagefs_guard {

class SetTaintRunner {
 public:
  /// `api` outlives it.
  SetTaintRunner(KubeApi& api, std::string node_name);

  /// A second start ends the first, whose `done` then gets Cancelled at once. Destroying the runner
  /// cancels without a callback.
  void start(const SetTaint& action, ActionDone done);

 private:
  void read_node();
  void on_node(Result<std::string> node);
  void on_patched(Result<std::string> reply);
  void finish(std::optional<Error> error);

  KubeApi& api_;
  std::string node_path_;
  SetTaint action_;
  ActionDone done_;
  int attempts_ = 0;
  std::unique_ptr<KubeCall> call_;
};

}  // namespace imagefs_guard
