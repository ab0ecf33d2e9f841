#pragma once
/// JSON that is written by us, as bytes. Only for .cc files in this folder.

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace imagefs_guard {

/// On one line. Never throws on bytes that are no UTF-8: they become U+FFFD.
[[nodiscard]] std::string compact_text(const nlohmann::json& value);

/// One operation of a JSON patch (RFC 6902): it fails unless the value is this one.
[[nodiscard]] nlohmann::json test_operation(const std::string& path, const nlohmann::json& value);

}  // namespace imagefs_guard
