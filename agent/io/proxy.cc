#include "agent/io/proxy.h"

#include <algorithm>

#include "agent/core/text.h"

namespace imagefs_guard {

namespace {

std::optional<std::string> first_set(const Environment& environment,
                                     std::initializer_list<const char*> names) {
  for (const char* name : names) {
    std::optional<std::string> value = environment(name);
    if (value && !value->empty()) {
      return value;
    }
  }
  return std::nullopt;
}

bool matches(const std::string& host, std::string entry) {
  entry = lower(entry);
  if (entry == "*") {
    return true;
  }
  while (!entry.empty() && entry.front() == '.') {
    entry.erase(0, 1);
  }
  if (entry.empty() || host.size() < entry.size() || !host.ends_with(entry)) {
    return false;
  }
  return host.size() == entry.size() || host[host.size() - entry.size() - 1] == '.';
}

bool is_excepted(std::string_view host, std::string_view list) {
  std::string name = lower(host);
  if (name.ends_with('.')) {
    name.pop_back();
  }
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(", "), list.size());
    if (matches(name, std::string(list.substr(0, end)))) {
      return true;
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

std::optional<std::string> proxy_for(std::string_view scheme,
                                     std::string_view host,
                                     const Environment& environment) {
  // HTTP_PROXY in capitals is left out on purpose: in a CGI it is a request header.
  const std::optional<std::string> proxy =
      scheme == "https"
          ? first_set(environment, {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
          : first_set(environment, {"http_proxy", "all_proxy", "ALL_PROXY"});
  if (!proxy) {
    return std::nullopt;
  }
  const std::optional<std::string> exceptions = first_set(environment, {"no_proxy", "NO_PROXY"});
  if (exceptions && is_excepted(host, *exceptions)) {
    return std::nullopt;
  }
  return proxy;
}

}  // namespace imagefs_guard
