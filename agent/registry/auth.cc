#include "agent/registry/auth.h"

#include <algorithm>
#include <utility>

namespace imagefs_guard {

namespace {

constexpr std::size_t kTokenLimit = 512;
constexpr std::size_t kRealmLimit = 64;
constexpr Duration kTokenTimeout = std::chrono::seconds(10);
constexpr Duration kTokenEarly = std::chrono::seconds(10);
/// The config file is read again after this: it may be a mounted secret that rotates.
constexpr Duration kLoginsLifetime = std::chrono::seconds(60);
constexpr std::size_t kLoginsFileLimit = std::size_t{1} << 20;

std::string pull_scope(const RegistryTarget& target) {
  return "repository:" + target.repository + ":pull";
}

const Challenge* find_scheme(const std::vector<Challenge>& challenges, std::string_view scheme) {
  const auto found = std::ranges::find(challenges, scheme, &Challenge::scheme);
  return found == challenges.end() ? nullptr : &*found;
}

std::string parameter(const Challenge& challenge, const std::string& name) {
  const auto found = challenge.parameters.find(name);
  return found == challenge.parameters.end() ? std::string() : found->second;
}

}  // namespace

RegistryAuth::RegistryAuth(EventLoop& loop, HttpTransport& http, AuthSetup setup)
    : loop_(loop),
      http_(http),
      setup_(std::move(setup)),
      ecr_(loop,
           http,
           EcrSetup{.environment = setup_.environment,
                    .endpoint = setup_.policy.ecr_endpoint,
                    .random = setup_.random}) {}

void RegistryAuth::set_policy(const Policy& policy) {
  if (policy.registry_config_file != setup_.policy.registry_config_file) {
    logins_.clear();
    logins_read_at_.reset();
  }
  setup_.policy = policy;
  ecr_.set_endpoint(policy.ecr_endpoint);
}

std::string RegistryAuth::TokenRequest::key() const {
  return to_string(realm) + "\n" + service + "\n" + scope + "\n" + login.basic + "\n" +
         login.identity_token;
}

void RegistryAuth::begin(const RegistryTarget& target, Done<std::string> done) {
  if (target.ecr) {
    ecr_.get(*target.ecr, [done = std::move(done)](Result<std::string> basic) {
      done(basic ? Result<std::string>("Basic " + *basic)
                 : Result<std::string>(std::move(basic).error()));
    });
    return;
  }
  const auto realm = realms_.find(target.host);
  if (realm == realms_.end()) {
    done(std::string());
    return;
  }
  TokenRequest request = realm->second;
  request.scope = pull_scope(target);
  request.login = login_for(target);
  get_token(target, request, [done = std::move(done)](Result<std::string> header) {
    // What goes wrong here shows again, with its challenge, once the registry has been asked.
    done(header ? *std::move(header) : std::string());
  });
}

void RegistryAuth::answer(const RegistryTarget& target,
                          const Rejection& rejection,
                          Done<std::string> done) {
  if (!rejection.authorization.empty()) {
    forget_token(rejection.authorization);
  }
  if (target.ecr) {
    if (reject(target, rejection.authorization)) {
      begin(target, std::move(done));
    } else {
      done(std::string());
    }
    return;
  }
  const std::vector<Challenge> challenges = parse_challenges(rejection.www_authenticate);
  if (const Challenge* bearer = find_scheme(challenges, "bearer")) {
    answer_bearer(target, *bearer, std::move(done));
    return;
  }
  const RegistryLogin login = login_for(target);
  if (find_scheme(challenges, "basic") != nullptr && !login.basic.empty() &&
      "Basic " + login.basic != rejection.authorization) {
    done("Basic " + login.basic);
    return;
  }
  done(std::string());
}

bool RegistryAuth::reject(const RegistryTarget& target, const std::string& authorization) {
  constexpr std::string_view kBasic = "Basic ";
  if (target.ecr && authorization.starts_with(kBasic)) {
    return ecr_.reject(*target.ecr, authorization.substr(kBasic.size()));
  }
  forget_token(authorization);
  return authorization.starts_with("Bearer ");
}

void RegistryAuth::answer_bearer(const RegistryTarget& target,
                                 const Challenge& challenge,
                                 Done<std::string> done) {
  const std::optional<Url> realm = parse_url(parameter(challenge, "realm"));
  if (!realm || !may_follow(*realm, target, setup_.policy)) {
    done(Error{ErrorKind::PermissionDenied,
               target.host + " names a token service that is no https URL"});
    return;
  }
  TokenRequest request{.realm = *realm,
                       .service = parameter(challenge, "service"),
                       .scope = parameter(challenge, "scope"),
                       .login = login_for(target)};
  if (request.scope.empty()) {
    request.scope = pull_scope(target);
  }
  if (realms_.size() < kRealmLimit || realms_.contains(target.host)) {
    TokenRequest remembered = request;
    remembered.login = RegistryLogin{};
    realms_[target.host] = std::move(remembered);
  }
  get_token(target, request, std::move(done));
}

HttpRequest RegistryAuth::token_http_request(const RegistryTarget& target,
                                             const TokenRequest& request) const {
  HttpRequest http;
  http.url = to_string(request.realm);
  const std::string query =
      (request.service.empty() ? std::string()
                               : "service=" + percent_encode(request.service) + "&") +
      "scope=" + percent_encode(request.scope);
  if (!request.login.identity_token.empty()) {
    http.method = "POST";
    http.headers = {"Content-Type: application/x-www-form-urlencoded"};
    http.body = "grant_type=refresh_token&client_id=imagefs-guard&" + query +
                "&refresh_token=" + percent_encode(request.login.identity_token);
  } else {
    const bool has_query = request.realm.target.find('?') != std::string::npos;
    http.url += (has_query ? "&" : "?") + query;
    if (!request.login.basic.empty()) {
      http.headers = {"Authorization: Basic " + request.login.basic};
    }
  }
  http.total_timeout = kTokenTimeout;
  http.body_limit = kAuthBytesLimit;
  http.addresses = allowed_addresses(request.realm, target, setup_.policy);
  http.use_proxy = request.realm.scheme == "https";
  return http;
}

void RegistryAuth::get_token(const RegistryTarget& target,
                             const TokenRequest& request,
                             Done<std::string> done) {
  const std::string key = request.key();
  std::unique_ptr<Token>& slot = tokens_[key];
  if (slot == nullptr) {
    slot = std::make_unique<Token>();
  }
  Token& token = *slot;
  if (!token.header.empty() && loop_.now() < token.expires_at) {
    done(token.header);
    return;
  }
  token.waiters.add(std::move(done));
  if (token.running) {
    return;
  }
  token.running = true;
  token.call = http_.start(token_http_request(target, request),
                           [this, &token, realm = request.realm.host](Result<HttpResponse> reply) {
                             take_token(token, realm, std::move(reply));
                           });
  drop_expired_tokens();
}

void RegistryAuth::take_token(Token& token, const std::string& realm, Result<HttpResponse> reply) {
  const std::string who = "token service " + realm;  // `realm` ends with the call
  token.running = false;
  token.call.reset();
  token.header.clear();
  if (!reply) {
    token.waiters.finish(with_context(std::move(reply).error(), who));
    return;
  }
  if (reply->status != 200) {
    const ServiceError service = parse_registry_error(reply->body);
    Error error{ErrorKind::Unauthenticated, who + " answered " + std::to_string(reply->status)};
    if (reply->status == 429) {
      error.kind = ErrorKind::ResourceExhausted;
    } else if (reply->status >= 500) {
      error.kind = ErrorKind::Unavailable;
    }
    if (!service.message.empty()) {
      error.message += ": " + service.message;
    }
    token.waiters.finish(std::move(error));
    return;
  }
  const Result<BearerToken> parsed = parse_bearer_token(reply->body);
  if (!parsed) {
    token.waiters.finish(with_context(parsed.error(), who));
    return;
  }
  token.header = "Bearer " + parsed->token;
  // Its age counts from when it was issued, if the clocks agree on that.
  Duration age{};
  if (parsed->issued_at) {
    age = std::clamp<Duration>(loop_.wall_now() - *parsed->issued_at, Duration{}, parsed->lifetime);
  }
  token.expires_at = loop_.now() + parsed->lifetime - age - kTokenEarly;
  const std::string header = token.header;
  token.waiters.finish(header);
}

void RegistryAuth::drop_expired_tokens() {
  if (tokens_.size() <= kTokenLimit) {
    return;
  }
  const MonotonicTime now = loop_.now();
  std::erase_if(tokens_, [now](const auto& entry) {
    return !entry.second->running && entry.second->expires_at <= now;
  });
  for (auto it = tokens_.begin(); it != tokens_.end() && tokens_.size() > kTokenLimit;) {
    it = it->second->running ? std::next(it) : tokens_.erase(it);
  }
}

void RegistryAuth::forget_token(const std::string& header) {
  for (auto& [key, token] : tokens_) {
    if (token->header == header) {
      token->header.clear();
    }
  }
}

/// The longest key that matches; docker.io's images are also known as index.docker.io's.
RegistryLogin RegistryAuth::login_for(const RegistryTarget& target) {
  const std::string& file = setup_.policy.registry_config_file;
  if (file.empty()) {
    return {};
  }
  if (!logins_read_at_ || loop_.now() - *logins_read_at_ >= kLoginsLifetime) {
    logins_read_at_ = loop_.now();
    const Result<std::string> text = setup_.environment.read_file(file, kLoginsFileLimit);
    Result<std::vector<RegistryLogin>> logins =
        text ? parse_docker_config(*text) : Result<std::vector<RegistryLogin>>(text.error());
    if (logins) {
      logins_ = *std::move(logins);  // else what was there before
    }
  }
  std::vector<std::string> names = {target.image_name()};
  if (target.host == "docker.io") {
    names.push_back("index.docker.io/" + target.repository);
  }
  for (const RegistryLogin& login : logins_) {
    const bool matches = std::ranges::any_of(
        names, [&login](const std::string& name) { return login_matches(login.key, name); });
    if (matches) {
      return login;
    }
  }
  return {};
}

}  // namespace imagefs_guard
