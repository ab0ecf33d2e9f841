#include "agent/wire/policy.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <exception>
#include <limits>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "agent/core/text.h"
#include "agent/wire/quantity.h"

namespace imagefs_guard {

namespace {

constexpr std::size_t kListLimit = 1000;
constexpr Duration kTickMinimum = std::chrono::seconds(1);
constexpr Duration kTickMaximum = std::chrono::minutes(5);

/// One reader per key. An Error carries no line yet: apply_key() adds it.
using Reader = Result<void> (*)(const YAML::Node&, Policy&);

struct KeySpec {
  const char* name;
  const char* unit;
  const char* default_value;
  const char* effect;
  Reader read;
};

Error wrong(const std::string& what) {
  return Error{ErrorKind::InvalidArgument, what};
}

std::string at_line(const YAML::Node& node) {
  return "line " + std::to_string(node.Mark().line + 1) + ": ";
}

/// What stands before an @ may be a password, and the sentence goes to log and Event.
std::string in_quotes(const std::string& text) {
  constexpr std::size_t kLimit = 60;
  const std::size_t at = text.rfind('@');
  if (at != std::string::npos) {
    return "\"…" + text.substr(at, kLimit) + "\"";
  }
  return "\"" + text.substr(0, kLimit) + "\"";
}

const char* type_of(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Undefined:
    case YAML::NodeType::Null:
      return "nothing";
    case YAML::NodeType::Scalar:
      return "a single value";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a map";
  }
  return "something else";
}

// ---- single values ---------------------------------------------------------------------------

Result<std::string> read_scalar(const YAML::Node& node, const char* expected) {
  if (!node.IsScalar()) {
    return wrong(std::string("expected ") + expected + ", got " + type_of(node));
  }
  return node.Scalar();
}

Result<std::int64_t> read_bytes(const YAML::Node& node) {
  const std::string text = TRY(read_scalar(node, "a quantity such as 512Mi"));
  if (text.ends_with('%')) {
    return wrong(in_quotes(text) + " is a percentage; a quantity such as 512Mi is needed here");
  }
  const Result<std::int64_t> bytes = parse_quantity(text);
  if (!bytes) {
    return wrong(in_quotes(text) + " is no quantity; write one such as 512Mi or 2G");
  }
  if (*bytes < 0) {
    return wrong(in_quotes(text) + " is less than 0");
  }
  return *bytes;
}

Result<ThresholdValue> read_threshold(const YAML::Node& node) {
  const std::string text = TRY(read_scalar(node, "a percentage such as 10% or a quantity"));
  if (text.ends_with('%')) {
    const Result<std::uint32_t> bits = parse_percentage(text);
    if (!bits) {
      return wrong(in_quotes(text) + " is no percentage between 0% and 100%");
    }
    return ThresholdValue{.quantity = 0, .fraction_bits = *bits};
  }
  return ThresholdValue{.quantity = TRY(read_bytes(node)), .fraction_bits = 0};
}

Result<Duration> read_duration(const YAML::Node& node) {
  const std::string text = TRY(read_scalar(node, "a duration such as 10s"));
  const Result<Duration> duration = parse_duration(text);
  if (!duration) {
    return wrong(in_quotes(text) + " is no duration; write one such as 10s, 5m or 1h30m");
  }
  if (*duration < Duration{}) {
    return wrong(in_quotes(text) + " is less than 0");
  }
  return *duration;
}

Result<bool> read_bool(const YAML::Node& node) {
  const Result<std::string> text = read_scalar(node, "true or false");
  if (!text) {
    return text.error();
  }
  if (*text != "true" && *text != "false") {
    return wrong(in_quotes(*text) + " is neither true nor false");
  }
  return *text == "true";
}

Result<std::int32_t> read_int32(const YAML::Node& node) {
  const std::string text = TRY(read_scalar(node, "a whole number"));
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return wrong(in_quotes(text) + " is no whole number of 32 bits");
  }
  return value;
}

