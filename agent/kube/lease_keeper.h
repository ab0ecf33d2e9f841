#pragma once
/// Keeps one coordination.k8s.io Lease. Two uses: the agent's, which says "this node has an
/// agent" and tells of a second one; and the coordinator's, which elects one of several. Times are
/// never compared between machines: a holder is dead when its renewals have stopped for as long as
/// we have watched.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/core/result.h"
#include "agent/core/time.h"
#include "agent/io/loop.h"
#include "agent/kube/api_client.h"

namespace imagefs_guard {

struct LeaseOptions {
  std::string namespace_name;
  std::string name;
  std::string identity;
  Duration duration = std::chrono::seconds(30);
  Duration renew_every = std::chrono::seconds(15);
  Duration retry_every = std::chrono::seconds(5);
  /// Election: a live holder is waited for. Else the Lease is taken over at once.
  bool elects = false;
};

class LeaseKeeper {
 public:
  /// `changed` comes when holding() or rival() may have changed. `api` outlives it.
  LeaseKeeper(KubeApi& api, LeaseOptions options, std::function<void()> changed);

  void start();

  /// Gives it back so that the next one need not wait, then calls back; also on failure.
  void release(std::function<void()> done);

  /// It is ours for sure: counted from before the request that renewed it.
  [[nodiscard]] bool holding() const;

  /// Who else renews it beside us, for as long as that was seen lately.
  [[nodiscard]] std::optional<std::string> rival() const;

  /// Why the last request failed; empty after a success.
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  void renew();
  void read();
  void on_read(Result<std::string> reply);
  void write(const std::string& holder);
  void on_written(MonotonicTime sent_at, Result<std::string> reply);
  void retry(const std::string& error);

  KubeApi& api_;
  LeaseOptions options_;
  std::function<void()> changed_;
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<KubeCall> call_;
  std::string path_;
  std::string resource_version_;  // of our last write; empty: read first
  std::string acquire_time_;
  std::int64_t transitions_ = 0;
  std::optional<MonotonicTime> held_until_;
  bool has_held_ = false;
  std::string seen_holder_;
  std::string seen_renewal_;
  MonotonicTime seen_at_{};
  std::string rival_;
  MonotonicTime rival_at_{};
  std::string error_;
};

}  // namespace imagefs_guard
