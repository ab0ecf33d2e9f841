#pragma once
/// Metrics as text, for Prometheus: its own format 0.0.4, or OpenMetrics 1.0.0. Pure. Filled by
/// agent/status/metrics.cc, asked for by /metrics.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/time.h"

namespace imagefs_guard {

enum class MetricType { Gauge, Counter, Histogram };

/// Name and value; the value may hold anything.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

/// One line.
struct MetricSample {
  std::string suffix;  // of the family's name: "_bucket", "_sum", "_count"; else empty
  MetricLabels labels;
  double value = 0;

  bool operator==(const MetricSample&) const = default;
};

/// One name. Without samples it is left out: not observed is not zero.
struct MetricFamily {
  std::string name;  // base units, without "_total": that is the format's
  MetricType type = MetricType::Gauge;
  std::string help;  // one sentence
  std::vector<MetricSample> samples;

  bool operator==(const MetricFamily&) const = default;
};

/// Durations counted in buckets. The bounds stay as they are made.
class DurationHistogram {
 public:
  /// Upper bounds, ascending; +Inf comes by itself.
  explicit DurationHistogram(std::vector<Duration> bounds);

  void observe(Duration duration);

  [[nodiscard]] std::uint64_t count() const { return count_; }

  /// In seconds: "_bucket" for each bound and +Inf, "_sum", "_count".
  [[nodiscard]] std::vector<MetricSample> samples() const;

 private:
  std::vector<Duration> bounds_;
  std::vector<std::uint64_t> counts_;  // not cumulative; the last is for what is above all bounds
  Duration sum_{};
  std::uint64_t count_ = 0;
};

enum class MetricsFormat { Prometheus, OpenMetrics };

/// OpenMetrics where the Accept header names it, else Prometheus.
[[nodiscard]] MetricsFormat choose_metrics_format(std::string_view accept);

[[nodiscard]] const char* content_type_of(MetricsFormat format);

[[nodiscard]] std::string format_metrics(const std::vector<MetricFamily>& families,
                                         MetricsFormat format);

}  // namespace imagefs_guard
