#pragma once
/// The node's own Node object, by watch: labels, taints, DiskPressure, our condition. Fills
/// NodeSnapshot::node; asks for an early tick when one of them changes.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agent/core/node_snapshot.h"
#include "agent/io/loop.h"
#include "agent/kube/api_client.h"
#include "agent/kube/watch.h"
#include "probes/probe.h"

namespace imagefs_guard {

class NodeProbe final : public Probe, private WatchHandler {
 public:
  /// `api` outlives it.
  NodeProbe(KubeApi& api, std::string node_name);

  [[nodiscard]] const char* name() const override { return "node"; }

  void start(std::function<void()> changed) override;
  void refresh(std::function<void()> done) override;
  void contribute(NodeSnapshot& snapshot) override;

  [[nodiscard]] std::optional<MonotonicTime> stale_since() const override {
    return watch_.failing_since();
  }

  [[nodiscard]] const Watch& watch() const { return watch_; }

 private:
  void list_begins() override;
  Result<ListMetadata> list_page(std::string_view body) override;
  void list_ends() override;
  Result<WatchLine> watch_line(std::string_view line) override;

  void replace(std::optional<Node> node);

  EventLoop& loop_;
  std::string node_name_;
  std::optional<Node> node_;
  std::optional<Node> listed_;
  bool published_ = false;  // the snapshot has what node_ has
  std::function<void()> changed_;
  Watch watch_;
};

}  // namespace imagefs_guard
