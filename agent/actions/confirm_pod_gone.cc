// untested: here; drain_actions_test.cc drives all runners of the drain together.
#include "agent/actions/confirm_pod_gone.h"

#include <utility>

#include "agent/actions/live_pod.h"

namespace imagefs_guard {

void ConfirmPodGoneRunner::start(const ConfirmPodGone& action, ActionDone done) {
  const auto id = chains_.begin(std::move(done));
  if (!id.has_value()) {
    return;
  }
  chains_.send(
      *id, get_pod(action.pod), [this, id = *id, action](const Result<std::string>& reply) {
        const Result<std::optional<Pod>> pod = live_pod(reply, action.pod);
        if (!pod) {
          chains_.finish(id, pod.error());
          return;
        }
        store_.put(PodCheck{.namespace_name = action.pod.namespace_name,
                            .name = action.pod.name,
                            .uid = action.pod.uid,
                            .gone = !pod->has_value()});
        chains_.finish(id, std::nullopt);
      });
}

}  // namespace imagefs_guard
