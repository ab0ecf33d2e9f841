#pragma once
/// The command line: text to plain options. Called by main.cc. Every mistake is one sentence.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/commands/node_type.h"
#include "agent/core/result.h"
#include "agent/core/threshold.h"
#include "agent/core/time.h"
#include "agent/io/log.h"
#include "agent/wire/manifest.h"

namespace imagefs_guard {

constexpr const char* kVersion = "0.1.0";

/// `imagefs-guard run`.
struct RunOptions {
  std::string node_name;
  std::string namespace_name = "imagefs-guard";  // of the Lease that says "this node has an agent"
  std::string policy_file;
  std::string kubernetes_api;
  std::string kubernetes_token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
  std::string kubernetes_ca_file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
  std::string kubelet_url;
  std::string kubelet_ca_file;
  std::string containerd_socket = "/run/containerd/containerd.sock";
  std::string image_path = "/var/lib/containerd";
  std::string kubelet_path = "/var/lib/kubelet";
  std::string listen = ":9808";  // empty = no health, no metrics
  std::string record_path;       // where the flight recorder writes; empty = nothing is recorded
  std::int64_t record_bytes = std::int64_t{4} << 20;
  LogFormat log_format = LogFormat::Json;
  LogLevel log_level = LogLevel::Info;
};

/// `imagefs-guard coordinator`.
struct CoordinatorOptions {
  std::string namespace_name = "imagefs-guard";
  std::string policy_file;
  std::string kubernetes_api;
  std::string kubernetes_token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
  std::string kubernetes_ca_file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
  LogFormat log_format = LogFormat::Json;
  LogLevel log_level = LogLevel::Info;
};

/// `imagefs-guard status`.
struct StatusOptions {
  std::string address = "127.0.0.1:9808";  // of the agent's pages
  bool json = false;
};

/// `imagefs-guard replay`.
struct ReplayOptions {
  std::string trace_file;
  std::string policy_file;  // decide with this one instead of the recorded one; empty = don't
};

/// More images than anybody checks at once; the registry is asked for each.
constexpr std::size_t kCheckImagesMaximum = 100;

/// `imagefs-guard check`. Without `volume` it is about the node it runs on.
struct CheckOptions {
  std::vector<std::string> images;
  std::string policy_file;
  std::optional<VolumeModel> volume;
  std::optional<ThresholdValue> floor;  // instead of the kubelet's
  bool json = false;
  bool layers = false;
  Platform platform = build_platform();
  Duration timeout = std::chrono::seconds(60);
  std::string registry_config_file;
  std::vector<std::string> plain_http_registries;
  std::vector<std::string> private_registries;
  /// Both, or neither: without the node's pods nobody knows which images are unused, nor what the
  /// nodes have learned about layers.
  std::string node_name;
  std::string namespace_name = "imagefs-guard";  // where the nodes keep that
  std::string kubernetes_api;
  std::string kubernetes_token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
  std::string kubernetes_ca_file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
  std::string kubelet_url;
  std::string kubelet_ca_file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
  std::string containerd_socket = "/run/containerd/containerd.sock";
  std::string image_path = "/var/lib/containerd";
  std::string kubelet_path = "/var/lib/kubelet";
};

/// What the command line asks for: text to print (help, version), or a command.
struct CommandLine {
  std::optional<std::string> print;
  std::optional<RunOptions> run;
  std::optional<CoordinatorOptions> coordinator;
  std::optional<CheckOptions> check;
  std::optional<StatusOptions> status;
  std::optional<ReplayOptions> replay;
};

/// Whether it is `check` that is asked for: its mistakes end with 2, not with 78.
[[nodiscard]] bool is_check(const std::vector<std::string>& arguments);

/// The same of `replay`.
[[nodiscard]] bool is_replay(const std::vector<std::string>& arguments);

/// `environment` is asked for NODE_NAME, HOST_IP, KUBERNETES_SERVICE_HOST and _PORT. Errors are
/// InvalidArgument: exit 78.
[[nodiscard]] Result<CommandLine> parse_command_line(
    const std::vector<std::string>& arguments,
    const std::function<std::string(const char*)>& environment);

}  // namespace imagefs_guard
