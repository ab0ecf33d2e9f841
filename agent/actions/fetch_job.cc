// untested: here; drain_actions_test.cc drives all runners of the drain together.
#include "agent/actions/fetch_job.h"

#include <utility>

#include "agent/wire/kube_json.h"

namespace imagefs_guard {

void FetchJobRunner::start(const FetchJob& action, ActionDone done) {
  const auto id = chains_.begin(std::move(done));
  if (!id.has_value()) {
    return;
  }
  const NamedObject name{.namespace_name = action.namespace_name, .name = action.name, .uid = {}};
  chains_.send(*id, get_job(name), [this, id = *id, name](const Result<std::string>& reply) {
    if (!reply) {
      if (reply.error().kind != ErrorKind::NotFound) {
        chains_.finish(id, reply.error());
        return;
      }
      store_.put_gone(name.namespace_name, name.name);
      chains_.finish(id, std::nullopt);
      return;
    }
    Result<Job> job = parse_job(*reply);
    if (!job) {
      chains_.finish(id, std::move(job).error());
      return;
    }
    store_.put(*std::move(job));
    chains_.finish(id, std::nullopt);
  });
}

}  // namespace imagefs_guard
