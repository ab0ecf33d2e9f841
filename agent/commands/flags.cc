#include "agent/commands/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "agent/io/http_server.h"
#include "agent/wire/quantity.h"

namespace imagefs_guard {

namespace {

/// Less has no room for a whole line of a busy node.
constexpr std::int64_t kRecordBytesMinimum = std::int64_t{256} << 10;

/// "[::1]" for an IPv6 address, as URLs want it.
std::string url_host(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

/// Texts that are checked once all is read.
struct RawLog {
  std::string format = "json";
  std::string level = "info";
};

/// Texts of `run` and `status`.
struct RawOthers {
  std::string record_bytes;
  std::string status_output = "table";
};

/// Texts of `check`.
struct RawCheck {
  std::string output = "table";
  std::string capacity;
  std::string available;
  std::string floor;
  std::string node_type;
  std::string platform;
  std::string timeout;
};

struct RawOptions {
  RunOptions run;
  CoordinatorOptions coordinator;
  CheckOptions check;
  StatusOptions status;
  ReplayOptions replay;
  RawOthers others;
  RawLog log;
  RawCheck check_texts;
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
  run.add_option(
      "--record", o.record_path, "Directory in memory for traces to replay (default: none)");
  run.add_option("--record-bytes", raw.others.record_bytes, "Size of all traces (default: 4Mi)");
}

void add_replay_flags(CLI::App& replay, RawOptions& raw) {
  replay.add_option("TRACE", raw.replay.trace_file, "A trace that the agent has recorded")
      ->required();
  replay.add_option("--policy", raw.replay.policy_file, "Decide with this policy file");
}

void add_status_flags(CLI::App& status, RawOptions& raw) {
  status.add_option("-o,--output", raw.others.status_output, "table or json");
  status.add_option(
      "--address", raw.status.address, "ADDRESS:PORT of the agent (default: 127.0.0.1:9808)");
}

void add_check_flags(CLI::App& check, RawOptions& raw) {
  CheckOptions& o = raw.check;
  RawCheck& texts = raw.check_texts;
  check.add_option("IMAGE", o.images, "Images, as in a pod's spec");
  check.add_option("-o,--output", texts.output, "table or json");
  check.add_flag("-v,--verbose", o.layers, "Each layer with the source of its size");
  check.add_option(
      "--node-type",
      texts.node_type,
      "Check against a fresh node: al2023, bottlerocket or auto, \":GIB\" for another volume");
  check.add_option("--capacity", texts.capacity, "Check against a volume of this size, \"50Gi\"");
  check.add_option("--available", texts.available, "What is free on it, \"31.5Gi\"");
  check.add_option("--floor", texts.floor, "Where the kubelet evicts, \"10%\" or \"2Gi\"");
  check.add_option(
      "--platform", texts.platform, "Of the node, \"linux/arm64\" (default: this one)");
  check.add_option("--timeout", texts.timeout, "Judge with what is known by then (default: 60s)");
  check.add_option("--policy", o.policy_file, "Policy file; without it the built-in policy");
  check.add_option("--registry-config", o.registry_config_file, "Docker config.json with logins");
  check
      .add_option(
          "--plain-http-registry", o.plain_http_registries, "HOST:PORT that is asked without TLS")
      ->allow_extra_args(false);
  check
      .add_option(
          "--private-registry", o.private_registries, "HOST[:PORT] that may have a private address")
      ->allow_extra_args(false);
  check.add_option("--node", o.node_name, "Name of this node (default: $NODE_NAME)");
  check.add_option("--namespace", o.namespace_name, "Namespace of the layer sizes");
  check.add_option(
      "--kubernetes-api", o.kubernetes_api, "URL of the API server, to know what is unused here");
  check.add_option("--kubernetes-ca", o.kubernetes_ca_file, "CA of the API server");
  check.add_option("--kubelet", o.kubelet_url, "URL of this node's kubelet");
  check.add_option("--kubelet-ca", o.kubelet_ca_file, "CA of the kubelet");
  check.add_option("--kubernetes-token", o.kubernetes_token_file, "Service account token");
  check.add_option("--containerd-socket", o.containerd_socket, "containerd's socket");
  check.add_option("--image-path", o.image_path, "A directory on the image filesystem");
  check.add_option("--kubelet-path", o.kubelet_path, "A directory on the kubelet's filesystem");
}

using Environment = std::function<std::string(const char*)>;

/// The API server that pods are told of; empty outside of a cluster.
std::string api_of(const Environment& environment) {
  const std::string host = environment("KUBERNETES_SERVICE_HOST");
  const std::string port = environment("KUBERNETES_SERVICE_PORT");
  return host.empty() || port.empty() ? std::string() : "https://" + url_host(host) + ":" + port;
}

/// What both commands need: the API server's URL and the log's settings.
template <typename Options>
Result<void> complete_common(Options& o, const RawLog& raw, const Environment& environment) {
  if (o.kubernetes_api.empty()) {
    o.kubernetes_api = api_of(environment);
    if (o.kubernetes_api.empty()) {
      return Error{ErrorKind::InvalidArgument,
                   "--kubernetes-api is missing and KUBERNETES_SERVICE_HOST is not set"};
    }
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

Error bad_value(const char* flag, const std::string& text, const char* wanted) {
  return Error{ErrorKind::InvalidArgument,
               std::string(flag) + " is " + wanted + ", not \"" + text + "\""};
}

Result<std::int64_t> parse_bytes(const char* flag, const std::string& text) {
  constexpr std::int64_t kBytesMaximum = std::int64_t{1} << 56;  // 64 PiB: no volume, a slip
  const auto bytes = parse_quantity(text);
  if (!bytes || *bytes < 0 || *bytes > kBytesMaximum) {
    return bad_value(flag, text, "a number of bytes such as 50Gi");
  }
  return *bytes;
}

Result<RunOptions> complete_run(RunOptions o,
                                const RawOptions& all,
                                const Environment& environment) {
  const RawLog& raw = all.log;
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
  if (!all.others.record_bytes.empty()) {
    o.record_bytes = TRY(parse_bytes("--record-bytes", all.others.record_bytes));
    if (o.record_bytes < kRecordBytesMinimum) {
      return bad_value("--record-bytes", all.others.record_bytes, "at least 256Ki");
    }
  }
  return o;
}

Result<StatusOptions> complete_status(StatusOptions o, const RawOthers& raw) {
  if (raw.status_output != "table" && raw.status_output != "json") {
    return bad_value("--output", raw.status_output, "table or json");
  }
  o.json = raw.status_output == "json";
  const auto address = parse_listen_address(o.address);
  if (!address) {
    return with_context(address.error(), "--address");
  }
  if (address->host.empty()) {
    o.address = "127.0.0.1:" + std::to_string(address->port);
  }
  return o;
}

/// The volume that is checked against; none: this node.
Result<std::optional<VolumeModel>> complete_volume(const RawCheck& raw) {
  std::optional<VolumeModel> volume;
  if (!raw.node_type.empty()) {
    if (!raw.capacity.empty()) {
      return Error{ErrorKind::InvalidArgument,
                   "--node-type has a capacity of its own, --capacity can't be given with it"};
    }
    volume = TRY(parse_node_type(raw.node_type));
  } else if (!raw.capacity.empty()) {
    if (raw.available.empty()) {
      return Error{ErrorKind::InvalidArgument,
                   "--available is missing: what is free on a volume of " + raw.capacity};
    }
    // Not inside the braces: a return from there would leak what is already initialised.
    const std::int64_t capacity_bytes = TRY(parse_bytes("--capacity", raw.capacity));
    volume = VolumeModel{.name = "a volume of " + raw.capacity,
                         .capacity_bytes = capacity_bytes,
                         .thresholds = {},
                         .assumption = {}};
    if (volume->capacity_bytes == 0) {
      return bad_value("--capacity", raw.capacity, "more than 0");
    }
  }
  if (raw.available.empty()) {
    return volume;
  }
  if (!volume.has_value()) {
    return Error{ErrorKind::InvalidArgument, "--available needs --capacity or --node-type"};
  }
  volume->available_bytes = TRY(parse_bytes("--available", raw.available));
  volume->assumption.clear();
  if (volume->available_bytes > volume->capacity_bytes) {
    return Error{ErrorKind::InvalidArgument,
                 "--available is more than the capacity: " + raw.available};
  }
  return volume;
}

Result<Platform> parse_platform(const std::string& text) {
  const std::size_t first = text.find('/');
  const std::size_t second = first == std::string::npos ? first : text.find('/', first + 1);
  Platform platform;
  platform.os = text.substr(0, first);
  if (first != std::string::npos) {
    platform.architecture = text.substr(first + 1, second - first - 1);
  }
  if (second != std::string::npos) {
    platform.variant = text.substr(second + 1);
  }
  const bool extra = platform.variant.find('/') != std::string::npos;
  if (platform.os != "linux" || platform.architecture.empty() || extra) {
    return bad_value("--platform", text, "linux/ARCHITECTURE[/VARIANT]");
  }
  return platform;
}

Result<CheckOptions> complete_check(CheckOptions o,
                                    const RawCheck& raw,
                                    const Environment& environment) {
  if (o.images.empty()) {
    return Error{ErrorKind::InvalidArgument, "check needs at least one IMAGE"};
  }
  if (o.images.size() > kCheckImagesMaximum) {
    return Error{ErrorKind::InvalidArgument,
                 "check takes at most " + std::to_string(kCheckImagesMaximum) + " images"};
  }
  if (raw.output != "table" && raw.output != "json") {
    return bad_value("--output", raw.output, "table or json");
  }
  o.json = raw.output == "json";
  o.volume = TRY(complete_volume(raw));
  if (!raw.floor.empty()) {
    const auto floor = parse_threshold_value(raw.floor);
    if (!floor) {
      return bad_value("--floor", raw.floor, "a share or a number of bytes such as 10% or 2Gi");
    }
    o.floor = *floor;
  }
  if (!raw.platform.empty()) {
    o.platform = TRY(parse_platform(raw.platform));
  }
  if (!raw.timeout.empty()) {
    const auto timeout = parse_duration(raw.timeout);
    if (!timeout || *timeout <= Duration{0}) {
      return bad_value("--timeout", raw.timeout, "a duration such as 60s");
    }
    o.timeout = *timeout;
  }
  if (o.kubelet_url.empty()) {
    const std::string host = environment("HOST_IP");
    o.kubelet_url = "https://" + (host.empty() ? "127.0.0.1" : url_host(host)) + ":10250";
  }
  TRY(check_url(o.kubelet_url));
  if (o.node_name.empty()) {
    o.node_name = environment("NODE_NAME");
  }
  if (o.kubernetes_api.empty()) {
    o.kubernetes_api = api_of(environment);
  } else {
    TRY(check_url(o.kubernetes_api));
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

bool is_check(const std::vector<std::string>& arguments) {
  return !arguments.empty() && arguments.front() == "check";
}

bool is_replay(const std::vector<std::string>& arguments) {
  return !arguments.empty() && arguments.front() == "replay";
}

Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments,
                                       const std::function<std::string(const char*)>& environment) {
  try {
    CLI::App app{"Keeps image pulls from filling a node's image filesystem.", "imagefs-guard"};
    app.set_version_flag("--version", std::string("imagefs-guard ") + kVersion);
    app.require_subcommand(1);
    CLI::App* run = app.add_subcommand("run", "Guard this node (what the DaemonSet runs)");
    CLI::App* coordinator = app.add_subcommand(
        "coordinator", "Finish what agents that died have begun (one per cluster)");
    CLI::App* check = app.add_subcommand(
        "check", "Will these images fit? Exit 0: yes, 1: no, 2: unknown or an error");
    CLI::App* status = app.add_subcommand("status", "What the agent on this node sees, and why");
    CLI::App* replay = app.add_subcommand(
        "replay", "Decide a recorded trace again. Exit 0: the same, 1: differences, 2: no trace");
    RawOptions raw;
    add_replay_flags(*replay, raw);
    add_status_flags(*status, raw);
    add_run_flags(*run, raw);
    add_check_flags(*check, raw);
    add_common_flags(*coordinator, raw.coordinator, raw.log);
    const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
    const bool known = std::ranges::any_of(commands, [&arguments](const CLI::App* command) {
      return !arguments.empty() && command->get_name() == arguments[0];
    });
    if (!arguments.empty() && !arguments[0].starts_with('-') && !known) {
      std::string names;
      for (const CLI::App* command : commands) {
        names += (names.empty() ? "" : ", ") + command->get_name();
      }
      return Error{ErrorKind::InvalidArgument,
                   "there is no command " + arguments[0] + "; there are: " + names};
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
    if (check->parsed()) {
      return CommandLine{
          .check = TRY(complete_check(std::move(raw.check), raw.check_texts, environment))};
    }
    if (coordinator->parsed()) {
      return CommandLine{.coordinator = TRY(complete_coordinator(
                             std::move(raw.coordinator), raw.log, environment))};
    }
    if (status->parsed()) {
      return CommandLine{.status = TRY(complete_status(std::move(raw.status), raw.others))};
    }
    if (replay->parsed()) {
      return CommandLine{.replay = std::move(raw.replay)};
    }
    return CommandLine{.run = TRY(complete_run(raw.run, raw, environment))};
  } catch (const CLI::Error& error) {
    return Error{ErrorKind::InvalidArgument, error.what()};
  }
}

}  // namespace imagefs_guard
