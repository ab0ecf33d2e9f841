#pragma once
/// What the agent sees and has done as metric families, named by Prometheus' conventions, prefix
/// imagefs_guard_. Pure; called by pages.cc for each scrape. No label names a pod, an image, a
/// registry or a node; what was not observed is absent.

#include <vector>

#include "agent/status/status_view.h"
#include "agent/wire/metrics_text.h"

namespace imagefs_guard {

[[nodiscard]] std::vector<MetricFamily> collect_metrics(const StatusView& view);

}  // namespace imagefs_guard
