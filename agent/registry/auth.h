#pragma once
/// The Authorization header of a registry request: none, Basic or Bearer, as the registry's
/// challenge asks. ECR's login goes to ECR hosts alone, a login of the config file to the registry
/// it is for and to that registry's token service.
/// Used by registry_http.h alone. Nothing here is logged.

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "agent/core/policy.h"
#include "agent/io/http.h"
#include "agent/io/loop.h"
#include "agent/registry/ecr.h"
#include "agent/registry/target.h"
#include "agent/registry/waiters.h"
#include "agent/wire/registry_json.h"

namespace imagefs_guard {

struct AuthSetup {
  Policy policy;
  CredentialEnvironment environment;
  std::mt19937_64* random = nullptr;
};

class RegistryAuth {
 public:
  RegistryAuth(EventLoop& loop, HttpTransport& http, AuthSetup setup);

  /// What to begin with: ECR's login, or a token of a registry whose challenge is known. Empty
  /// where the registry has to be asked first.
  void begin(const RegistryTarget& target, Done<std::string> done);

  /// Answers the challenges of a 401. `rejected` is the header that was sent with the request;
  /// it is not tried again. An empty result means that there is nothing to answer with.
  struct Rejection {
    std::string www_authenticate;
    std::string authorization;
  };

  void answer(const RegistryTarget& target, const Rejection& rejection, Done<std::string> done);

  /// After "expired" at 403 or 400: true if begin() will bring another header than this one.
  [[nodiscard]] bool reject(const RegistryTarget& target, const std::string& authorization);

  /// Logins of another file replace those of before; tokens got with the old ones run out.
  void set_policy(const Policy& policy);

 private:
  struct TokenRequest {
    Url realm;
    std::string service;
    std::string scope;
    RegistryLogin login;  // empty: anonymous

    [[nodiscard]] std::string key() const;
  };

  struct Token {
    std::string header;
    MonotonicTime expires_at{};
    bool running = false;
    std::unique_ptr<HttpCall> call;
    Waiters<std::string> waiters;
  };

  void get_token(const RegistryTarget& target, const TokenRequest& request, Done<std::string> done);
  void take_token(Token& token, const std::string& realm, Result<HttpResponse> reply);
  void answer_bearer(const RegistryTarget& target,
                     const Challenge& challenge,
                     Done<std::string> done);
  [[nodiscard]] RegistryLogin login_for(const RegistryTarget& target);
  [[nodiscard]] HttpRequest token_http_request(const RegistryTarget& target,
                                               const TokenRequest& request) const;
  void drop_expired_tokens();
  void forget_token(const std::string& header);

  EventLoop& loop_;
  HttpTransport& http_;
  AuthSetup setup_;
  EcrTokens ecr_;
  std::map<std::string, std::unique_ptr<Token>> tokens_;
  std::map<std::string, TokenRequest> realms_;  // by host: scope is filled in per repository
  std::vector<RegistryLogin> logins_;
  std::optional<MonotonicTime> logins_read_at_;
};

}  // namespace imagefs_guard
