#pragma once
/// URLs as far as registries use them: who is spoken to, and where a redirect leads. Decides
/// nothing; the client compares origins with it before a credential goes anywhere. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "agent/wire/percent_encoding.h"

namespace imagefs_guard {

struct Url {
  std::string scheme;  // "http" or "https"
  std::string host;    // lower case; IPv6 in brackets
  std::string port;    // filled in: "443"
  std::string target;  // path and query, begins with "/"

  bool operator==(const Url&) const = default;

  /// Same scheme, host and port: the only place where a credential may follow.
  [[nodiscard]] bool same_origin(const Url& other) const {
    return scheme == other.scheme && host == other.host && port == other.port;
  }
};

/// nullopt for other schemes, a user name, spaces or control characters, or a bad port.
[[nodiscard]] std::optional<Url> parse_url(std::string_view text);

/// "https://host/path", without the port where it is the scheme's own.
[[nodiscard]] std::string to_string(const Url& url);

/// "host" or "host:port" as policies name registries: without the scheme's own port.
[[nodiscard]] std::string host_and_port(const Url& url);

/// Where `Location: location` leads from `base`; nullopt if it is none of ours to follow.
[[nodiscard]] std::optional<Url> resolve_location(const Url& base, std::string_view location);

}  // namespace imagefs_guard
