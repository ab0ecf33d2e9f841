#include "agent/actions/set_taint.h"

#include <utility>

#include "agent/wire/kube_patch.h"

namespace imagefs_guard {
namespace {

/// Every attempt reads the node first, so losing three races in a row means a busy writer: the
/// planner's back-off is the better wait.
constexpr int kTaintAttemptLimit = 3;

bool lost_race(ErrorKind kind) {
  // A failed `test` is a 422, which is InvalidArgument.
  return kind == ErrorKind::InvalidArgument || kind == ErrorKind::Aborted;
}

}  // namespace

SetTaintRunner::SetTaintRunner(KubeApi& api, std::string node_name)
    : api_(api), node_path_("/api/v1/nodes/" + percent_encode(node_name)) {}

void SetTaintRunner::start(const SetTaint& action, ActionDone done) {
  if (done_ != nullptr) {
    finish(Error{ErrorKind::Cancelled, "set taint: replaced by a newer one"});
  }
  action_ = action;
  done_ = std::move(done);
  attempts_ = 0;
  read_node();
}

void SetTaintRunner::read_node() {
  ++attempts_;
  KubeRequest request;
  request.verb = KubeVerb::Get;  // without a resourceVersion: what is stored, not what is cached
  request.resource = "nodes";
  request.path = node_path_;
  call_ = api_.start(std::move(request),
                     [this](Result<std::string> node) { on_node(std::move(node)); });
}

void SetTaintRunner::on_node(Result<std::string> node) {
  if (!node) {
    const bool gone = node.error().kind == ErrorKind::NotFound;
    if (gone && action_.effect == TaintEffect::None) {
      finish(std::nullopt);
      return;
    }
    finish(std::move(node).error());
    return;
  }
  Result<std::optional<std::string>> patch = taint_patch(*node, action_);
  if (!patch) {
    finish(std::move(patch).error());
    return;
  }
  if (!patch->has_value()) {
    finish(std::nullopt);
    return;
  }
  KubeRequest request;
  request.verb = KubeVerb::JsonPatch;
  request.resource = "nodes";
  request.path = node_path_;
  request.body = **std::move(patch);
  call_ = api_.start(std::move(request),
                     [this](Result<std::string> reply) { on_patched(std::move(reply)); });
}

void SetTaintRunner::on_patched(Result<std::string> reply) {
  if (reply) {
    finish(std::nullopt);
    return;
  }
  if (lost_race(reply.error().kind) && attempts_ < kTaintAttemptLimit) {
    read_node();
    return;
  }
  finish(std::move(reply).error());
}

void SetTaintRunner::finish(std::optional<Error> error) {
  call_.reset();
  const ActionDone done = std::exchange(done_, nullptr);
  done(std::move(error));  // may start the next one, or destroy this
}

}  // namespace imagefs_guard
