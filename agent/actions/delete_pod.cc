// untested: here; drain_actions_test.cc drives all runners of the drain together.
#include "agent/actions/delete_pod.h"

#include <utility>

#include "agent/actions/live_pod.h"
#include "agent/wire/drain_json.h"

namespace imagefs_guard {

void DeletePodRunner::start(const DeletePod& action, ActionDone done) {
  const auto id = chains_.begin(std::move(done));
  if (!id.has_value()) {
    return;
  }
  chains_.send(
      *id, get_pod(action.pod), [this, id = *id, action](const Result<std::string>& reply) {
        const Result<std::optional<Pod>> pod = live_pod(reply, action.pod);
        if (!pod) {
          chains_.finish(id, pod.error());
        } else if (!pod->has_value() || ((*pod)->deleting && !action.leaving)) {
          chains_.finish(id, std::nullopt);  // gone or going
        } else {
          on_pod(id, action, **pod);
        }
      });
}

void DeletePodRunner::on_pod(RequestChains::Id id, const DeletePod& action, const Pod& pod) {
  if (std::optional<Error> why = why_not_touch(pod, policy_)) {
    chains_.finish(id, std::move(why));
    return;
  }
  if (action.leaving && !pod.deleting) {
    // Deleting it here would make its Job count a failure.
    chains_.finish(id, Error{ErrorKind::FailedPrecondition, "the pod is not being deleted"});
    return;
  }
  if (action.marked && !pod.disruption_target) {
    chains_.finish(id, Error{ErrorKind::FailedPrecondition, "the pod is not marked as disrupted"});
    return;
  }
  std::string body = delete_pod_body({.uid = pod.uid, .resource_version = pod.resource_version});
  chains_.send(id,
               write_pod(KubeVerb::Delete, action.pod, std::move(body)),
               [this, id](const Result<std::string>& reply) {
                 const bool done = reply || reply.error().kind == ErrorKind::NotFound;
                 chains_.finish(id, done ? std::nullopt : std::optional(reply.error()));
               });
}

}  // namespace imagefs_guard
