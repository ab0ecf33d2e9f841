// untested: here; drain_actions_test.cc drives all runners of the drain together.
#include "agent/actions/live_pod.h"

#include "agent/core/owners.h"
#include "agent/core/pulls.h"
#include "agent/wire/kube_json.h"

namespace imagefs_guard {

Result<std::optional<Pod>> live_pod(const Result<std::string>& reply, const NamedObject& wanted) {
  if (!reply) {
    if (reply.error().kind == ErrorKind::NotFound) {
      return std::optional<Pod>();
    }
    return reply.error();
  }
  Pod pod = TRY(parse_pod(*reply));
  if (pod.uid != wanted.uid) {
    return std::optional<Pod>();
  }
  return std::optional<Pod>(std::move(pod));
}

std::optional<Error> why_not_touch(const Pod& pod, const Policy& policy) {
  if (!has_never_started(pod)) {
    return Error{ErrorKind::FailedPrecondition, "the pod has started: left alone"};
  }
  if (pod.mirror || is_protected(pod, policy)) {
    return Error{ErrorKind::FailedPrecondition, "the pod is protected: left alone"};
  }
  return std::nullopt;
}

}  // namespace imagefs_guard
