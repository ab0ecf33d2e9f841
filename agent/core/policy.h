#pragma once
/// What the operator wants, as values: read from the policy file once (wire/policy.h), passed to
/// decide() with every tick. The defaults here are the documented ones.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/core/threshold.h"
#include "agent/core/time.h"

namespace imagefs_guard {

enum class Mode { Enforce, Observe };

/// A pod is protected if it carries every one of these labels. A value that begins with * matches
/// by its end: "*-nfs".
struct LabelMatch {
  std::map<std::string, std::string> labels;

  bool operator==(const LabelMatch&) const = default;
};

struct Policy {
  Mode mode = Mode::Enforce;
  Duration tick_interval = std::chrono::seconds(10);

  std::int64_t floor_margin_bytes = 0;
  /// The floor where the kubelet gives none for the image filesystem: 10 %.
  ThresholdValue default_floor{.quantity = 0, .fraction_bits = 0x3dcccccd};
  std::int64_t guard_margin_bytes = std::int64_t{64} << 20;
  std::int64_t clear_margin_bytes = std::int64_t{512} << 20;
  Duration clear_after = std::chrono::minutes(10);
  /// A manifest that could not be had is asked for again after this, doubling up to 16 times it.
  Duration manifest_retry = std::chrono::seconds(30);
  /// A tag is trusted for this long before it is resolved again for a pod that comes later.
  Duration tag_lifetime = std::chrono::minutes(5);

  std::string taint_key = "status-taint.cluster-autoscaler.kubernetes.io/imagefs-guard";
  std::vector<std::string> protected_namespaces = {"kube-system", "imagefs-guard"};
  std::vector<LabelMatch> protected_labels;
  std::int32_t protected_priority = 2'000'000'000;

  /// Hosts that are spoken to in plain http and may have any address, "127.0.0.1:5000".
  std::vector<std::string> plain_http_registries;
  /// Hosts that may have a private address, spoken to in https: "registry.corp:5000".
  std::vector<std::string> private_registries;
  /// A Docker config.json with logins for registries other than ECR; empty = none.
  std::string registry_config_file;
  bool blob_access = true;
  std::string kubelet_config_file;
  bool discard_unpacked_layers = true;
  std::string snapshotter = "overlayfs";
  /// Test and private-link overrides of the ECR API and registry base URLs; empty = AWS's own.
  std::string ecr_endpoint;
  std::string ecr_registry_override;

  bool operator==(const Policy&) const = default;
};

/// Whether every label of the match is there; an empty match matches nothing.
[[nodiscard]] bool matches(const LabelMatch& match,
                           const std::map<std::string, std::string>& labels);

/// The labels of JupyterHub, Nebari/QHub, Traefik, dask-gateway and Prefect pods that must not
/// suffer. Part of the defaults; a policy file may add to them, or replace them.
[[nodiscard]] std::vector<LabelMatch> default_protected_labels();

/// The policy without any file.
[[nodiscard]] Policy default_policy();

}  // namespace imagefs_guard
