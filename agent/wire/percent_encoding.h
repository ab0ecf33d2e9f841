#pragma once
/// Percent-encoding for query values, form fields and path segments. Used by kube/ and registry/.

#include <string>
#include <string_view>

namespace imagefs_guard {

/// Encodes everything but unreserved characters (RFC 3986).
[[nodiscard]] std::string percent_encode(std::string_view text);

/// Decodes what is well-formed and keeps the rest as it is.
[[nodiscard]] std::string percent_decode(std::string_view text);

}  // namespace imagefs_guard
