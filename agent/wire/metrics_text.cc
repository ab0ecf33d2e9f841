#include "agent/wire/metrics_text.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace imagefs_guard {

namespace {

double seconds_of(Duration duration) {
  return static_cast<double>(duration.count()) / 1e6;
}

/// The shortest text that reads back as the same number, without an exponent where that is short.
std::string number_text(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string text(digits.data(), end);
  constexpr double kExact = 9007199254740992;  // 2^53
  if (text.find('e') != std::string::npos && value > -kExact && value < kExact &&
      value == static_cast<double>(static_cast<std::int64_t>(value))) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  return text;
}

/// Inside quotes: label values. In HELP only backslash and newline count, and ours have none.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

const char* type_name(MetricType type) {
  switch (type) {
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Counter:
      return "counter";
    case MetricType::Histogram:
      return "histogram";
  }
  return "unknown";
}

void append_sample(std::string& text, const std::string& name, const MetricSample& sample) {
  text += name + sample.suffix;
  char separator = '{';
  for (const auto& [label, value] : sample.labels) {
    text += separator;
    text += label + "=\"" + escaped(value) + "\"";
    separator = ',';
  }
  text += sample.labels.empty() ? " " : "} ";
  text += number_text(sample.value) + "\n";
}

}  // namespace

DurationHistogram::DurationHistogram(std::vector<Duration> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void DurationHistogram::observe(Duration duration) {
  const auto bound = std::ranges::lower_bound(bounds_, duration);
  ++counts_[static_cast<std::size_t>(bound - bounds_.begin())];
  sum_ += duration;
  ++count_;
}

std::vector<MetricSample> DurationHistogram::samples() const {
  std::vector<MetricSample> samples;
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? number_text(seconds_of(bounds_[i])) : "+Inf";
    samples.push_back(
        {.suffix = "_bucket", .labels = {{"le", bound}}, .value = static_cast<double>(below)});
  }
  samples.push_back({.suffix = "_sum", .labels = {}, .value = seconds_of(sum_)});
  samples.push_back({.suffix = "_count", .labels = {}, .value = static_cast<double>(count_)});
  return samples;
}

MetricsFormat choose_metrics_format(std::string_view accept) {
  return accept.find("application/openmetrics-text") == std::string_view::npos
             ? MetricsFormat::Prometheus
             : MetricsFormat::OpenMetrics;
}

const char* content_type_of(MetricsFormat format) {
  switch (format) {
    case MetricsFormat::Prometheus:
      return "text/plain; version=0.0.4; charset=utf-8";
    case MetricsFormat::OpenMetrics:
      return "application/openmetrics-text; version=1.0.0; charset=utf-8";
  }
  return "text/plain";
}

std::string format_metrics(const std::vector<MetricFamily>& families, MetricsFormat format) {
  std::string text;
  for (const MetricFamily& family : families) {
    if (family.samples.empty()) {
      continue;
    }
    const std::string total =
        family.type == MetricType::Counter ? family.name + "_total" : family.name;
    const std::string& announced = format == MetricsFormat::OpenMetrics ? family.name : total;
    text += "# HELP " + announced + " " + family.help + "\n";
    text += "# TYPE " + announced + " " + type_name(family.type) + "\n";
    for (const MetricSample& sample : family.samples) {
      append_sample(text, total, sample);
    }
  }
  if (format == MetricsFormat::OpenMetrics) {
    text += "# EOF\n";
  }
  return text;
}

}  // namespace imagefs_guard
