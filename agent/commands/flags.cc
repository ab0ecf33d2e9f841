#include "agent/commands/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

namespace imagefs_guard {

namespace {

constexpr const char* kVersion = "imagefs-guard 0.1.0";

/// "[::1]" for an IPv6 address, as URLs want it.
std::string url_host(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

struct RawRunOptions {
  RunOptions options;
  std::string log_format = "json";
  std::string log_level = "info";
};

void add_run_flags(CLI::App& run, RawRunOptions& raw) {
  RunOptions& o = raw.options;
  run.add_option("--node", o.node_name, "Name of this node (default: $NODE_NAME)");
  run.add_option("--policy", o.policy_file, "Policy file; without it the built-in policy");
  run.add_option("--kubernetes-api", o.kubernetes_api, "URL of the API server");
  run.add_option("--kubernetes-token", o.kubernetes_token_file, "Service account token");
  run.add_option("--kubernetes-ca", o.kubernetes_ca_file, "CA of the API server");
  run.add_option(
      "--kubelet", o.kubelet_url, "URL of the kubelet (default: https://$HOST_IP:10250)");
  run.add_option("--kubelet-ca", o.kubelet_ca_file, "CA of the kubelet (default: the API's)");
  run.add_option("--containerd-socket", o.containerd_socket, "containerd's socket");
  run.add_option("--image-path", o.image_path, "A directory on the image filesystem");
  run.add_option("--kubelet-path", o.kubelet_path, "A directory on the kubelet's filesystem");
  run.add_option("--listen", o.listen, "ADDRESS:PORT for health, metrics and status page");
  run.add_option("--log-format", raw.log_format, "json or text");
  run.add_option("--log-level", raw.log_level, "debug, info, warn or error");
}

Result<RunOptions> complete(RawRunOptions raw,
                            const std::function<std::string(const char*)>& environment) {
  RunOptions& o = raw.options;
  if (o.node_name.empty()) {
    o.node_name = environment("NODE_NAME");
  }
  if (o.node_name.empty()) {
    return Error{ErrorKind::InvalidArgument, "--node is missing and NODE_NAME is not set"};
  }
  if (o.kubernetes_api.empty()) {
    const std::string host = environment("KUBERNETES_SERVICE_HOST");
    const std::string port = environment("KUBERNETES_SERVICE_PORT");
    if (host.empty() || port.empty()) {
      return Error{ErrorKind::InvalidArgument,
                   "--kubernetes-api is missing and KUBERNETES_SERVICE_HOST is not set"};
    }
    o.kubernetes_api = "https://" + url_host(host) + ":" + port;
  }
  if (o.kubelet_url.empty()) {
    const std::string host = environment("HOST_IP");
    o.kubelet_url = "https://" + (host.empty() ? "127.0.0.1" : url_host(host)) + ":10250";
  }
  if (o.kubelet_ca_file.empty()) {
    o.kubelet_ca_file = o.kubernetes_ca_file;
  }
  for (std::string* url : {&o.kubernetes_api, &o.kubelet_url}) {
    if (!url->starts_with("https://") && !url->starts_with("http://")) {
      return Error{ErrorKind::InvalidArgument, *url + " is no http or https URL"};
    }
    while (url->ends_with('/')) {
      url->pop_back();
    }
  }
  const auto level = parse_log_level(raw.log_level);
  if (!level.has_value()) {
    return Error{ErrorKind::InvalidArgument,
                 "--log-level is debug, info, warn or error, not " + raw.log_level};
  }
  o.log_level = *level;
  if (raw.log_format != "json" && raw.log_format != "text") {
    return Error{ErrorKind::InvalidArgument, "--log-format is json or text, not " + raw.log_format};
  }
  o.log_format = raw.log_format == "json" ? LogFormat::Json : LogFormat::Text;
  return std::move(raw.options);
}

}  // namespace

Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments,
                                       const std::function<std::string(const char*)>& environment) {
  if (!arguments.empty() && !arguments.front().starts_with('-') && arguments.front() != "run") {
    return Error{ErrorKind::InvalidArgument,
                 "there is no command " + arguments.front() + "; there is: run"};
  }
  try {
    CLI::App app{"Keeps image pulls from filling a node's image filesystem.", "imagefs-guard"};
    app.set_version_flag("--version", kVersion);
    app.require_subcommand(1);
    CLI::App* run = app.add_subcommand("run", "Guard this node (what the DaemonSet runs)");
    RawRunOptions raw;
    add_run_flags(*run, raw);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
      app.parse(std::move(reversed));
    } catch (const CLI::CallForHelp&) {
      const auto chosen = app.get_subcommands();
      return CommandLine{.print = chosen.empty() ? app.help() : chosen.front()->help(), .run = {}};
    } catch (const CLI::CallForVersion&) {
      return CommandLine{.print = std::string(kVersion) + "\n", .run = {}};
    }
    return CommandLine{.print = {}, .run = TRY(complete(std::move(raw), environment))};
  } catch (const CLI::Error& error) {
    return Error{ErrorKind::InvalidArgument, error.what()};
  }
}

}  // namespace imagefs_guard
