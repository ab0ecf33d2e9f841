#pragma once
/// `imagefs-guard check IMAGE…`: asks the registry (and, without a model of a volume, this node)
/// what check_images() has to know, and gives it its snapshot. Decides nothing itself.
/// Made by main.cc, which hands it everything concrete.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/commands/flags.h"
#include "agent/core/check.h"
#include "agent/core/policy.h"
#include "agent/io/loop.h"
#include "agent/kube/size_exchange.h"
#include "agent/registry/layer_sizes.h"
#include "agent/registry/learned_sizes.h"
#include "agent/registry/manifest_store.h"
#include "agent/runtime/lease_manifests.h"
#include "probes/probe.h"

namespace imagefs_guard {

/// What it needs of the world; all of it outlives the check.
struct CheckParts {
  EventLoop* loop = nullptr;
  ManifestStore* manifests = nullptr;
  LayerSizes* sizes = nullptr;
  LearnedSizes* learned = nullptr;   // of this node and of others; null without the API server
  SizeExchange* exchange = nullptr;  // where they come from; null as well
  LeaseManifests* leases = nullptr;  // null where there is no node
  std::vector<Probe*> probes;        // of this node; empty with a model of a volume
  /// Asks for the sizes of layers that are here; null where there is no node.
  std::function<void(const std::vector<Digest>&)> measure;
};

class Check {
 public:
  Check(CheckParts parts, const CheckOptions& options, Policy policy);

  /// `done` once, when all is known or the time is over.
  void start(std::function<void(const CheckReport&)> done);

 private:
  /// One image's way through the registry.
  struct Asked {
    int tries = 0;
    bool running = false;
    std::optional<MonotonicTime> again_at;
  };

  void fetch(const std::string& image);
  void on_fetched(const std::string& image, const std::optional<Error>& error);
  void look();
  void assemble();
  [[nodiscard]] bool is_settled();
  [[nodiscard]] bool sees_node() const;
  [[nodiscard]] bool is_late_for_node() const;
  [[nodiscard]] bool waits_for_sizes() const;
  void name_images_as_runtime();

  CheckParts parts_;
  CheckOptions options_;
  Policy policy_;
  NodeSnapshot snapshot_;
  std::map<std::string, Asked> asked_;
  std::unique_ptr<Timer> timer_;
  MonotonicTime started_at_{};
  std::function<void(const CheckReport&)> done_;
};

/// The policy with what the flags and the model of the volume change.
[[nodiscard]] Policy policy_for_check(Policy policy, const CheckOptions& options);

/// 0 fits, 1 does not, 2 unknown.
[[nodiscard]] int exit_code_of(Verdict verdict);

}  // namespace imagefs_guard
