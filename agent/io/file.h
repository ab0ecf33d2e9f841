#pragma once
/// Small files, read whole each time: tokens, CA bundles and policies are symlink-swapped by the
/// kubelet, so a descriptor must never be kept.

#include <cstddef>
#include <string>

#include "agent/core/result.h"

namespace imagefs_guard {

/// The whole file; NotFound, PermissionDenied, ResourceExhausted (over `limit`), Internal.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t limit);

}  // namespace imagefs_guard
