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

/// Which part of its application a pod is.
constexpr const char* kComponentLabel = "app.kubernetes.io/component";

enum class Mode { Enforce, Observe };

/// What becomes of a run that an old Prefect worker has given up already.
enum class LegacyPrefectAction { Hold, DeleteJob };

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

  /// Whether held pods that can live elsewhere are moved there. Off: they are held in place, as
  /// long as the drain has not been proved on the real owners (README.md).
  bool drain_enabled = false;
  /// A suspended Job is resumed within this; what takes longer is told.
  Duration drain_resume_within = std::chrono::minutes(10);
  /// After this long an old Prefect worker has called a run crashed whose pod has not started.
  Duration legacy_prefect_pod_watch = std::chrono::seconds(60);
  LegacyPrefectAction legacy_prefect_action = LegacyPrefectAction::Hold;
  /// KubeSpawner's start_timeout, as Zero to JupyterHub sets it.
  Duration spawner_start_timeout = std::chrono::seconds(300);
  /// A Deployment's progressDeadlineSeconds where it says nothing.
  Duration deployment_progress = std::chrono::seconds(600);
  /// How fast pulls go here, to tell whether they end before their owners give up.
  std::int64_t download_bytes_per_second = std::int64_t{100} << 20;
  std::int64_t unpack_bytes_per_second = std::int64_t{150} << 20;

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
  /// Whether unused images are removed where that makes room for a held pull.
  bool reclaim = false;
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
