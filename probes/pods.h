#pragma once
/// The pods that are bound to this node, by watch. Fills NodeSnapshot::pods; asks for an early
/// tick as soon as a pod is bound, goes, or changes in what decide() looks at.

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/node_snapshot.h"
#include "agent/io/loop.h"
#include "agent/kube/api_client.h"
#include "agent/kube/watch.h"
#include "probes/probe.h"

namespace imagefs_guard {

class PodsProbe final : public Probe, private WatchHandler {
 public:
  /// `api` outlives it.
  PodsProbe(KubeApi& api, const std::string& node_name);

  [[nodiscard]] const char* name() const override { return "pods"; }

  void start(std::function<void()> changed) override;
  void refresh(std::function<void()> done) override;
  void contribute(NodeSnapshot& snapshot) override;

  [[nodiscard]] std::optional<MonotonicTime> stale_since() const override {
    return watch_.failing_since();
  }

  [[nodiscard]] const Watch& watch() const { return watch_; }

 private:
  using Name = std::pair<std::string, std::string>;  // namespace, name

  void list_begins() override;
  Result<ListMetadata> list_page(std::string_view body) override;
  void list_ends() override;
  Result<WatchLine> watch_line(std::string_view line) override;

  void put(Pod pod);
  void mark_changed();

  EventLoop& loop_;
  std::map<Name, Pod> pods_;
  std::map<Name, Pod> listed_;  // a list that is not complete yet
  bool published_ = false;      // the snapshot has what pods_ has
  std::function<void()> changed_;
  Watch watch_;
};

}  // namespace imagefs_guard
