#pragma once
/// Which server answers for an image, and what may be sent there: the address rules for hosts that
/// pod authors choose. Pure; used by auth.h, registry_http.h and registry_client.h.

#include <optional>
#include <string>

#include "agent/core/policy.h"
#include "agent/core/result.h"
#include "agent/io/http.h"
#include "agent/registry/reference.h"
#include "agent/registry/url.h"

namespace imagefs_guard {

struct RegistryTarget {
  std::string host;        // as the image names it, "docker.io": credentials belong to it
  std::string repository;  // "library/nginx"
  Url base;                // where it is reached: "https://registry-1.docker.io/"
  std::optional<EcrHost> ecr;
  bool named = false;  // the policy names the host: any address is allowed

  bool operator==(const RegistryTarget&) const = default;

  /// "docker.io/library/nginx": what logins are looked up with.
  [[nodiscard]] std::string image_name() const { return host + "/" + repository; }
};

[[nodiscard]] Result<RegistryTarget> make_target(const ImageReference& reference,
                                                 const Policy& policy);

/// What kind of address the URL may have: any for hosts the policy names, for the target itself
/// where it is ECR (private endpoints) and for ECR's own S3; else public only.
[[nodiscard]] AddressPolicy allowed_addresses(const Url& url,
                                              const RegistryTarget& target,
                                              const Policy& policy);

/// Whether a redirect or a token realm may lead there at all: https, or plain http to a host that
/// the policy names so (or, for a realm, to the same host of such a registry).
[[nodiscard]] bool may_follow(const Url& url, const RegistryTarget& target, const Policy& policy);

}  // namespace imagefs_guard
