#include "agent/registry/target.h"

#include <algorithm>

namespace imagefs_guard {

namespace {

bool contains(const std::vector<std::string>& hosts, const std::string& host) {
  return std::ranges::find(hosts, host) != hosts.end();
}

bool is_named(const std::string& host, const Policy& policy) {
  return contains(policy.plain_http_registries, host) || contains(policy.private_registries, host);
}

/// ECR keeps layers and configs in S3; in a private network that has a private address too.
bool is_s3_of(const Url& url, const EcrHost& ecr) {
  const std::string suffix = "." + aws_dns_suffix(ecr.region);
  return url.scheme == "https" && url.host.ends_with(suffix) &&
         (url.host.find(".s3." + ecr.region + ".") != std::string::npos ||
          url.host.find(".s3.dualstack." + ecr.region + ".") != std::string::npos ||
          url.host.ends_with(".s3" + suffix));
}

}  // namespace

Result<RegistryTarget> make_target(const ImageReference& reference, const Policy& policy) {
  RegistryTarget target;
  target.host = reference.domain;
  target.repository = reference.repository;
  target.ecr = parse_ecr_host(reference.domain);
  target.named = is_named(reference.domain, policy);
  const bool plain = contains(policy.plain_http_registries, reference.domain);
  std::string url = (plain ? "http://" : "https://") +
                    (reference.domain == "docker.io" ? "registry-1.docker.io" : reference.domain);
  if (target.ecr && !policy.ecr_registry_override.empty()) {
    url = policy.ecr_registry_override;
  }
  const std::optional<Url> base = parse_url(url);
  if (!base || base->target != "/") {
    return Error{ErrorKind::InvalidArgument, "registry \"" + reference.domain + "\" is no host"};
  }
  target.base = *base;
  return target;
}

AddressPolicy allowed_addresses(const Url& url,
                                const RegistryTarget& target,
                                const Policy& policy) {
  if (is_named(host_and_port(url), policy)) {
    return AddressPolicy::Any;
  }
  const bool trusted = target.named || target.ecr.has_value();
  if (trusted && url.host == target.base.host) {
    return AddressPolicy::Any;
  }
  return target.ecr && is_s3_of(url, *target.ecr) ? AddressPolicy::Any : AddressPolicy::PublicOnly;
}

bool may_follow(const Url& url, const RegistryTarget& target, const Policy& policy) {
  if (url.scheme == "https" || url.same_origin(target.base)) {
    return true;
  }
  return contains(policy.plain_http_registries, host_and_port(url)) ||
         (target.base.scheme == "http" && url.host == target.base.host);
}

}  // namespace imagefs_guard
