#pragma once
/// The kubelet's eviction thresholds and pull settings, from its live /configz or, if the policy
/// names one, from a KubeletConfiguration file. Fills NodeSnapshot::kubelet. Asks again every five
/// minutes, after a failure sooner; keeps the last good answer for a while.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/core/node_snapshot.h"
#include "agent/io/loop.h"
#include "agent/kube/api_client.h"
#include "probes/probe.h"

namespace imagefs_guard {

class KubeletConfigProbe final : public Probe {
 public:
  /// `kubelet` is a KubeApi with the kubelet's base URL, and outlives it. With a `config_file`,
  /// only that is read.
  KubeletConfigProbe(KubeApi& kubelet, std::string config_file);

  [[nodiscard]] const char* name() const override { return "kubelet"; }

  void start(std::function<void()> changed) override;
  void refresh(std::function<void()> done) override;
  void contribute(NodeSnapshot& snapshot) override;

  [[nodiscard]] std::optional<MonotonicTime> stale_since() const override {
    const bool current = error_.empty() || !config_.has_value();
    return current ? std::nullopt : std::optional(answered_at_);
  }

  /// The policy has changed; asks anew if this is another file.
  void set_config_file(std::string config_file);

 private:
  void ask();
  void on_answer(Result<KubeletConfig> answer);

  KubeApi& kubelet_;
  EventLoop& loop_;
  std::string config_file_;
  std::function<void()> changed_;
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<KubeCall> call_;
  std::optional<KubeletConfig> config_;
  MonotonicTime answered_at_{};
  Duration retry_;
  std::string error_;
};

}  // namespace imagefs_guard
