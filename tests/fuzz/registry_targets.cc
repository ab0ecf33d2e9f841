// What registries and AWS answer, and names that pod authors choose.
#include <algorithm>
#include <string>

#include "agent/core/verify.h"
#include "agent/io/redact.h"
#include "agent/registry/reference.h"
#include "agent/registry/target.h"
#include "agent/registry/url.h"
#include "agent/wire/manifest.h"
#include "agent/wire/registry_json.h"
#include "agent/wire/toc_place.h"
#include "tests/fuzz/pieces.h"
#include "tests/fuzz/targets.h"

namespace imagefs_guard::fuzz {

namespace {

void check_image(const ParsedManifest& manifest, std::string_view config_text) {
  VERIFY(manifest.image.layers.size() <= kLayerLimit);
  VERIFY(manifest.hints.size() == manifest.image.layers.size());
  VERIFY(manifest.image.config_bytes >= 0);
  for (std::size_t i = 0; i < manifest.image.layers.size(); ++i) {
    const std::int64_t bytes = manifest.image.layers[i].compressed_bytes;
    VERIFY(bytes >= 0);
    if (const auto place = toc_in_hints(manifest.hints[i], bytes); place.has_value()) {
      VERIFY(place->offset >= 0 && place->bytes > 0 && place->bytes <= bytes - place->offset);
    }
  }
  if (const auto config = parse_image_config(config_text); config) {
    ImageManifest image = manifest.image;
    if (add_config(*config, image)) {
      VERIFY(image.layers.size() == manifest.image.layers.size());
    }
  }
}

void check_location(const Url& base, std::string_view location) {
  if (const auto url = resolve_location(base, location); url.has_value()) {
    VERIFY(url->target.starts_with('/'));
    VERIFY(!url->host.empty() && is_port(url->port));
    VERIFY(url->host.find('@') == std::string::npos);
  }
}

}  // namespace

void manifest(std::string_view input) {
  const TwoParts parts = split(input);
  for (const std::string_view type :
       {"",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.v1+prettyjws"}) {
    const auto parsed =
        parse_manifest({.bytes = parts.first, .content_type = type, .digest = {}}, Platform{});
    if (!parsed) {
      continue;
    }
    VERIFY(parsed->index.has_value() != parsed->manifest.has_value());
    if (parsed->manifest.has_value()) {
      check_image(*parsed->manifest, parts.second);
    } else {
      VERIFY(parsed->index->entries.size() <= kIndexEntryLimit);
    }
  }
  static_cast<void>(parse_image_config(input));
}

void redact_reply(std::string_view input) {
  const TwoParts parts = split(input);
  const HttpRequest request{.headers = {"Authorization: Bearer " + std::string(parts.first)}};
  HttpResponse response{.status = 403, .headers = {}, .body = std::string(parts.second)};
  redact(request, response);
}

void reference(std::string_view input) {
  const std::string name = canonical_image_name(input);
  if (const auto parsed = parse_image_reference(input); parsed) {
    // A host in capitals without a dot is a host only because of them, and comes out small.
    VERIFY(std::ranges::any_of(input, [](char c) { return c >= 'A' && c <= 'Z'; }) ||
           canonical_image_name(name) == name);
    VERIFY(parsed->digest.has_value() || !parsed->tag.empty());
    Policy policy;
    if (const auto target = make_target(*parsed, policy); target) {
      VERIFY(target->base.scheme == "https");
      VERIFY(!target->named);
      static_cast<void>(allowed_addresses(target->base, *target, policy));
      VERIFY(may_follow(target->base, *target, policy));
    }
  }
  if (const auto host = parse_ecr_host(input); host.has_value()) {
    VERIFY(input.find("ecr") != std::string_view::npos);
    VERIFY(parse_url(ecr_api_url(*host)).has_value());
  }
  const TwoParts parts = split(input);
  static_cast<void>(login_matches(parts.first, parts.second));
}

void registry_json(std::string_view input) {
  static_cast<void>(parse_bearer_token(input));
  static_cast<void>(parse_challenges(input));
  VERIFY(parse_registry_error(input).message.size() <= 300);
  static_cast<void>(parse_container_credentials(input));
  static_cast<void>(parse_instance_credentials(input));
  static_cast<void>(parse_sts_credentials(input));
  static_cast<void>(parse_ecr_token(input));
  static_cast<void>(parse_aws_error(input, split(input).first));
  if (const auto logins = parse_docker_config(input); logins) {
    for (const RegistryLogin& login : *logins) {
      static_cast<void>(login_matches(login.key, "registry.corp/team/app"));
    }
  }
  VERIFY(base64_decode(base64_encode(input)) == input);
  static_cast<void>(base64_decode(input));
}

void url(std::string_view input) {
  const TwoParts parts = split(input);
  if (const auto parsed = parse_url(parts.first); parsed.has_value()) {
    VERIFY(parse_url(to_string(*parsed)) == *parsed || to_string(*parsed).size() > 16'384);
    check_location(*parsed, parts.second);
  }
  check_location({.scheme = "https", .host = "registry.corp", .port = "443", .target = "/v2/"},
                 parts.second);
}

}  // namespace imagefs_guard::fuzz
