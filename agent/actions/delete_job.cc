// untested: here; drain_actions_test.cc drives all runners of the drain together.
#include "agent/actions/delete_job.h"

#include <utility>

#include "agent/wire/drain_json.h"

namespace imagefs_guard {

void DeleteJobRunner::start(const DeleteJob& action, ActionDone done) {
  const auto id = chains_.begin(std::move(done));
  if (!id.has_value()) {
    return;
  }
  std::string body =
      delete_job_body({.uid = action.job.uid, .resource_version = action.resource_version});
  chains_.send(*id,
               write_job(KubeVerb::Delete, action.job, std::move(body)),
               [this, id = *id, action](const Result<std::string>& reply) {
                 const bool gone = reply || reply.error().kind == ErrorKind::NotFound;
                 store_.doubt(action.job.namespace_name, action.job.name);  // it ends by and by
                 chains_.finish(id, gone ? std::nullopt : std::optional(reply.error()));
               });
}

}  // namespace imagefs_guard
