#include "agent/actions/node_patch.h"

#include <utility>

namespace imagefs_guard {

NodePatch::NodePatch(KubeApi& api, const std::string& node_name, const std::string& subresource)
    : api_(api),
      resource_("nodes" + subresource),
      path_("/api/v1/nodes/" + percent_encode(node_name) + subresource) {}

void NodePatch::start(KubeVerb verb, std::string body, ActionDone done) {
  if (done_ != nullptr) {
    finish(Error{ErrorKind::Cancelled, "patch " + resource_ + ": replaced by a newer one"});
  }
  done_ = std::move(done);
  KubeRequest request;
  request.verb = verb;
  request.resource = resource_;
  request.path = path_;
  request.body = std::move(body);
  call_ = api_.start(std::move(request), [this](Result<std::string> reply) {
    finish(reply ? std::nullopt : std::optional(std::move(reply).error()));
  });
}

void NodePatch::finish(std::optional<Error> error) {
  call_.reset();
  const ActionDone done = std::exchange(done_, nullptr);
  done(std::move(error));  // may start the next one, or destroy this
}

}  // namespace imagefs_guard