/// Empty, or an http(s) URL without a query.
Result<std::string> read_url(const YAML::Node& node) {
  if (node.IsNull()) {
    return std::string();
  }
  std::string text = TRY(read_scalar(node, "a URL"));
  const bool is_url = text.starts_with("https://") || text.starts_with("http://");
  if (!text.empty() && (!is_url || text.find_first_of(" ?#@") != std::string::npos)) {
    return wrong(in_quotes(text) + " is no URL such as https://host:port");
  }
  while (text.ends_with('/')) {
    text.pop_back();
  }
  return text;
}

Result<std::string> read_path(const YAML::Node& node) {
  if (node.IsNull()) {
    return std::string();
  }
  std::string text = TRY(read_scalar(node, "a path"));
  if (!text.empty() && !text.starts_with('/')) {
    return wrong(in_quotes(text) + " is no absolute path");
  }
  return text;
}

// ---- lists -----------------------------------------------------------------------------------

Result<std::vector<std::string>> read_names(const YAML::Node& node, const char* expected) {
  std::vector<std::string> names;
  if (node.IsNull()) {
    return names;
  }
  if (!node.IsSequence()) {
    return wrong(std::string("expected a list of ") + expected + ", got " + type_of(node));
  }
  if (node.size() > kListLimit) {
    return wrong("a list of more than " + std::to_string(kListLimit) + " entries");
  }
  for (const auto& element : node) {
    names.push_back(TRY(read_scalar(element, expected)));
    if (names.back().empty()) {
      return wrong("an empty entry in the list");
    }
  }
  return names;
}

Result<std::vector<std::string>> read_hosts(const YAML::Node& node) {
  std::vector<std::string> hosts = TRY(read_names(node, "hosts"));
  for (std::string& host : hosts) {
    if (host.find_first_of("/ @*") != std::string::npos) {
      return wrong(in_quotes(host) + " is no host or host:port (no scheme, path or wildcard)");
    }
    std::ranges::transform(host, host.begin(), [](char c) {
      return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    });
  }
  return hosts;
}

Result<std::vector<LabelMatch>> read_label_matches(const YAML::Node& node) {
  std::vector<LabelMatch> matches;
  if (node.IsNull()) {
    return matches;
  }
  if (!node.IsSequence() || node.size() > kListLimit) {
    return wrong(std::string("expected a list of label maps, got ") + type_of(node));
  }
  for (const auto& element : node) {
    if (!element.IsMap() || element.size() == 0) {
      return wrong(std::string("each entry is a map of labels, got ") + type_of(element));
    }
    LabelMatch match;
    for (const auto& label : element) {
      const std::string key = TRY(read_scalar(label.first, "a label"));
      match.labels[key] = TRY(read_scalar(label.second, "a label's value"));
    }
    matches.push_back(std::move(match));
  }
  return matches;
}

// ---- keys ------------------------------------------------------------------------------------

Result<void> read_mode(const YAML::Node& node, Policy& policy) {
  const std::string text = TRY(read_scalar(node, "enforce or observe"));
  if (text != "enforce" && text != "observe") {
    return wrong(in_quotes(text) + " is neither enforce nor observe");
  }
  policy.mode = text == "enforce" ? Mode::Enforce : Mode::Observe;
  return {};
}

Result<void> read_tick_interval(const YAML::Node& node, Policy& policy) {
  policy.tick_interval = TRY(read_duration(node));
  if (policy.tick_interval < kTickMinimum || policy.tick_interval > kTickMaximum) {
    return wrong(in_quotes(node.Scalar()) + " is not between 1s and 5m");
  }
  return {};
}

Result<void> read_manifest_retry(const YAML::Node& node, Policy& policy) {
  policy.manifest_retry = TRY(read_duration(node));
  if (policy.manifest_retry < kTickMinimum) {
    return wrong(in_quotes(node.Scalar()) + " is less than 1s");
  }
  return {};
}

