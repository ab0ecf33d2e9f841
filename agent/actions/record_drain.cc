// untested: here; drain_actions_test.cc drives all runners of the drain together.
#include "agent/actions/record_drain.h"

#include <utility>

#include "agent/wire/drain_json.h"
#include "agent/wire/kube_json.h"

namespace imagefs_guard {

void RecordDrainRunner::start(const RecordDrain& action, ActionDone done) {
  const auto id = chains_.begin(std::move(done));
  if (!id.has_value()) {
    return;
  }
  if (!action.job.has_value()) {
    write_node(*id, action);
    return;
  }
  chains_.send(
      *id, get_job(*action.job), [this, id = *id, action](const Result<std::string>& reply) {
        if (!reply) {
          fail(id, *action.job, reply.error());
          return;
        }
        write_job_record(id, action, *reply);
      });
}

void RecordDrainRunner::write_node(Id id, const RecordDrain& action) {
  KubeRequest request;
  request.verb = KubeVerb::MergePatch;
  request.resource = "nodes";
  request.path = node_path_;
  request.body = node_drain_record_patch(action);
  chains_.send(id, std::move(request), [this, id](const Result<std::string>& reply) {
    chains_.finish(id, reply ? std::nullopt : std::optional(reply.error()));
  });
}

void RecordDrainRunner::write_job_record(Id id,
                                         const RecordDrain& action,
                                         const std::string& job_json) {
  Result<std::string> patch = drain_record_patch(job_json, action);
  if (!patch) {
    fail(id, *action.job, std::move(patch).error());
    return;
  }
  chains_.send(id,
               write_job(KubeVerb::JsonPatch, *action.job, *std::move(patch)),
               [this, id, action](const Result<std::string>& reply) {
                 if (!reply) {
                   fail(id, *action.job, reply.error());
                   return;
                 }
                 Result<Job> job = parse_job(*reply);
                 if (!job) {
                   fail(id, *action.job, std::move(job).error());
                   return;
                 }
                 store_.put(*std::move(job));
                 chains_.finish(id, std::nullopt);
               });
}

void RecordDrainRunner::fail(Id id, const NamedObject& job, Error error) {
  store_.doubt(job.namespace_name, job.name);
  chains_.finish(id, std::move(error));
}

}  // namespace imagefs_guard
