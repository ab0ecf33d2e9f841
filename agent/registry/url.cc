#include "agent/registry/url.h"

#include <algorithm>
#include <cctype>

#include "agent/core/text.h"
#include "agent/registry/reference.h"

namespace imagefs_guard {

namespace {

constexpr std::size_t kUrlLimit = 16'384;  // presigned URLs are long

bool has_bad_bytes(std::string_view text) {
  return std::ranges::any_of(
      text, [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f || c == '\\'; });
}

std::string_view default_port(std::string_view scheme) {
  return scheme == "http" ? "80" : "443";
}

}  // namespace

std::optional<Url> parse_url(std::string_view text) {
  const std::size_t separator = text.find("://");
  if (text.size() > kUrlLimit || separator == std::string_view::npos || has_bad_bytes(text)) {
    return std::nullopt;
  }
  Url url;
  url.scheme = lower(text.substr(0, separator));
  if (url.scheme != "http" && url.scheme != "https") {
    return std::nullopt;
  }
  text.remove_prefix(separator + 3);
  text = text.substr(0, text.find('#'));
  const std::size_t authority_end = std::min(text.find_first_of("/?"), text.size());
  std::string_view authority = text.substr(0, authority_end);
  url.target = std::string(text.substr(authority_end));
  if (!url.target.starts_with('/')) {
    url.target.insert(0, "/");
  }
  const std::size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && !authority.ends_with(']')) {
    url.port = std::string(authority.substr(colon + 1));
    authority = authority.substr(0, colon);
  } else {
    url.port = default_port(url.scheme);
  }
  url.host = lower(authority);
  const bool has_user = authority.find('@') != std::string_view::npos;
  const bool bare_ipv6 = authority.find(':') != std::string_view::npos &&
                         !(authority.starts_with('[') && authority.ends_with(']'));
  if (url.host.empty() || has_user || bare_ipv6 || !is_port(url.port)) {
    return std::nullopt;
  }
  return url;
}

std::string host_and_port(const Url& url) {
  return url.port == default_port(url.scheme) ? url.host : url.host + ":" + url.port;
}

std::string to_string(const Url& url) {
  return url.scheme + "://" + host_and_port(url) + url.target;
}

std::optional<Url> resolve_location(const Url& base, std::string_view location) {
  location = location.substr(0, location.find('#'));
  if (location.empty() || has_bad_bytes(location)) {
    return std::nullopt;
  }
  if (location.starts_with("//")) {
    return parse_url(base.scheme + ":" + std::string(location));
  }
  if (location.find("://") != std::string_view::npos && !location.starts_with('/')) {
    return parse_url(location);
  }
  Url url = base;
  if (location.starts_with('/')) {
    url.target = std::string(location);
    return url;
  }
  const std::string_view path = std::string_view(base.target).substr(0, base.target.find('?'));
  url.target = std::string(path.substr(0, path.rfind('/') + 1)) + std::string(location);
  return url;
}

}  // namespace imagefs_guard