Result<void> read_taint_key(const YAML::Node& node, Policy& policy) {
  constexpr std::size_t kLimit = 253 + 1 + 63;
  const std::string text = TRY(read_scalar(node, "a taint key"));
  const bool valid = std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' ||
           c == '/';
  });
  if (text.empty() || text.size() > kLimit || !valid || std::ranges::count(text, '/') > 1) {
    return wrong(in_quotes(text) + " is no taint key such as example.com/disk");
  }
  policy.taint_key = text;
  return {};
}

Result<void> read_default_labels(const YAML::Node& node, Policy& policy) {
  if (!TRY(read_bool(node))) {
    policy.protected_labels.clear();
  }
  return {};
}

Result<void> read_protected_labels(const YAML::Node& node, Policy& policy) {
  for (LabelMatch& match : TRY(read_label_matches(node))) {
    policy.protected_labels.push_back(std::move(match));
  }
  return {};
}

Result<void> read_legacy_action(const YAML::Node& node, Policy& policy) {
  const std::string text = TRY(read_scalar(node, "hold or deleteJob"));
  if (text != "hold" && text != "deleteJob") {
    return wrong(in_quotes(text) + " is neither hold nor deleteJob");
  }
  policy.legacy_prefect_action =
      text == "hold" ? LegacyPrefectAction::Hold : LegacyPrefectAction::DeleteJob;
  return {};
}

/// `field = TRY(read(node))` as a Reader.
template <auto kField, auto kRead>
Result<void> into(const YAML::Node& node, Policy& policy) {
  policy.*kField = TRY(kRead(node));
  return {};
}

Result<std::vector<std::string>> read_namespaces(const YAML::Node& node) {
  return read_names(node, "namespaces");
}

Result<std::string> read_name(const YAML::Node& node) {
  return read_scalar(node, "a name");
}

