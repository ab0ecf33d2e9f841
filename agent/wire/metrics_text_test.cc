#include "agent/wire/metrics_text.h"

#include <doctest/doctest.h>

namespace imagefs_guard::metrics_text_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("both formats name a counter in their own way") {
  const std::vector<MetricFamily> families = {
      {"x_bytes", MetricType::Gauge, "Bytes.", {{"", {}, 20769187840.0}}},
      {"x_calls",
       MetricType::Counter,
       "Calls.",
       {{"", {{"code", "200"}, {"verb", "GET"}}, 3}, {"", {{"code", "404"}, {"verb", "GET"}}, 1}}},
      {"x_unseen", MetricType::Gauge, "Not there.", {}},
  };
  CHECK(format_metrics(families, MetricsFormat::Prometheus) ==
        "# HELP x_bytes Bytes.\n# TYPE x_bytes gauge\nx_bytes 20769187840\n"
        "# HELP x_calls_total Calls.\n# TYPE x_calls_total counter\n"
        "x_calls_total{code=\"200\",verb=\"GET\"} 3\nx_calls_total{code=\"404\",verb=\"GET\"} 1\n");
  CHECK(format_metrics(families, MetricsFormat::OpenMetrics) ==
        "# HELP x_bytes Bytes.\n# TYPE x_bytes gauge\nx_bytes 20769187840\n"
        "# HELP x_calls Calls.\n# TYPE x_calls counter\n"
        "x_calls_total{code=\"200\",verb=\"GET\"} 3\nx_calls_total{code=\"404\",verb=\"GET\"} 1\n"
        "# EOF\n");
}

TEST_CASE("numbers and labels read back as they were") {
  struct Case {
    double value;
    const char* text;
  };

  for (const Case& c : {Case{0, "0"},
                        Case{-1, "-1"},
                        Case{0.25, "0.25"},
                        Case{1e15, "1000000000000000"},
                        Case{1e-05, "1e-05"}}) {
    CAPTURE(c.text);
    CHECK(format_metrics({{"x", MetricType::Gauge, "X.", {{"", {}, c.value}}}},
                         MetricsFormat::Prometheus)
              .ends_with(std::string("\nx ") + c.text + "\n"));
  }
  CHECK(format_metrics({{"x", MetricType::Gauge, "X.", {{"", {{"l", "a\"b\\c\nd"}}, 1}}}},
                       MetricsFormat::Prometheus)
            .ends_with("\nx{l=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

TEST_CASE("a histogram counts up to and with its bounds, cumulatively") {
  DurationHistogram histogram({milliseconds(5), milliseconds(30), seconds(1)});
  for (const Duration duration : {Duration(milliseconds(1)),
                                  Duration(milliseconds(5)),
                                  Duration(milliseconds(6)),
                                  Duration(seconds(2))}) {
    histogram.observe(duration);
  }
  CHECK(histogram.count() == 4);
  CHECK(format_metrics({{"x_seconds", MetricType::Histogram, "X.", histogram.samples()}},
                       MetricsFormat::Prometheus) ==
        "# HELP x_seconds X.\n# TYPE x_seconds histogram\n"
        "x_seconds_bucket{le=\"0.005\"} 2\nx_seconds_bucket{le=\"0.03\"} 3\n"
        "x_seconds_bucket{le=\"1\"} 3\nx_seconds_bucket{le=\"+Inf\"} 4\n"
        "x_seconds_sum 2.012\nx_seconds_count 4\n");
}

TEST_CASE("the format is what was asked for") {
  CHECK(choose_metrics_format("") == MetricsFormat::Prometheus);
  CHECK(choose_metrics_format("*/*") == MetricsFormat::Prometheus);
  CHECK(choose_metrics_format("application/openmetrics-text;version=1.0.0,text/plain;q=0.5") ==
        MetricsFormat::OpenMetrics);
}

}  // namespace imagefs_guard::metrics_text_test
