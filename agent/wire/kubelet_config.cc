#include "agent/wire/kubelet_config.h"

#include <array>
#include <limits>
#include <map>
#include <string>

#include "agent/wire/json.h"
#include "agent/wire/quantity.h"
#include "agent/wire/yaml.h"

namespace imagefs_guard {

namespace {

struct Signal {
  EvictionSignal signal;
  std::string_view key;
  std::string_view upstream_default;
};

/// The four signals about disks. memory.available, the fifth default, is no concern of ours.
constexpr std::array<Signal, 4> kSignals = {{
    {EvictionSignal::NodefsAvailable, "nodefs.available", "10%"},
    {EvictionSignal::NodefsInodesFree, "nodefs.inodesFree", "5%"},
    {EvictionSignal::ImagefsAvailable, "imagefs.available", "15%"},
    {EvictionSignal::ImagefsInodesFree, "imagefs.inodesFree", "5%"},
}};

enum class Source { Configz, File };

std::string field(std::string_view map, std::string_view key) {
  return std::string(map) + "[" + std::string(key) + "]";
}

/// Unset ("", "0%", "100%", no entry) gives a value that is not set.
Result<ThresholdValue> threshold_at(JsonView config, std::string_view map, std::string_view key) {
  Result<ThresholdValue> value = parse_threshold_value(config[map][key].scalar_text());
  if (!value) {
    return with_context(std::move(value).error(), field(map, key));
  }
  return value;
}

Result<Duration> duration_at(JsonView config, std::string_view map, std::string_view key) {
  const std::string text = config[map][key].scalar_text();
  if (text.empty()) {
    return Duration{};
  }
  Result<Duration> value = parse_duration(text);
  if (!value) {
    return with_context(std::move(value).error(), field(map, key));
  }
  return value;
}

Result<void> read_hard(JsonView config, Source source, KubeletConfig& into) {
  const JsonView hard = config["evictionHard"];
  const bool merge = config["mergeDefaultEvictionSettings"].boolean().value_or(false);
  const bool all_defaults = hard.is_null() && source == Source::File;
  for (const Signal& signal : kSignals) {
    const bool use_default = all_defaults || (merge && hard[signal.key].is_null());
    EvictionThreshold threshold;
    threshold.signal = signal.signal;
    threshold.value = use_default ? TRY(parse_threshold_value(signal.upstream_default))
                                  : TRY(threshold_at(config, "evictionHard", signal.key));
    threshold.minimum_reclaim = TRY(threshold_at(config, "evictionMinimumReclaim", signal.key));
    if (threshold.value.is_set()) {
      into.eviction_hard.push_back(threshold);
    }
  }
  return {};
}

Result<void> read_soft(JsonView config, KubeletConfig& into) {
  for (const Signal& signal : kSignals) {
    EvictionThreshold threshold;
    threshold.signal = signal.signal;
    threshold.value = TRY(threshold_at(config, "evictionSoft", signal.key));
    threshold.minimum_reclaim = TRY(threshold_at(config, "evictionMinimumReclaim", signal.key));
    threshold.grace_period = TRY(duration_at(config, "evictionSoftGracePeriod", signal.key));
    if (threshold.value.is_set()) {
      into.eviction_soft.push_back(threshold);
    }
  }
  return {};
}

/// Integer field within a range; absent keeps the default.
Result<int> int_field(JsonView config, std::string_view key, int otherwise) {
  const JsonView value = config[key];
  if (value.is_null()) {
    return otherwise;
  }
  const std::optional<std::int64_t> number = value.integer();
  if (!number || *number < 0 || *number > std::numeric_limits<int>::max()) {
    return Error{ErrorKind::InvalidArgument,
                 std::string(key) + ": expected a number, got " + value.type_name()};
  }
  return static_cast<int>(*number);
}

Result<void> read_images(JsonView config, KubeletConfig& into) {
  into.image_gc_high_percent = TRY(int_field(config, "imageGCHighThresholdPercent", 85));
  into.image_gc_low_percent = TRY(int_field(config, "imageGCLowThresholdPercent", 80));
  if (into.image_gc_high_percent > 100 || into.image_gc_low_percent > 100) {
    return Error{ErrorKind::InvalidArgument, "image garbage collection over 100 percent"};
  }
  const std::string age = config["imageMinimumGCAge"].scalar_text();
  if (!age.empty()) {
    const Duration parsed = TRY(parse_duration(age));
    if (parsed != Duration{}) {  // the kubelet takes 0 for "not set"
      into.image_minimum_gc_age = parsed;
    }
  }
  const int parallel = TRY(int_field(config, "maxParallelImagePulls", -1));
  if (parallel >= 0) {
    into.max_parallel_image_pulls = parallel;
  }
  // Not set, serialising is on unless parallel pulls are asked for.
  into.serialize_image_pulls = config["serializeImagePulls"].boolean().value_or(parallel < 2);
  return {};
}

Result<KubeletConfig> read_config(JsonView config, Source source) {
  if (!config.is_object()) {
    return Error{ErrorKind::InvalidArgument,
                 std::string("expected a KubeletConfiguration, got ") + config.type_name()};
  }
  for (const std::string_view map :
       {"evictionHard", "evictionSoft", "evictionMinimumReclaim", "evictionSoftGracePeriod"}) {
    if (config[map] && !config[map].is_object()) {
      return Error{ErrorKind::InvalidArgument,
                   std::string(map) + ": expected a map, got " + config[map].type_name()};
    }
  }
  KubeletConfig kubelet;
  TRY(read_hard(config, source, kubelet));
  TRY(read_soft(config, kubelet));
  TRY(read_images(config, kubelet));
  return kubelet;
}

}  // namespace

Result<KubeletConfig> parse_configz(std::string_view body) {
  const JsonDocument document = TRY(parse_json(body, {.bytes = kKubeletConfigBytesLimit}));
  return read_config(document.root()["kubeletconfig"], Source::Configz);
}

Result<KubeletConfig> parse_kubelet_configuration(std::string_view text) {
  const JsonDocument document = TRY(parse_yaml(text, {.bytes = kKubeletConfigBytesLimit}));
  const JsonView kind = document.root()["kind"];
  if (kind && kind.text() != "KubeletConfiguration") {
    return Error{ErrorKind::InvalidArgument,
                 "expected a KubeletConfiguration, got kind \"" + std::string(kind.text()) + "\""};
  }
  return read_config(document.root(), Source::File);
}

}  // namespace imagefs_guard
