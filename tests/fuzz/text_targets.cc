// Text that people or other programs have written: numbers, JSON, YAML, policies.
#include <string>

#include "agent/core/threshold.h"
#include "agent/core/verify.h"
#include "agent/wire/json.h"
#include "agent/wire/kube_patch.h"
#include "agent/wire/kubelet_config.h"
#include "agent/wire/percent_encoding.h"
#include "agent/wire/policy.h"
#include "agent/wire/quantity.h"
#include "agent/wire/time_text.h"
#include "agent/wire/yaml.h"
#include "tests/fuzz/targets.h"

namespace imagefs_guard::fuzz {

namespace {

/// Reads every value in every way.
void walk(JsonView view, int depth) {
  static_cast<void>(view.text());
  static_cast<void>(view.scalar_text());
  static_cast<void>(view.integer());
  static_cast<void>(view.number());
  static_cast<void>(view.boolean());
  static_cast<void>(view["metadata"]["name"].text());
  static_cast<void>(view.at(view.size()));
  if (depth > 128) {
    return;
  }
  for (std::size_t i = 0; view.is_array() && i < view.size(); ++i) {
    walk(view.at(i), depth + 1);
  }
  view.for_each_member([&](std::string_view, JsonView child) { walk(child, depth + 1); });
}

void check_thresholds(const std::vector<EvictionThreshold>& thresholds) {
  for (const EvictionThreshold& threshold : thresholds) {
    VERIFY(threshold.value.is_set());
    VERIFY(threshold_quantity(threshold.value, std::int64_t{1} << 40) >= 0);
  }
}

void check_kubelet(const Result<KubeletConfig>& config) {
  if (config) {
    check_thresholds(config->eviction_hard);
    check_thresholds(config->eviction_soft);
  }
}

void check_times(std::string_view input) {
  if (const auto time = parse_rfc3339(input); time.has_value()) {
    VERIFY(parse_rfc3339(format_rfc3339_micro(*time)) == *time);
  }
  static_cast<void>(parse_http_date(input));
  if (const auto wait = parse_retry_after(input, WallTime{}); wait.has_value()) {
    VERIFY(*wait >= Duration{});
  }
}

}  // namespace

void json(std::string_view input) {
  for (const JsonLimits limits : {JsonLimits{}, JsonLimits{.bytes = 512, .depth = 4}}) {
    for (const auto& document :
         {parse_json(input, limits), parse_kube_object(input, limits), parse_yaml(input, limits)}) {
      if (document) {
        walk(document->root(), 0);
      }
    }
  }
}

void kubelet_config(std::string_view input) {
  check_kubelet(parse_configz(input));
  check_kubelet(parse_kubelet_configuration(input));
}

void policy(std::string_view input) {
  const Result<Policy> policy = parse_policy(input);
  if (policy) {
    VERIFY(policy->tick_interval > Duration{});
    VERIFY(policy->floor_margin_bytes >= 0 && policy->guard_margin_bytes >= 0);
    VERIFY(policy->clear_margin_bytes >= 0);
    VERIFY(policy->download_bytes_per_second > 0 && policy->unpack_bytes_per_second > 0);
    VERIFY(!policy->taint_key.empty());
  } else {
    VERIFY(!policy.error().message.empty());
    VERIFY(policy.error().message.find('\n') == std::string::npos);
  }
}

void quantity(std::string_view input) {
  if (const auto bytes = parse_quantity(input); bytes) {
    const auto again = parse_quantity(format_quantity(*bytes));
    VERIFY(again && *again == *bytes);
  }
  if (const auto duration = parse_duration(input); duration) {
    const auto again = parse_duration(format_duration(*duration));
    VERIFY(again && *again == *duration);
  }
  if (const auto value = parse_threshold_value(input); value) {
    const std::int64_t capacity = std::int64_t{1} << 40;
    VERIFY(threshold_quantity(*value, capacity) >= 0);
  }
  static_cast<void>(parse_percentage(input));
  check_times(input);
  VERIFY(percent_decode(percent_encode(input)) == input);
  static_cast<void>(percent_decode(input));
  const std::string cut = cut_utf8(input, 20);
  VERIFY(cut.size() <= 20 && cut_utf8(cut, 20) == cut);
}

}  // namespace imagefs_guard::fuzz
