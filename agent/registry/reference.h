#pragma once
/// Image references as pods write them: grammar and normalisation of the container world, and
/// which hosts are ECR's. Used by the client and by whoever compares names with the runtime's.
/// Pure; a reference that gets through here is safe to put into a URL path.

#include <optional>
#include <string>
#include <string_view>

#include "agent/core/digest.h"
#include "agent/core/result.h"

namespace imagefs_guard {

struct ImageReference {
  std::string domain;      // "docker.io", "localhost:5000"
  std::string repository;  // "library/nginx"
  std::string tag;         // "latest" where neither tag nor digest is given; empty with a digest
  std::optional<Digest> digest;  // wins over a tag

  bool operator==(const ImageReference&) const = default;

  /// "docker.io/library/nginx"
  [[nodiscard]] std::string name() const { return domain + "/" + repository; }

  /// "latest" or "sha256:…": the last segment of a manifest's URL.
  [[nodiscard]] std::string tag_or_digest() const { return digest ? to_string(*digest) : tag; }
};

/// InvalidArgument with a sentence; also for bare image IDs, which no registry can resolve.
[[nodiscard]] Result<ImageReference> parse_image_reference(std::string_view text);

/// The name under which containerd's CRI plugin keeps the image: "docker.io/library/nginx:1",
/// "repo@sha256:…" (a tag beside a digest is dropped). What is no reference (an image ID) comes
/// back unchanged.
[[nodiscard]] std::string canonical_image_name(std::string_view text);

/// One to five digits.
[[nodiscard]] bool is_port(std::string_view text);

/// A private ECR registry, by its host name alone.
struct EcrHost {
  std::string account;
  std::string region;
  std::string suffix;  // as in the host: "amazonaws.com", "on.aws"
  bool fips = false;
  bool dual_stack = false;

  bool operator==(const EcrHost&) const = default;
};

/// The pattern of the kubelet's credential provider, and the suffix of the region's partition.
/// Credentials of ECR go to no other host.
[[nodiscard]] std::optional<EcrHost> parse_ecr_host(std::string_view host);

/// DNS suffix of the region's partition: "amazonaws.com.cn" for cn-north-1.
[[nodiscard]] std::string aws_dns_suffix(std::string_view region);

/// "https://api.ecr.us-west-2.amazonaws.com"
[[nodiscard]] std::string ecr_api_url(const EcrHost& host);

}  // namespace imagefs_guard
