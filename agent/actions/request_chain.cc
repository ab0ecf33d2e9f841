// untested: here; drain_actions_test.cc drives it with the runners of the drain.
#include "agent/actions/request_chain.h"

#include <utility>

namespace imagefs_guard {

namespace {

/// One drain at a time, and a few reads beside it.
constexpr std::size_t kRunsMaximum = 32;

std::string object_path(const char* prefix, const char* kind, const NamedObject& object) {
  return std::string(prefix) + "/namespaces/" + percent_encode(object.namespace_name) + "/" + kind +
         "/" + percent_encode(object.name);
}

KubeRequest request(KubeVerb verb, const char* resource, std::string path) {
  KubeRequest made;
  made.verb = verb;
  made.resource = resource;
  made.path = std::move(path);
  return made;
}

}  // namespace

std::optional<RequestChains::Id> RequestChains::begin(ActionDone done) {
  if (runs_.size() >= kRunsMaximum) {
    done(Error{ErrorKind::ResourceExhausted,
               std::to_string(kRunsMaximum) + " of this kind are under way"});
    return std::nullopt;
  }
  const Id id = next_id_++;
  runs_[id] = Run{std::move(done), nullptr};
  return id;
}

void RequestChains::send(Id id, KubeRequest kube_request, Next next) {
  runs_.at(id).call = api_.start(std::move(kube_request), std::move(next));
}

void RequestChains::finish(Id id, std::optional<Error> error) {
  auto run = runs_.extract(id);
  run.mapped().call.reset();
  run.mapped().done(std::move(error));  // may start the next one, or destroy this
}

KubeRequest get_pod(const NamedObject& pod) {
  return request(KubeVerb::Get, "pods", object_path("/api/v1", "pods", pod));
}

KubeRequest get_job(const NamedObject& job) {
  return request(KubeVerb::Get, "jobs", object_path("/apis/batch/v1", "jobs", job));
}

KubeRequest write_pod(KubeVerb verb, const NamedObject& pod, std::string body) {
  KubeRequest made = request(verb, "pods", object_path("/api/v1", "pods", pod));
  made.body = std::move(body);
  return made;
}

KubeRequest write_job(KubeVerb verb, const NamedObject& job, std::string body) {
  KubeRequest made = request(verb, "jobs", object_path("/apis/batch/v1", "jobs", job));
  made.body = std::move(body);
  return made;
}

}  // namespace imagefs_guard
