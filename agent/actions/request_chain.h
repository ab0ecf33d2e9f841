#pragma once
/// Several runs of one kind of action at a time, each a chain of requests: what the runners of the
/// drain share. A run ends exactly once; destroying the chains cancels all without a callback.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/actions/action_runner.h"
#include "agent/core/action.h"
#include "agent/kube/api_client.h"

namespace imagefs_guard {

class RequestChains {
 public:
  using Id = std::uint64_t;
  using Next = std::function<void(Result<std::string>)>;

  /// `api` outlives it.
  explicit RequestChains(KubeApi& api) : api_(api) {}

  RequestChains(const RequestChains&) = delete;
  RequestChains& operator=(const RequestChains&) = delete;

  /// nullopt: too many run, `done` has been called.
  [[nodiscard]] std::optional<Id> begin(ActionDone done);

  /// Sends the run's next request. `next` must go on: send() or finish().
  void send(Id id, KubeRequest request, Next next);

  void finish(Id id, std::optional<Error> error);

 private:
  struct Run {
    ActionDone done;
    std::unique_ptr<KubeCall> call;
  };

  KubeApi& api_;
  std::map<Id, Run> runs_;
  Id next_id_ = 1;
};

/// A GET without a resource version: what is stored, not what some cache has.
[[nodiscard]] KubeRequest get_pod(const NamedObject& pod);
[[nodiscard]] KubeRequest get_job(const NamedObject& job);

[[nodiscard]] KubeRequest write_pod(KubeVerb verb, const NamedObject& pod, std::string body);
[[nodiscard]] KubeRequest write_job(KubeVerb verb, const NamedObject& job, std::string body);

}  // namespace imagefs_guard
