#pragma once
/// Which proxy a URL goes through, by the usual environment variables. Chosen here and not by
/// libcurl, since the address check must know whether the peer is a proxy or the host itself.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace imagefs_guard {

/// Value of an environment variable; nullopt if unset.
using Environment = std::function<std::optional<std::string>(const char* name)>;

/// http_proxy, HTTPS_PROXY/https_proxy, ALL_PROXY/all_proxy and NO_PROXY/no_proxy: hosts and
/// domain suffixes, "*" for all; networks (10.0.0.0/8) are not understood and don't match.
/// Nullopt = connect directly.
[[nodiscard]] std::optional<std::string> proxy_for(std::string_view scheme,
                                                   std::string_view host,
                                                   const Environment& environment);

}  // namespace imagefs_guard
