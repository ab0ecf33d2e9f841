#include "agent/registry/registry_http.h"

#include <algorithm>
#include <utility>

#include "agent/wire/time_text.h"

namespace imagefs_guard {

namespace {

constexpr int kRedirectLimit = 3;
constexpr Duration kTimeout = std::chrono::seconds(20);
constexpr Duration kPauseMinimum = std::chrono::seconds(1);
constexpr Duration kPauseMaximum = std::chrono::seconds(300);
/// Where the registry names no time: anything up to this, so that nodes don't come back together.
constexpr std::uint64_t kPauseSpreadMicroseconds = 30'000'000;
constexpr std::size_t kPauseLimit = 256;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool says_expired(const ServiceError& service) {
  return service.message.find("expired") != std::string::npos;
}

bool is_insufficient_scope(const HttpResponse& response) {
  const std::vector<Challenge> challenges = parse_challenges(response.header("www-authenticate"));
  return std::ranges::any_of(challenges, [](const Challenge& challenge) {
    const auto error = challenge.parameters.find("error");
    return error != challenge.parameters.end() && error->second == "insufficient_scope";
  });
}

ErrorKind kind_of_status(const HttpResponse& response) {
  switch (response.status) {
    case 400:
      return ErrorKind::InvalidArgument;
    case 401:
      return is_insufficient_scope(response) ? ErrorKind::PermissionDenied
                                             : ErrorKind::Unauthenticated;
    case 403:
      return ErrorKind::PermissionDenied;
    case 404:
      return ErrorKind::NotFound;
    case 408:
      return ErrorKind::DeadlineExceeded;
    case 429:
      return ErrorKind::ResourceExhausted;
    case 416:
      return ErrorKind::Unimplemented;
    default:
      return response.status >= 500 ? ErrorKind::Unavailable : ErrorKind::Internal;
  }
}

}  // namespace

/// A request on its way through login and redirects.
class RegistryHttp::Operation {
 public:
  Operation(RegistryHttp& owner, std::uint64_t id, RegistryRequest request)
      : owner_(owner), id_(id), request_(std::move(request)), url_(request_.target.base) {
    url_.target = request_.path;
  }

  void begin(Done<HttpResponse> done) {
    done_ = std::move(done);
    owner_.auth_.begin(request_.target, [this](Result<std::string> authorization) {
      authorized(std::move(authorization));
    });
  }

 private:
  void authorized(Result<std::string> authorization) {
    if (!authorization) {
      finish(std::move(authorization).error());
      return;
    }
    authorization_ = *std::move(authorization);
    send();
  }

  void send() {
    HttpRequest http;
    http.url = to_string(url_);
    http.headers = request_.headers;
    // Never to another host: a redirect's target gets its right to read in its URL.
    if (!authorization_.empty() && url_.same_origin(request_.target.base)) {
      http.headers.push_back("Authorization: " + authorization_);
    }
    http.total_timeout = kTimeout;
    http.body_limit = request_.body_limit;
    http.addresses = allowed_addresses(url_, request_.target, owner_.policy_);
    http.use_proxy = url_.scheme == "https";
    call_ = owner_.http_.start(
        std::move(http), [this](Result<HttpResponse> reply) { take_reply(std::move(reply)); });
  }

  void take_reply(Result<HttpResponse> reply) {
    if (!reply) {
      Error error = std::move(reply).error();
      if (error.kind == ErrorKind::PermissionDenied) {
        error.message += "; name the host in privateRegistries if that is meant";
      }
      if (error.kind == ErrorKind::ResourceExhausted) {
        error.kind = ErrorKind::InvalidArgument;  // too large is a bad reply, not a busy server
      }
      finish(with_context(std::move(error), host_and_port(url_)));
      return;
    }
    if (is_redirect(reply->status)) {
      follow(reply->header("location"));
    } else if (!try_again(*reply)) {
      if (reply->status >= 200 && reply->status < 300) {
        finish(*std::move(reply));
      } else {
        finish(error_of(*reply));
      }
    }
  }

  void follow(std::string_view location) {
    const std::optional<Url> next = resolve_location(url_, location);
    if (!next || !may_follow(*next, request_.target, owner_.policy_)) {
      finish(Error{ErrorKind::PermissionDenied,
                   host_and_port(url_) + " redirects to where no https is spoken"});
      return;
    }
    if (++redirects_ > kRedirectLimit) {
      finish(Error{ErrorKind::Unavailable,
                   host_and_port(url_) + " redirects more than " + std::to_string(kRedirectLimit) +
                       " times"});
      return;
    }
    url_ = *next;
    send();
  }

