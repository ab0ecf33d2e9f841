#pragma once
/// The agent's /status.json as a person reads it in a terminal: what the status page shows. Pure.

#include <string>
#include <string_view>

#include "agent/core/result.h"

namespace imagefs_guard {

/// `columns` of the terminal; 0 = as wide as it takes. Control characters that came with a name
/// from outside are not printed. InvalidArgument for what is no status, or one of another version.
[[nodiscard]] Result<std::string> status_text(std::string_view json, int columns);

}  // namespace imagefs_guard