/// defaultProtectedLabels stands before protectedLabels: keys are applied in this order.
constexpr std::array<KeySpec, 32> kKeys = {{
    {"mode",
     "enforce or observe",
     "enforce",
     "observe decides and tells, but holds, cancels, taints and labels nothing.",
     read_mode},
    {"tickInterval",
     "duration",
     "10s",
     "How often the agent looks when nothing happens; events make it look at once.",
     read_tick_interval},
    {"floorMargin",
     "quantity",
     "0",
     "Added to the threshold at which the kubelet evicts; pulls stay above the sum.",
     into<&Policy::floor_margin_bytes, read_bytes>},
    {"defaultFloor",
     "percentage or quantity",
     "10%",
     "The floor where the kubelet has no threshold for the image filesystem.",
     into<&Policy::default_floor, read_threshold>},
    {"guardMargin",
     "quantity",
     "64Mi",
     "The node is tainted NoSchedule while less than floor plus this is free.",
     into<&Policy::guard_margin_bytes, read_bytes>},
    {"clearMargin",
     "quantity",
     "512Mi",
     "The taint may go once floor plus this is free.",
     into<&Policy::clear_margin_bytes, read_bytes>},
    {"clearAfter",
     "duration",
     "10m",
     "The taint goes after this long above clearMargin without DiskPressure or a waiting pull.",
     into<&Policy::clear_after, read_duration>},
    {"manifestRetry",
     "duration",
     "30s",
     "A manifest that could not be had is asked for again after this, doubling up to 16 times it.",
     read_manifest_retry},
    {"tagLifetime",
     "duration",
     "5m",
     "A tag is trusted for this long before it is resolved again for a pod that comes later.",
     into<&Policy::tag_lifetime, read_duration>},
    {"drain.enabled",
     "true or false",
     "false",
     "Held pods that can live elsewhere are moved there, in the way their owner survives.",
     into<&Policy::drain_enabled, read_bool>},
    {"drain.resumeWithin",
     "duration",
     "10m",
     "A Job that was suspended for a drain goes on within this, or it is told.",
     into<&Policy::drain_resume_within, read_duration>},
    {"legacyPrefect.podWatch",
     "duration",
     "60s",
     "Prefect workers before prefect-kubernetes 0.6 give up on a pod after this.",
     into<&Policy::legacy_prefect_pod_watch, read_duration>},
    {"legacyPrefect.action",
     "hold or deleteJob",
     "hold",
     "What becomes of a run that such a worker has given up; deleteJob needs one more right.",
     read_legacy_action},
    {"deadlines.spawnerStart",
     "duration",
     "5m",
     "JupyterHub gives up on a user's server after this (KubeSpawner.start_timeout).",
     into<&Policy::spawner_start_timeout, read_duration>},
    {"deadlines.deploymentProgress",
     "duration",
     "10m",
     "A Deployment calls itself stuck after this (progressDeadlineSeconds).",
     into<&Policy::deployment_progress, read_duration>},
    {"rates.download",
     "quantity per second",
     "100Mi",
     "How fast images are downloaded here, to tell which deadlines a pull will miss.",
     into<&Policy::download_bytes_per_second, read_bytes>},
    {"rates.unpack",
     "quantity per second",
     "150Mi",
     "How fast images are unpacked here.",
     into<&Policy::unpack_bytes_per_second, read_bytes>},
    {"taintKey",
     "taint key",
     "status-taint.cluster-autoscaler.kubernetes.io/imagefs-guard",
     "Key of the taint; this prefix keeps the cluster-autoscaler's templates free of it.",
     read_taint_key},
    {"protectedNamespaces",
     "list of namespaces",
     "[kube-system, imagefs-guard]",
     "Pods in these never wait behind others.",
     into<&Policy::protected_namespaces, read_namespaces>},
    {"defaultProtectedLabels",
     "true or false",
     "true",
     "Protects JupyterHub, Nebari, Traefik, dask-gateway and Prefect by their labels.",
     read_default_labels},
    {"protectedLabels",
     "list of label maps",
     "[]",
     "Pods with all labels of one entry are protected too; \"*-nfs\" matches a value's end.",
     read_protected_labels},
    {"protectedPriority",
     "whole number",
     "2000000000",
     "Pods of this priority or more are protected.",
     into<&Policy::protected_priority, read_int32>},
    {"plainHttpRegistries",
     "list of host[:port]",
     "[]",
     "Spoken to in plain http, at any address.",
     into<&Policy::plain_http_registries, read_hosts>},
    {"privateRegistries",
     "list of host[:port]",
     "[]",
     "May have a private address; other registries must have a public one.",
     into<&Policy::private_registries, read_hosts>},
    {"registryConfigFile",
     "absolute path",
     "",
     "A Docker config.json with logins for registries other than ECR.",
     into<&Policy::registry_config_file, read_path>},
    {"blobAccess",
     "true or false",
     "true",
     "Allows Range requests on layers, to learn their unpacked size.",
     into<&Policy::blob_access, read_bool>},
    {"kubeletConfigFile",
     "absolute path",
     "",
     "Thresholds are read from this KubeletConfiguration instead of the live /configz.",
     into<&Policy::kubelet_config_file, read_path>},
    {"reclaim",
     "true or false",
     "false",
     "Removes unused images, least recently used first, where that makes room for a held pull.",
     into<&Policy::reclaim, read_bool>},
    {"discardUnpackedLayers",
     "true or false",
     "true",
     "Whether containerd drops a layer's blob once it is unpacked, as EKS configures it.",
     into<&Policy::discard_unpacked_layers, read_bool>},
    {"snapshotter",
     "name",
     "overlayfs",
     "The snapshotter that containerd's CRI plugin uses.",
     into<&Policy::snapshotter, read_name>},
    {"ecr.endpoint",
     "URL",
     "",
     "Replaces the address of the ECR API, for private links and tests.",
     into<&Policy::ecr_endpoint, read_url>},
    {"ecr.registryOverride",
     "URL",
     "",
     "Replaces the address of every ECR registry, for tests.",
     into<&Policy::ecr_registry_override, read_url>},
}};

// ---- the file --------------------------------------------------------------------------------

/// Levenshtein's distance, without regard to case.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t k = 0; k <= b.size(); ++k) {
    row[k] = k;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t k = 0; k < b.size(); ++k) {
      const std::size_t substituted = diagonal + (lower(a[i]) == lower(b[k]) ? 0 : 1);
      diagonal = row[k + 1];
      row[k + 1] = std::min({row[k + 1] + 1, row[k] + 1, substituted});
    }
  }
  return row[b.size()];
}

