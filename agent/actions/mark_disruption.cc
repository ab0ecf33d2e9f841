// untested: here; drain_actions_test.cc drives all runners of the drain together.
#include "agent/actions/mark_disruption.h"

#include <utility>

#include "agent/actions/live_pod.h"
#include "agent/wire/drain_json.h"

namespace imagefs_guard {

void MarkDisruptionRunner::start(const MarkDisruption& action, ActionDone done) {
  const auto id = chains_.begin(std::move(done));
  if (!id.has_value()) {
    return;
  }
  chains_.send(
      *id, get_pod(action.pod), [this, id = *id, action](const Result<std::string>& reply) {
        const Result<std::optional<Pod>> pod = live_pod(reply, action.pod);
        if (!pod) {
          chains_.finish(id, pod.error());
        } else if (!pod->has_value() || (*pod)->deleting || (*pod)->disruption_target) {
          chains_.finish(id, std::nullopt);  // gone, going, or marked already
        } else if (std::optional<Error> why = why_not_touch(**pod, policy_)) {
          chains_.finish(id, std::move(why));
        } else {
          write(id, action);
        }
      });
}

void MarkDisruptionRunner::write(RequestChains::Id id, const MarkDisruption& action) {
  KubeRequest request = write_pod(
      KubeVerb::StrategicMergePatch, action.pod, disruption_patch(action, api_.loop().wall_now()));
  request.resource = "pods/status";
  request.path += "/status";
  chains_.send(id, std::move(request), [this, id](const Result<std::string>& reply) {
    const bool done = reply || reply.error().kind == ErrorKind::NotFound;
    chains_.finish(id, done ? std::nullopt : std::optional(reply.error()));
  });
}

}  // namespace imagefs_guard
