#include "agent/commands/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "agent/io/http_server.h"

namespace imagefs_guard {

namespace {

/// "[::1]" for an IPv6 address, as URLs want it.
std::string url_host(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

/// Texts that are checked once all is read.
struct RawLog {
  std::string format = "json";
  std::string level = "info";
};

struct RawOptions {
  RunOptions run;
  CoordinatorOptions coordinator;
  RawLog log;
};

/// The flags that every command has.
template <typename Options>
void add_common_flags(CLI::App& command, Options& o, RawLog& raw) {
  command.add_option("--policy", o.policy_file, "Policy file; without it the built-in policy");
  command.add_option("--kubernetes-api", o.kubernetes_api, "URL of the API server");
  command.add_option("--kubernetes-token", o.kubernetes_token_file, "Service account token");
  command.add_option("--kubernetes-ca", o.kubernetes_ca_file, "CA of the API server");
  command.add_option("--namespace", o.namespace_name, "Namespace of the Leases");
  command.add_option("--log-format", raw.format, "json or text");
  command.add_option("--log-level", raw.level, "debug, info, warn or error");
}

void add_run_flags(CLI::App& run, RawOptions& raw) {
  RunOptions& o = raw.run;
  run.add_option("--node", o.node_name, "Name of this node (default: $NODE_NAME)");
  add_common_flags(run, o, raw.log);
  run.add_option(
      "--kubelet", o.kubelet_url, "URL of the kubelet (default: https://$HOST_IP:10250)");
  run.add_option("--kubelet-ca", o.kubelet_ca_file, "CA of the kubelet (default: the API's)");
  run.add_option("--containerd-socket", o.containerd_socket, "containerd's socket");
  run.add_option("--image-path", o.image_path, "A directory on the image filesystem");
  run.add_option("--kubelet-path", o.kubelet_path, "A directory on the kubelet's filesystem");
  // Without a value too: CLI11 takes "--listen=" for that.
  run.add_option("--listen", o.listen, "ADDRESS:PORT for health and metrics (empty: none)")
      ->expected(0, 1);
}

using Environment = std::function<std::string(const char*)>;

/// What both commands need: the API server's URL and the log's settings.
template <typename Options>
Result<void> complete_common(Options& o, const RawLog& raw, const Environment& environment) {
  if (o.kubernetes_api.empty()) {
    const std::string host = environment("KUBERNETES_SERVICE_HOST");
    const std::string port = environment("KUBERNETES_SERVICE_PORT");
    if (host.empty() || port.empty()) {
      return Error{ErrorKind::InvalidArgument,
                   "--kubernetes-api is missing and KUBERNETES_SERVICE_HOST is not set"};
    }
    o.kubernetes_api = "https://" + url_host(host) + ":" + port;
  }
  const auto level = parse_log_level(raw.level);
  if (!level.has_value()) {
    return Error{ErrorKind::InvalidArgument,
                 "--log-level is debug, info, warn or error, not " + raw.level};
  }
  o.log_level = *level;
  if (raw.format != "json" && raw.format != "text") {
    return Error{ErrorKind::InvalidArgument, "--log-format is json or text, not " + raw.format};
  }
  o.log_format = raw.format == "json" ? LogFormat::Json : LogFormat::Text;
  return {};
}

Result<void> check_url(std::string& url) {
  if (!url.starts_with("https://") && !url.starts_with("http://")) {
    return Error{ErrorKind::InvalidArgument, url + " is no http or https URL"};
  }
  while (url.ends_with('/')) {
    url.pop_back();
  }
  return {};
}

Result<RunOptions> complete_run(RunOptions o, const RawLog& raw, const Environment& environment) {
  if (o.node_name.empty()) {
    o.node_name = environment("NODE_NAME");
  }
  if (o.node_name.empty()) {
    return Error{ErrorKind::InvalidArgument, "--node is missing and NODE_NAME is not set"};
  }
  TRY(complete_common(o, raw, environment));
  if (o.kubelet_url.empty()) {
    const std::string host = environment("HOST_IP");
    o.kubelet_url = "https://" + (host.empty() ? "127.0.0.1" : url_host(host)) + ":10250";
  }
  if (o.kubelet_ca_file.empty()) {
    o.kubelet_ca_file = o.kubernetes_ca_file;
  }
  TRY(check_url(o.kubernetes_api));
  TRY(check_url(o.kubelet_url));
  if (!o.listen.empty()) {
    const auto address = parse_listen_address(o.listen);
    if (!address) {
      return with_context(address.error(), "--listen");
    }
  }
  return o;
}

Result<CoordinatorOptions> complete_coordinator(CoordinatorOptions o,
                                                const RawLog& raw,
                                                const Environment& environment) {
  TRY(complete_common(o, raw, environment));
  TRY(check_url(o.kubernetes_api));
  return o;
}

}  // namespace

Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments,
                                       const std::function<std::string(const char*)>& environment) {
  try {
    CLI::App app{"Keeps image pulls from filling a node's image filesystem.", "imagefs-guard"};
    app.set_version_flag("--version", std::string("imagefs-guard ") + kVersion);
    app.require_subcommand(1);
    CLI::App* run = app.add_subcommand("run", "Guard this node (what the DaemonSet runs)");
    CLI::App* coordinator = app.add_subcommand(
        "coordinator", "Finish what agents that died have begun (one per cluster)");
    RawOptions raw;
    add_run_flags(*run, raw);
    add_common_flags(*coordinator, raw.coordinator, raw.log);
    const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
    const bool known = std::ranges::any_of(commands, [&arguments](const CLI::App* command) {
      return !arguments.empty() && command->get_name() == arguments[0];
    });
    if (!arguments.empty() && !arguments[0].starts_with('-') && !known) {
      return Error{ErrorKind::InvalidArgument, arguments[0] + " is no command"};
    }
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
      app.parse(std::move(reversed));
    } catch (const CLI::CallForHelp&) {
      const auto chosen = app.get_subcommands();
      return CommandLine{.print = chosen.empty() ? app.help() : chosen.front()->help()};
    } catch (const CLI::CallForVersion&) {
      return CommandLine{.print = std::string("imagefs-guard ") + kVersion + "\n"};
    }
    if (coordinator->parsed()) {
      return CommandLine{.coordinator = TRY(complete_coordinator(
                             std::move(raw.coordinator), raw.log, environment))};
    }
    return CommandLine{.run = TRY(complete_run(std::move(raw.run), raw.log, environment))};
  } catch (const CLI::Error& error) {
    return Error{ErrorKind::InvalidArgument, error.what()};
  }
}

}  // namespace imagefs_guard
