// untested: here; drain_actions_test.cc drives all runners of the drain together.
#include "agent/actions/suspend_job.h"

#include <utility>

#include "agent/actions/live_pod.h"
#include "agent/wire/drain_json.h"
#include "agent/wire/kube_json.h"

namespace imagefs_guard {

void SuspendJobRunner::start(const SuspendJob& action, ActionDone done) {
  const auto id = chains_.begin(std::move(done));
  if (!id.has_value()) {
    return;
  }
  chains_.send(
      *id, get_pod(action.pod), [this, id = *id, action](const Result<std::string>& reply) {
        const Result<std::optional<Pod>> pod = live_pod(reply, action.pod);
        if (!pod) {
          fail(id, action, pod.error());
          return;
        }
        if (!pod->has_value() || (*pod)->deleting) {
          fail(id, action, {ErrorKind::FailedPrecondition, "the pod is gone already"});
          return;
        }
        if (std::optional<Error> why = why_not_touch(**pod, policy_)) {
          fail(id, action, *std::move(why));
          return;
        }
        read_job(id, action);
      });
}

void SuspendJobRunner::read_job(Id id, const SuspendJob& action) {
  chains_.send(id, get_job(action.job), [this, id, action](const Result<std::string>& reply) {
    if (!reply) {
      fail(id, action, reply.error());
      return;
    }
    write(id, action, *reply);
  });
}

void SuspendJobRunner::write(Id id, const SuspendJob& action, const std::string& job_json) {
  Result<std::string> patch = suspend_patch(job_json, action);
  if (!patch) {
    fail(id, action, std::move(patch).error());
    return;
  }
  chains_.send(id,
               write_job(KubeVerb::JsonPatch, action.job, *std::move(patch)),
               [this, id, action](const Result<std::string>& reply) {
                 if (!reply) {
                   fail(id, action, reply.error());
                   return;
                 }
                 Result<Job> job = parse_job(*reply);
                 if (!job) {
                   fail(id, action, std::move(job).error());
                   return;
                 }
                 store_.put(*std::move(job));
                 chains_.finish(id, std::nullopt);
               });
}

void SuspendJobRunner::fail(Id id, const SuspendJob& action, Error error) {
  store_.doubt(action.job.namespace_name, action.job.name);
  chains_.finish(id, std::move(error));
}

}  // namespace imagefs_guard
