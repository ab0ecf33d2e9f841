#include "agent/registry/ecr.h"

#include <algorithm>
#include <utility>

#include "agent/core/result.h"

namespace imagefs_guard {

namespace {

constexpr Duration kLoginRetryAfter = std::chrono::seconds(60);
constexpr Duration kLoginTimeout = std::chrono::seconds(10);
constexpr int kBackoffDoublings = 6;
/// Pod authors choose hosts and so regions: more than AWS has would be somebody's play.
constexpr std::size_t kLoginLimit = 64;

/// Full jitter: anything up to 2^failures seconds, a second at least, a minute at most.
Duration backoff(int failures, std::mt19937_64& random) {
  const std::int64_t ceiling = std::int64_t{1'000'000} << std::min(failures, kBackoffDoublings);
  const std::int64_t wait =
      static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(ceiling));
  return std::clamp<Duration>(Duration(wait), std::chrono::seconds(1), kLoginRetryAfter);
}

bool is_about_credentials(std::string_view code) {
  return code == "ExpiredTokenException" || code == "UnrecognizedClientException" ||
         code == "InvalidClientTokenId" || code == "ExpiredToken";
}

}  // namespace

EcrTokens::EcrTokens(EventLoop& loop, HttpTransport& http, EcrSetup setup)
    : loop_(loop),
      http_(http),
      setup_(std::move(setup)),
      credentials_(loop, http, setup_.environment, *setup_.random) {}

std::string EcrTokens::api_url(const EcrHost& host) const {
  if (!setup_.endpoint.empty()) {
    return setup_.endpoint;
  }
  const std::string configured = endpoint_override(setup_.environment, "AWS_ENDPOINT_URL_ECR");
  return configured.empty() ? ecr_api_url(host) : configured;
}

void EcrTokens::get(const EcrHost& host, Done<std::string> done) {
  const std::string key = api_url(host) + " " + host.region;
  if (logins_.size() >= kLoginLimit && !logins_.contains(key)) {
    done(Error{ErrorKind::ResourceExhausted, "ECR: logins in too many regions"});
    return;
  }
  Login& login = logins_[key];
  const MonotonicTime now = loop_.now();
  const bool usable = !login.basic.empty() && now < login.expires_at;
  const bool may_try = !login.next_attempt || now >= *login.next_attempt;
  if (usable) {
    const std::string basic = login.basic;
    if (now >= login.renew_at && may_try && !login.running) {
      renew(login, host);  // behind the caller's back; the old one still works
    }
    done(basic);
    return;
  }
  if (!login.running && !may_try) {
    done(login.last_error.value_or(
        Error{ErrorKind::Unavailable, "ECR: no token, asked again too soon"}));
    return;
  }
  login.waiters.add(std::move(done));
  if (!login.running) {
    renew(login, host);
  }
}

bool EcrTokens::reject(const EcrHost& host, const std::string& basic) {
  const auto found = logins_.find(api_url(host) + " " + host.region);
  if (found == logins_.end()) {
    return false;
  }
  Login& login = found->second;
  if (login.basic != basic) {
    return true;  // a newer one is here already
  }
  if (loop_.now() - login.obtained_at < kLoginRetryAfter) {
    return false;  // fresh: the registry refuses us for another reason
  }
  login.basic.clear();
  return true;
}

void EcrTokens::renew(Login& login, const EcrHost& host) {
  login.running = true;
  credentials_.get([this, &login, host](Result<AwsCredentials> credentials) {
    if (credentials) {
      request_token(login, host, *credentials);
    } else {
      finish(login, std::move(credentials).error());
    }
  });
}

void EcrTokens::request_token(Login& login,
                              const EcrHost& host,
                              const AwsCredentials& credentials) {
  HttpRequest request;
  request.method = "POST";
  request.url = api_url(host) + "/";
  // Exactly these: libcurl signs all of them, and some versions sign wrongly what is more.
  request.headers = {"Content-Type: application/x-amz-json-1.1",
                     "X-Amz-Target: AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"};
  if (!credentials.session_token.empty()) {
    request.headers.push_back("X-Amz-Security-Token: " + credentials.session_token);
  }
  request.body = "{}";
  request.body_limit = kAuthBytesLimit;
  request.total_timeout = kLoginTimeout;
  request.use_proxy = request.url.starts_with("https://");
  request.aws_signature = AwsSignature{.region = host.region,
                                       .service = "ecr",
                                       .access_key_id = credentials.access_key_id,
                                       .secret_access_key = credentials.secret_access_key};
  login.call = http_.start(std::move(request), [this, &login](Result<HttpResponse> reply) {
    take_reply(login, std::move(reply));
  });
}

void EcrTokens::take_reply(Login& login, Result<HttpResponse> reply) {
  if (!reply) {
    finish(login, with_context(std::move(reply).error(), "ECR API"));
    return;
  }
  if (reply->status == 200) {
    finish(login, parse_ecr_token(reply->body));
    return;
  }
  const ServiceError service = parse_aws_error(reply->body, reply->header("x-amzn-errortype"));
  Error error{ErrorKind::PermissionDenied,
              "ECR API answered " + std::to_string(reply->status) + " " + service.code};
  if (!service.message.empty()) {
    error.message += ": " + service.message;
  }
  if (is_throttling(service.code) || reply->status == 429) {
    error.kind = ErrorKind::ResourceExhausted;
  } else if (reply->status >= 500) {
    error.kind = ErrorKind::Unavailable;
  } else if (is_about_credentials(service.code)) {
    error.kind = ErrorKind::Unauthenticated;
    credentials_.forget();
  }
  finish(login, std::move(error));
}

void EcrTokens::finish(Login& login, Result<EcrToken> result) {
  login.running = false;
  login.call.reset();
  const MonotonicTime now = loop_.now();
  if (!result) {
    login.failures = std::min(login.failures + 1, kBackoffDoublings);
    login.last_error = result.error();
    login.next_attempt =
        now + (is_transient(result.error().kind) ? backoff(login.failures, *setup_.random)
                                                 : kLoginRetryAfter);
    const bool usable = !login.basic.empty() && now < login.expires_at;
    login.waiters.finish(usable ? Result<std::string>(login.basic)
                                : Result<std::string>(std::move(result).error()));
    return;
  }
  // An expiry in the past (or a clock that is wrong) must not become a loop of requests.
  const Duration lifetime =
      std::max<Duration>(result->expires_at - loop_.wall_now(), kLoginRetryAfter);
  login.basic = result->basic;
  login.obtained_at = now;
  login.expires_at = now + lifetime;
  login.renew_at = now + std::max<Duration>(lifetime / 2, kLoginRetryAfter);
  login.next_attempt.reset();
  login.last_error.reset();
  login.failures = 0;
  login.waiters.finish(login.basic);
}

}  // namespace imagefs_guard
