#pragma once
/// The command line: text to plain options. Called by main.cc. Every mistake is one sentence.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/result.h"
#include "agent/io/log.h"

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

/// What the command line asks for: text to print (help, version), or a command.
struct CommandLine {
  std::optional<std::string> print;
  std::optional<RunOptions> run;
  std::optional<CoordinatorOptions> coordinator;
};

/// `environment` is asked for NODE_NAME, HOST_IP, KUBERNETES_SERVICE_HOST and _PORT. Errors are
/// InvalidArgument: exit 78.
[[nodiscard]] Result<CommandLine> parse_command_line(
    const std::vector<std::string>& arguments,
    const std::function<std::string(const char*)>& environment);

}  // namespace imagefs_guard
