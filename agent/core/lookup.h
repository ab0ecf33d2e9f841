#pragma once
/// Searches in a snapshot's sorted lists; null where there is nothing. Pointers go into it.

#include <string>
#include <string_view>

#include "agent/core/node_snapshot.h"

namespace imagefs_guard {

[[nodiscard]] const ResolvedImage* find_resolution(const NodeSnapshot& snapshot,
                                                   const std::string& image);

[[nodiscard]] const ImageManifest* find_manifest(const NodeSnapshot& snapshot,
                                                 const Digest& manifest_digest);

/// Null as well for no resolution, or for one whose manifest is not known.
[[nodiscard]] const ImageManifest* find_manifest(const NodeSnapshot& snapshot,
                                                 const ResolvedImage* resolution);

/// By "NAMESPACE/NAME". Needs `pods` to be present.
[[nodiscard]] const Pod* find_pod(const NodeSnapshot& snapshot, const std::string& key);

/// "registry.k8s.io/pause:3.10": the kubelet can't start any pod without it.
[[nodiscard]] bool is_sandbox_image(std::string_view name);

}  // namespace imagefs_guard
