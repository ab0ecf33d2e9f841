#pragma once
/// What registries and AWS endpoints answer, as values: tokens, credentials, errors, challenges,
/// Docker's config.json. Used by registry/ alone; pure. Nothing here may be logged: most values
/// are secrets.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/result.h"
#include "agent/core/time.h"

namespace imagefs_guard {

/// Tokens, credentials and error bodies; the transport is told the same.
constexpr std::size_t kAuthBytesLimit = std::size_t{64} << 10;

// ---- registries --------------------------------------------------------------------------------

/// A registry's token service. Lifetime 60 s where it names none.
struct BearerToken {
  std::string token;
  Duration lifetime = std::chrono::seconds(60);
  std::optional<WallTime> issued_at;

  bool operator==(const BearerToken&) const = default;
};

[[nodiscard]] Result<BearerToken> parse_bearer_token(std::string_view body);

/// One challenge of a WWW-Authenticate header. Scheme and parameter names in lower case.
struct Challenge {
  std::string scheme;  // "bearer", "basic"
  std::map<std::string, std::string> parameters;

  bool operator==(const Challenge&) const = default;
};

/// All challenges of one header value; what can't be read ends the list.
[[nodiscard]] std::vector<Challenge> parse_challenges(std::string_view header);

/// A service's own word for what went wrong: registry errors[0], AWS JSON, AWS XML.
struct ServiceError {
  std::string code;     // "MANIFEST_UNKNOWN", "ThrottlingException"
  std::string message;  // at most 300 bytes

  bool operator==(const ServiceError&) const = default;
};

/// Empty if the body is none of the known forms; then its beginning is the message if it is text.
[[nodiscard]] ServiceError parse_registry_error(std::string_view body);

// ---- AWS ---------------------------------------------------------------------------------------

struct AwsCredentials {
  std::string access_key_id;
  std::string secret_access_key;
  std::string session_token;           // empty for a user's own keys
  std::optional<WallTime> expires_at;  // none: static

  bool operator==(const AwsCredentials&) const = default;
};

/// ECS and EKS Pod Identity: {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"}.
[[nodiscard]] Result<AwsCredentials> parse_container_credentials(std::string_view body);

/// The instance metadata service: the same with "Code"; anything but Success is a failure.
[[nodiscard]] Result<AwsCredentials> parse_instance_credentials(std::string_view body);

/// AssumeRoleWithWebIdentity, in JSON or XML, whichever came.
[[nodiscard]] Result<AwsCredentials> parse_sts_credentials(std::string_view body);

/// GetAuthorizationToken. `basic` goes verbatim behind "Authorization: Basic ".
struct EcrToken {
  std::string basic;
  WallTime expires_at{};

  bool operator==(const EcrToken&) const = default;
};

[[nodiscard]] Result<EcrToken> parse_ecr_token(std::string_view body);

/// `type_header` is x-amzn-errortype, may be empty.
[[nodiscard]] ServiceError parse_aws_error(std::string_view body, std::string_view type_header);

/// The codes that mean "slower", at whatever HTTP status they come.
[[nodiscard]] bool is_throttling(std::string_view code);

// ---- Docker's config.json ----------------------------------------------------------------------

struct RegistryLogin {
  std::string key;    // "registry.corp/team", "*.example.com:5000": without scheme and API version
  std::string basic;  // base64 of user:password
  std::string identity_token;

  bool operator==(const RegistryLogin&) const = default;
};

/// {"auths": {…}} or its bare map. Sorted backwards by key, so that longer keys come first.
[[nodiscard]] Result<std::vector<RegistryLogin>> parse_docker_config(std::string_view body);

/// Whether the key is meant for the image ("registry.corp/team/app", without tag), as the
/// kubelet's keyring decides: host labels by glob, ports equal, path by prefix.
[[nodiscard]] bool login_matches(std::string_view key, std::string_view image);

// ---- base64 ------------------------------------------------------------------------------------

[[nodiscard]] std::string base64_encode(std::string_view bytes);
/// Standard alphabet; padding may be missing. nullopt for anything else.
[[nodiscard]] std::optional<std::string> base64_decode(std::string_view text);

}  // namespace imagefs_guard
