// untested: here; commands/coordinator_test.cc takes a node's marks off with it.
#include "agent/actions/clean_node.h"

#include <utility>

#include "agent/wire/cluster_json.h"

namespace imagefs_guard {

namespace {

KubeRequest node_request(const CleanNode& action, KubeVerb verb, std::string body) {
  KubeRequest request;
  request.verb = verb;
  request.resource = "nodes";
  request.path = "/api/v1/nodes/" + percent_encode(action.node);
  request.body = std::move(body);
  return request;
}

std::optional<Error> outcome(const Result<std::string>& reply) {
  const bool done = reply || reply.error().kind == ErrorKind::NotFound;
  return done ? std::nullopt : std::optional(reply.error());
}

}  // namespace

void CleanNodeRunner::start(const CleanNode& action, ActionDone done) {
  const auto id = chains_.begin(std::move(done));
  if (!id.has_value()) {
    return;
  }
  chains_.send(*id,
               node_request(action, KubeVerb::Get, {}),
               [this, id = *id, action](const Result<std::string>& reply) {
                 if (reply) {
                   patch_node(id, action, *reply);
                 } else {
                   chains_.finish(id, outcome(reply));
                 }
               });
}

void CleanNodeRunner::patch_node(Id id, const CleanNode& action, const std::string& node_json) {
  Result<NodeCleaning> cleaning = clean_node_patches(node_json, action, taint_key_);
  if (!cleaning) {
    chains_.finish(id, std::move(cleaning).error());
    return;
  }
  const std::string status = cleaning->status_patch.value_or("");
  if (!cleaning->node_patch.has_value()) {
    patch_status(id, action, status);
    return;
  }
  chains_.send(id,
               node_request(action, KubeVerb::JsonPatch, *cleaning->node_patch),
               [this, id, action, status](const Result<std::string>& reply) {
                 if (reply) {
                   patch_status(id, action, status);
                 } else {
                   chains_.finish(id, outcome(reply));
                 }
               });
}

void CleanNodeRunner::patch_status(Id id, const CleanNode& action, const std::string& body) {
  if (body.empty()) {
    chains_.finish(id, std::nullopt);
    return;
  }
  KubeRequest request = node_request(action, KubeVerb::StrategicMergePatch, body);
  request.resource = "nodes/status";
  request.path += "/status";
  chains_.send(id, std::move(request), [this, id](const Result<std::string>& reply) {
    chains_.finish(id, outcome(reply));
  });
}

}  // namespace imagefs_guard
