#pragma once
/// Logins of private ECR registries: GetAuthorizationToken, once per region and 12 hours. Renewed
/// at half life, at most once a minute; what is at hand is used until it expires. Throttling,
/// which comes at status 400, is met with growing, jittered waits.
/// Used by auth.h alone.

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "agent/io/http.h"
#include "agent/io/loop.h"
#include "agent/registry/credentials.h"
#include "agent/registry/reference.h"
#include "agent/registry/waiters.h"

namespace imagefs_guard {

struct EcrSetup {
  CredentialEnvironment environment;
  std::string endpoint;  // the policy's ecr.endpoint; empty = AWS's
  std::mt19937_64* random = nullptr;
};

class EcrTokens {
 public:
  EcrTokens(EventLoop& loop, HttpTransport& http, EcrSetup setup);

  /// The value behind "Authorization: Basic ".
  void get(const EcrHost& host, Done<std::string> done);

  /// A registry says that `basic` has expired. True if another get() brings a new one: not if it
  /// is younger than a minute.
  [[nodiscard]] bool reject(const EcrHost& host, const std::string& basic);

  void set_endpoint(std::string endpoint) { setup_.endpoint = std::move(endpoint); }

 private:
  struct Login {
    std::string basic;
    MonotonicTime obtained_at{};
    MonotonicTime renew_at{};
    MonotonicTime expires_at{};
    std::optional<MonotonicTime> next_attempt;
    std::optional<Error> last_error;
    int failures = 0;
    bool running = false;
    std::unique_ptr<HttpCall> call;
    Waiters<std::string> waiters;
  };

  [[nodiscard]] std::string api_url(const EcrHost& host) const;
  void renew(Login& login, const EcrHost& host);
  void request_token(Login& login, const EcrHost& host, const AwsCredentials& credentials);
  void take_reply(Login& login, Result<HttpResponse> reply);
  void finish(Login& login, Result<EcrToken> result);

  EventLoop& loop_;
  HttpTransport& http_;
  EcrSetup setup_;
  AwsCredentialChain credentials_;
  std::map<std::string, Login> logins_;  // by API URL and region; nodes stay where they are
};

}  // namespace imagefs_guard
