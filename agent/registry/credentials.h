#pragma once
/// The agent's AWS identity: the credential chain of the SDKs, as far as a pod needs it.
/// Environment, web identity (IRSA), container endpoint (Pod Identity, ECS), instance metadata.
/// The first source that is configured is the identity: if it fails, that is an error, since the
/// next one would silently be somebody else. Shared files (AWS_PROFILE) are not read yet; where
/// they are configured, that is an error too.
/// Used by ecr.h alone. Secrets are never logged and never part of an Error.

#include <memory>
#include <optional>
#include <random>
#include <string>

#include "agent/core/result.h"
#include "agent/io/http.h"
#include "agent/io/loop.h"
#include "agent/io/proxy.h"
#include "agent/registry/waiters.h"
#include "agent/wire/registry_json.h"

namespace imagefs_guard {

/// Where the chain looks. Tests give their own.
struct CredentialEnvironment {
  Environment variable;
  std::function<Result<std::string>(const std::string& path, std::size_t limit)> read_file;
};

/// The process's environment variables and files.
[[nodiscard]] CredentialEnvironment process_environment();

/// The variable, empty if unset.
[[nodiscard]] std::string value_of(const CredentialEnvironment& environment, const char* name);

/// AWS_ENDPOINT_URL_<service>, then AWS_ENDPOINT_URL, without a final slash; empty if neither is
/// set or AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true.
[[nodiscard]] std::string endpoint_override(const CredentialEnvironment& environment,
                                            const char* service_variable);

class AwsCredentialChain {
 public:
  AwsCredentialChain(EventLoop& loop,
                     HttpTransport& http,
                     CredentialEnvironment environment,
                     std::mt19937_64& random);

  /// Answers at once with what is good for 10 minutes more, else fetches: at most once a minute,
  /// once for all who ask. What is at hand is used until it really expires.
  void get(Done<AwsCredentials> done);

  /// AWS has refused them: fetch anew next time, a minute after the last time at the earliest.
  void forget();

 private:
  void refresh();
  void fetch_static();
  void fetch_web_identity();
  void fetch_container(const std::string& url);
  void fetch_instance();
  void fetch_instance_role(const std::string& token);
  void fetch_instance_credentials(const std::string& role, const std::string& token);
  void start(HttpRequest request, HttpDone done);
  void finish(Result<AwsCredentials> result);
  void keep_expired_instance_credentials(AwsCredentials& credentials);
  [[nodiscard]] Result<std::string> container_authorization() const;
  [[nodiscard]] std::string instance_url(const std::string& path) const;
  [[nodiscard]] bool usable() const;

  EventLoop& loop_;
  HttpTransport& http_;
  CredentialEnvironment environment_;
  std::mt19937_64& random_;
  std::optional<AwsCredentials> credentials_;
  std::optional<Error> last_error_;
  std::optional<MonotonicTime> last_attempt_;
  bool forgotten_ = false;
  std::unique_ptr<HttpCall> call_;
  Waiters<AwsCredentials> waiters_;
};

}  // namespace imagefs_guard