  /// One new login per request: for a challenge, or where the registry says "expired".
  bool try_again(const HttpResponse& response) {
    if (logged_in_again_ || !url_.same_origin(request_.target.base)) {
      return false;
    }
    if (response.status == 401) {
      logged_in_again_ = true;
      const RegistryAuth::Rejection rejection{std::string(response.header("www-authenticate")),
                                              authorization_};
      unauthorized_ = error_of(response);
      owner_.auth_.answer(request_.target, rejection, [this](Result<std::string> authorization) {
        if (authorization && authorization->empty()) {
          finish(*unauthorized_);
        } else {
          authorized(std::move(authorization));
        }
      });
      return true;
    }
    const bool expired =
        (response.status == 403 && says_expired(parse_registry_error(response.body))) ||
        (response.status == 400 && authorization_.starts_with("Bearer "));
    if (!expired || !owner_.auth_.reject(request_.target, authorization_)) {
      return false;
    }
    logged_in_again_ = true;
    owner_.auth_.begin(request_.target, [this](Result<std::string> authorization) {
      authorized(std::move(authorization));
    });
    return true;
  }

  Error error_of(const HttpResponse& response) {
    if (response.status == 429 || response.status == 408) {
      owner_.pause(request_.target.host, response);
    }
    const ServiceError service = parse_registry_error(response.body);
    Error error{kind_of_status(response),
                host_and_port(url_) + " answered " + std::to_string(response.status)};
    if (!service.code.empty()) {
      error.message += " " + service.code;
    }
    if (!service.message.empty()) {
      error.message += ": " + service.message;
    }
    return error;
  }

  void finish(Result<HttpResponse> result) {
    call_.reset();
    const Done<HttpResponse> done = std::move(done_);
    owner_.finish(id_);
    done(std::move(result));
  }

  RegistryHttp& owner_;
  std::uint64_t id_;
  RegistryRequest request_;
  Url url_;
  std::string authorization_;
  std::optional<Error> unauthorized_;
  int redirects_ = 0;
  bool logged_in_again_ = false;
  std::unique_ptr<HttpCall> call_;
  Done<HttpResponse> done_;
};

RegistryHttp::RegistryHttp(EventLoop& loop, HttpTransport& http, AuthSetup setup)
    : loop_(loop),
      http_(http),
      policy_(setup.policy),
      random_(*setup.random),
      auth_(loop, http, std::move(setup)) {}

RegistryHttp::~RegistryHttp() = default;

void RegistryHttp::get(RegistryRequest request, Done<HttpResponse> done) {
  if (std::optional<Error> error = paused(request.target.host)) {
    done(*std::move(error));
    return;
  }
  const std::uint64_t id = ++last_id_;
  auto operation = std::make_unique<Operation>(*this, id, std::move(request));
  Operation& started = *operation;
  operations_.emplace(id, std::move(operation));
  started.begin(std::move(done));
}

void RegistryHttp::set_policy(const Policy& policy) {
  policy_ = policy;
  auth_.set_policy(policy);
}

/// Later, since the operation is still on the stack.
void RegistryHttp::finish(std::uint64_t id) {
  loop_.defer([this, id, alive = std::weak_ptr<char>(alive_)] {
    if (!alive.expired()) {
      operations_.erase(id);
    }
  });
}

/// The whole host, not the image: its limit is per client.
void RegistryHttp::pause(const std::string& host, const HttpResponse& response) {
  Duration wait =
      kPauseMinimum + Duration(static_cast<std::int64_t>(random_() % kPauseSpreadMicroseconds));
  if (const auto asked = parse_retry_after(response.header("retry-after"), loop_.wall_now())) {
    wait = std::clamp<Duration>(*asked, kPauseMinimum, kPauseMaximum);
  }
  if (pauses_.size() >= kPauseLimit) {
    std::erase_if(pauses_, [this](const auto& entry) { return entry.second <= loop_.now(); });
  }
  if (pauses_.size() < kPauseLimit) {
    pauses_[host] = loop_.now() + wait;
  }
}

std::optional<Error> RegistryHttp::paused(const std::string& host) {
  const auto found = pauses_.find(host);
  if (found == pauses_.end()) {
    return std::nullopt;
  }
  const Duration left = found->second - loop_.now();
  if (left <= Duration{}) {
    pauses_.erase(found);
    return std::nullopt;
  }
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(left).count();
  return Error{ErrorKind::ResourceExhausted,
               host + " has asked for a pause, " + std::to_string(seconds) + " s are left"};
}

}  // namespace imagefs_guard
