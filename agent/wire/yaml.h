#pragma once
/// YAML as JSON values, for files that users may write in either: kubelet configuration, scenario
/// files. Plain scalars become what YAML's core schema says, quoted ones strings. Pure.
/// The policy file is not read through this: its errors name lines.

#include <string_view>

#include "agent/core/result.h"
#include "agent/wire/json.h"

namespace imagefs_guard {

/// The first document of the text; an empty one is null. InvalidArgument names the line;
/// ResourceExhausted for too many bytes, or aliases that multiply into too many values.
[[nodiscard]] Result<JsonDocument> parse_yaml(std::string_view text, JsonLimits limits = {});

}  // namespace imagefs_guard
