#pragma once
/// Carries out RecordDrain: the drain record on the Job (read, then patched with tests), or on our
/// own Node.

#include <string>

#include "agent/actions/action_runner.h"
#include "agent/actions/request_chain.h"
#include "agent/core/action.h"
#include "agent/kube/job_store.h"

namespace imagefs_guard {

class RecordDrainRunner {
 public:
  /// Both outlive it.
  RecordDrainRunner(KubeApi& api, JobStore& store, const std::string& node_name)
      : chains_(api), store_(store), node_path_("/api/v1/nodes/" + percent_encode(node_name)) {}

  void start(const RecordDrain& action, ActionDone done);

 private:
  using Id = RequestChains::Id;

  void write_node(Id id, const RecordDrain& action);
  void write_job_record(Id id, const RecordDrain& action, const std::string& job_json);
  void fail(Id id, const NamedObject& job, Error error);

  RequestChains chains_;
  JobStore& store_;
  std::string node_path_;
};

}  // namespace imagefs_guard
