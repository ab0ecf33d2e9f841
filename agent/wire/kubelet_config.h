#pragma once
/// The kubelet's thresholds from its live configuration (GET /configz) or from a
/// KubeletConfiguration file, with the kubelet's own defaulting rules applied. Called by
/// probes/kubelet_config; pure.

#include <cstddef>
#include <string_view>

#include "agent/core/node_snapshot.h"
#include "agent/core/result.h"

namespace imagefs_guard {

constexpr std::size_t kKubeletConfigBytesLimit = std::size_t{1} << 20;

/// The body of /configz: {"kubeletconfig": {…}}. The kubelet has applied its defaults by then, and
/// an evictionHard that is missing here is an empty one (omitempty): no threshold at all.
[[nodiscard]] Result<KubeletConfig> parse_configz(std::string_view body);

/// A KubeletConfiguration file, YAML or JSON. Without evictionHard the kubelet's five defaults
/// apply; with any entry the others are 0 and never fire, unless mergeDefaultEvictionSettings.
[[nodiscard]] Result<KubeletConfig> parse_kubelet_configuration(std::string_view text);

}  // namespace imagefs_guard
