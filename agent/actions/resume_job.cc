// untested: here; drain_actions_test.cc drives all runners of the drain together.
#include "agent/actions/resume_job.h"

#include <utility>

#include "agent/actions/live_pod.h"
#include "agent/wire/drain_json.h"
#include "agent/wire/kube_json.h"

namespace imagefs_guard {

void ResumeJobRunner::start(const ResumeJob& action, ActionDone done) {
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
        if (pod->has_value()) {
          store_.put(PodCheck{.namespace_name = action.pod.namespace_name,
                              .name = action.pod.name,
                              .uid = action.pod.uid,
                              .gone = false});
          fail(id, action, {ErrorKind::FailedPrecondition, "the pod is still there"});
          return;
        }
        read_job(id, action);
      });
}

void ResumeJobRunner::read_job(Id id, const ResumeJob& action) {
  chains_.send(id, get_job(action.job), [this, id, action](const Result<std::string>& reply) {
    if (reply) {
      write(id, action, *reply);
    } else if (reply.error().kind == ErrorKind::NotFound) {
      store_.put_gone(action.job.namespace_name, action.job.name);
      chains_.finish(id, std::nullopt);
    } else {
      fail(id, action, reply.error());
    }
  });
}

void ResumeJobRunner::write(Id id, const ResumeJob& action, const std::string& job_json) {
  Result<std::string> patch = resume_patch(job_json, action);
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

void ResumeJobRunner::fail(Id id, const ResumeJob& action, Error error) {
  store_.doubt(action.job.namespace_name, action.job.name);
  chains_.finish(id, std::move(error));
}

}  // namespace imagefs_guard
