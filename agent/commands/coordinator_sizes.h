#pragma once
/// The coordinator's other job: merges what each node has learned about layer sizes into one
/// ConfigMap that all of them read. Looks which nodes' maps have changed, reads a bounded number
/// of those, writes the shards that changed. Made and driven by coordinator.h, only while elected.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/kube/api_client.h"
#include "agent/kube/lister.h"
#include "agent/wire/size_json.h"

namespace imagefs_guard {

class CoordinatorSizes {
 public:
  using Done = std::function<void(std::optional<Error>)>;

  /// `api` outlives it.
  CoordinatorSizes(KubeApi& api, std::string namespace_name);
  CoordinatorSizes(const CoordinatorSizes&) = delete;
  CoordinatorSizes& operator=(const CoordinatorSizes&) = delete;

  /// One round: `done` once, from the loop. What it did not get to is left for the next one.
  /// While a round runs, another one is not begun (`done` comes at once, without an error).
  void run(Done done);

  /// Another coordinator may have written meanwhile: reads everything anew.
  void forget();

 private:
  void read_merged();
  void list_nodes();
  void read_next();
  void take_node(const NamedVersion& version, const SizeMap& map);
  void write();
  void create();
  void on_written(Result<std::string> reply);
  void finish(std::optional<Error> error);

  KubeApi& api_;
  std::string namespace_name_;
  std::string path_;
  Lister lister_;
  std::unique_ptr<KubeCall> call_;
  Done done_;
  bool merged_read_ = false;
  SizeShards shards_;
  unsigned changed_ = 0;                     // a bit per shard that has yet to be written
  std::map<std::string, std::string> seen_;  // node's map → version that is merged
  std::deque<NamedVersion> to_read_;
};

}  // namespace imagefs_guard