Error unknown_key(const YAML::Node& key, const std::string& name) {
  constexpr std::size_t kLongestName = 60;
  const KeySpec* nearest = nullptr;
  std::size_t nearest_distance = 0;
  for (const KeySpec& spec : kKeys) {
    const std::size_t d = distance(std::string_view(name).substr(0, kLongestName), spec.name);
    if (nearest == nullptr || d < nearest_distance) {
      nearest = &spec;
      nearest_distance = d;
    }
  }
  std::string message = at_line(key) + in_quotes(name) + " is no key of the policy";
  if (nearest != nullptr && nearest_distance <= name.size() / 2) {
    message += std::string("; did you mean \"") + nearest->name + "\"?";
  }
  return wrong(message);
}

using Values = std::vector<std::optional<YAML::Node>>;  // one slot per kKeys

bool is_group(const std::string& name) {
  return std::ranges::any_of(kKeys, [&name](const KeySpec& spec) {
    return std::string_view(spec.name).starts_with(name + ".");
  });
}

/// Finds the slots of a map's keys; `prefix` is "" or "ecr.".
Result<void> collect(const YAML::Node& map, const std::string& prefix, Values& values) {
  std::set<std::string> seen;
  for (const auto& member : map) {
    if (!member.first.IsScalar()) {
      return wrong(at_line(member.first) + "a key is no text");
    }
    const std::string name = prefix + member.first.Scalar();
    if (!seen.insert(name).second) {
      return wrong(at_line(member.first) + in_quotes(name) + " is there twice");
    }
    const auto found =
        std::ranges::find_if(kKeys, [&name](const KeySpec& spec) { return name == spec.name; });
    if (found != kKeys.end()) {
      values[static_cast<std::size_t>(found - kKeys.begin())] = member.second;
    } else if (prefix.empty() && is_group(name)) {
      if (!member.second.IsMap() && !member.second.IsNull()) {
        return wrong(at_line(member.first) + name + ": expected a map, got " +
                     type_of(member.second));
      }
      TRY(collect(member.second, name + ".", values));
    } else {
      return unknown_key(member.first, name);
    }
  }
  return {};
}

Result<Policy> read_policy(const YAML::Node& root) {
  Policy policy = default_policy();
  if (root.IsNull()) {
    return policy;
  }
  if (!root.IsMap()) {
    return wrong(std::string("the policy is no map of keys, but ") + type_of(root));
  }
  Values values(kKeys.size());
  TRY(collect(root, "", values));
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    if (values[i]) {
      Result<void> read = kKeys[i].read(*values[i], policy);
      if (!read) {
        return with_context(std::move(read).error(), at_line(*values[i]) + kKeys[i].name);
      }
    }
  }
  if (policy.clear_margin_bytes < policy.guard_margin_bytes) {
    return wrong("clearMargin (" + format_quantity(policy.clear_margin_bytes) +
                 ") is less than guardMargin (" + format_quantity(policy.guard_margin_bytes) +
                 "): the taint would come and go");
  }
  return policy;
}

}  // namespace

Result<Policy> parse_policy(std::string_view text) {
  if (text.size() > kPolicyBytesLimit) {
    return Error{ErrorKind::ResourceExhausted, "the policy has more than 256 KiB"};
  }
  if (text.find('\0') != std::string_view::npos) {
    return wrong("line 1: this is no UTF-8 text");
  }
  try {
    return read_policy(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& exception) {
    return wrong("line " + std::to_string(exception.mark.line + 1) + ": " + exception.msg);
  } catch (const std::exception& exception) {
    return wrong(exception.what());
  }
}

std::vector<PolicyKey> policy_keys() {
  std::vector<PolicyKey> keys;
  keys.reserve(kKeys.size());
  for (const KeySpec& spec : kKeys) {
    keys.push_back({spec.name, spec.unit, spec.default_value, spec.effect});
  }
  return keys;
}

}  // namespace imagefs_guard
