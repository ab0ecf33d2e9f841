#pragma once
/// Layer sizes between this node and the others: reads what all have learned, and what this node
/// had learned before the agent started; writes what is new. Two ConfigMaps of the agent's own
/// namespace. Gentle: one small read every five minutes, a write at most every minute and only of
/// news. Made by main.cc, fed by registry/learned_sizes.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/size_record.h"
#include "agent/io/loop.h"
#include "agent/kube/api_client.h"

namespace imagefs_guard {

struct SizeExchangeOptions {
  std::string namespace_name;
  std::string node_name;
  Duration read_every = std::chrono::minutes(5);
  Duration write_every = std::chrono::minutes(1);
};

struct SizeExchangeHandlers {
  /// What this node's map held at the start: once.
  std::function<void(const std::vector<SizeRecord>&)> own;
  /// What all nodes have learned; whenever it has changed.
  std::function<void(std::vector<SizeRecord>)> merged;
  /// Something fails that did not before: in words.
  std::function<void(const Error&)> trouble;
};

class SizeExchange {
 public:
  /// `api` outlives it.
  SizeExchange(KubeApi& api, SizeExchangeOptions options, SizeExchangeHandlers handlers);
  SizeExchange(const SizeExchange&) = delete;
  SizeExchange& operator=(const SizeExchange&) = delete;

  void start();

  /// Both maps have been asked for, and have come or not: there is nothing to wait for.
  [[nodiscard]] bool has_asked() const { return has_asked_; }

  /// What this node's map shall hold. Written when it is due, unless it holds that already; not
  /// before the map has been read, nor while the uid of the Node is not known.
  void publish(std::vector<SizeRecord> records, const std::string& node_uid);

 private:
  void on_read_timer();
  void read_own();
  void on_own(Result<std::string> reply);
  void read_merged(bool whole);
  void on_merged(bool whole, Result<std::string> reply);
  void write_when_due();
  void write();
  void on_written(bool created, Result<std::string> reply);
  void tell(const Error& error);
  [[nodiscard]] std::string path_of(const std::string& name) const;
  [[nodiscard]] Duration jittered(Duration duration);

  KubeApi& api_;
  SizeExchangeOptions options_;
  SizeExchangeHandlers handlers_;
  std::string own_name_;
  std::unique_ptr<Timer> read_timer_;
  std::unique_ptr<Timer> write_timer_;
  std::unique_ptr<KubeCall> read_call_;
  std::unique_ptr<KubeCall> write_call_;
  bool has_asked_ = false;
  bool own_read_ = false;
  bool exists_ = false;  // this node's map
  std::string merged_version_;
  std::string node_uid_;
  std::vector<SizeRecord> wanted_;
  std::vector<SizeRecord> written_;
  std::vector<SizeRecord> being_written_;
  MonotonicTime not_before_{};  // the next write
  std::string trouble_;
};

}  // namespace imagefs_guard
