#include "agent/registry/credentials.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "agent/io/file.h"
#include "agent/registry/reference.h"
#include "agent/registry/url.h"

namespace imagefs_guard {

namespace {

/// botocore refreshes at 15 minutes left, and must at 10.
constexpr Duration kRefreshBefore = std::chrono::minutes(10);
/// No source is asked more often, whatever it answers.
constexpr Duration kAttemptFloor = std::chrono::seconds(60);
/// A pod off the host network sees a hop limit of 1 as silence: fail fast.
constexpr Duration kInstanceTimeout = std::chrono::seconds(1);
constexpr Duration kContainerTimeout = std::chrono::seconds(2);
constexpr Duration kStsTimeout = std::chrono::seconds(10);
constexpr std::size_t kTokenFileLimit = 20'000;  // STS takes no more

constexpr const char* kRelativeUri = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
constexpr const char* kFullUri = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
constexpr const char* kWebIdentityFile = "AWS_WEB_IDENTITY_TOKEN_FILE";

Error precondition(const std::string& what) {
  return Error{ErrorKind::FailedPrecondition, "AWS credentials: " + what};
}

bool is_true(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return text == "true";
}

std::string trimmed(std::string text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  text.erase(end == std::string::npos ? 0 : end + 1);
  return text;
}

/// Plain http only to this node: what is sent there is worth the node's identity.
bool is_container_host(const Url& url) {
  static constexpr std::array<std::string_view, 5> kHosts = {
      "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", "[::1]", "localhost"};
  return url.scheme == "https" || std::ranges::find(kHosts, url.host) != kHosts.end() ||
         (url.host.starts_with("127.") &&
          url.host.find_first_not_of("0123456789.") == std::string::npos);
}

/// A reply that is none of success as an Error: status and the service's own word, no secret.
Error reply_error(const HttpResponse& response, const std::string& who) {
  const ServiceError service = parse_aws_error(response.body, response.header("x-amzn-errortype"));
  Error error{ErrorKind::PermissionDenied, who + " answered " + std::to_string(response.status)};
  if (response.status >= 500) {
    error.kind = ErrorKind::Unavailable;
  } else if (response.status == 429 || is_throttling(service.code)) {
    error.kind = ErrorKind::ResourceExhausted;
  }
  if (!service.code.empty()) {
    error.message += " " + service.code;
  }
  if (!service.message.empty()) {
    error.message += ": " + service.message;
  }
  return error;
}

/// 200, or the error of the call or of the reply.
Result<HttpResponse> checked(Result<HttpResponse> response, const std::string& who) {
  if (!response) {
    return with_context(std::move(response).error(), who);
  }
  if (response->status != 200) {
    return reply_error(*response, who);
  }
  return response;
}

}  // namespace

CredentialEnvironment process_environment() {
  return CredentialEnvironment{
      .variable = [](const char* name) -> std::optional<std::string> {
        const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
      },
      .read_file = read_file};
}

std::string value_of(const CredentialEnvironment& environment, const char* name) {
  return environment.variable(name).value_or("");
}

std::string endpoint_override(const CredentialEnvironment& environment,
                              const char* service_variable) {
  if (is_true(value_of(environment, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"))) {
    return {};
  }
  std::string url = value_of(environment, service_variable);
  if (url.empty()) {
    url = value_of(environment, "AWS_ENDPOINT_URL");
  }
  while (url.ends_with('/')) {
    url.pop_back();
  }
  return url;
}

AwsCredentialChain::AwsCredentialChain(EventLoop& loop,
                                       HttpTransport& http,
                                       CredentialEnvironment environment,
                                       std::mt19937_64& random)
    : loop_(loop), http_(http), environment_(std::move(environment)), random_(random) {}

bool AwsCredentialChain::usable() const {
  return credentials_ && !forgotten_ &&
         (!credentials_->expires_at || *credentials_->expires_at > loop_.wall_now());
}

void AwsCredentialChain::get(Done<AwsCredentials> done) {
  const bool fresh = usable() && (!credentials_->expires_at ||
                                  *credentials_->expires_at - loop_.wall_now() > kRefreshBefore);
  if (fresh) {
    done(*credentials_);
    return;
  }
  const bool may_try = !last_attempt_ || loop_.now() - *last_attempt_ >= kAttemptFloor;
  if (call_ == nullptr && !may_try) {
    if (usable()) {
      done(*credentials_);
    } else {
      done(last_error_.value_or(precondition("asked for again within a minute")));
    }
    return;
  }
  waiters_.add(std::move(done));
  if (call_ == nullptr) {
    refresh();
  }
}

void AwsCredentialChain::forget() {
  forgotten_ = true;
}

void AwsCredentialChain::refresh() {
  last_attempt_ = loop_.now();
  const auto has = [this](const char* name) { return !value_of(environment_, name).empty(); };
  if (has("AWS_ACCESS_KEY_ID") || has("AWS_SECRET_ACCESS_KEY")) {
    fetch_static();
  } else if (has(kWebIdentityFile) || has("AWS_ROLE_ARN")) {
    fetch_web_identity();
  } else if (has("AWS_PROFILE") || has("AWS_SHARED_CREDENTIALS_FILE") || has("AWS_CONFIG_FILE")) {
    finish(Error{ErrorKind::Unimplemented,
                 "AWS credentials: shared files are configured (AWS_PROFILE, "
                 "AWS_SHARED_CREDENTIALS_FILE or AWS_CONFIG_FILE) but not supported"});
  } else if (has(kRelativeUri)) {
    const std::string path = value_of(environment_, kRelativeUri);
    if (path.starts_with('/')) {
      fetch_container("http://169.254.170.2" + path);
    } else {
      finish(precondition(std::string(kRelativeUri) + " does not begin with /"));
    }
  } else if (has(kFullUri)) {
    fetch_container(value_of(environment_, kFullUri));
  } else if (is_true(value_of(environment_, "AWS_EC2_METADATA_DISABLED"))) {
    finish(precondition("none configured, and the instance metadata service is disabled"));
  } else {
    fetch_instance();
  }
}

void AwsCredentialChain::start(HttpRequest request, HttpDone done) {
  request.body_limit = kAuthBytesLimit;
  call_ = http_.start(std::move(request), std::move(done));
}

void AwsCredentialChain::finish(Result<AwsCredentials> result) {
  call_.reset();
  if (result) {
    credentials_ = *result;
    last_error_.reset();
    forgotten_ = false;
    waiters_.finish(std::move(result));
    return;
  }
  last_error_ = result.error();
  // What is at hand is as good as it was, until it expires.
  waiters_.finish(usable() ? Result<AwsCredentials>(*credentials_) : std::move(result));
}

// ---- environment
// ---------------------------------------------------------------------------------

void AwsCredentialChain::fetch_static() {
  AwsCredentials credentials;
  credentials.access_key_id = value_of(environment_, "AWS_ACCESS_KEY_ID");
  credentials.secret_access_key = value_of(environment_, "AWS_SECRET_ACCESS_KEY");
  credentials.session_token = value_of(environment_, "AWS_SESSION_TOKEN");
  if (credentials.session_token.empty()) {
    credentials.session_token = value_of(environment_, "AWS_SECURITY_TOKEN");
  }
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty()) {
    finish(precondition("only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set"));
    return;
  }
  finish(std::move(credentials));
}

// ---- web identity (IRSA)
// -------------------------------------------------------------------------

void AwsCredentialChain::fetch_web_identity() {
  const std::string file = value_of(environment_, kWebIdentityFile);
  const std::string role = value_of(environment_, "AWS_ROLE_ARN");
  std::string region = value_of(environment_, "AWS_REGION");
  if (region.empty()) {
    region = value_of(environment_, "AWS_DEFAULT_REGION");
  }
  std::string url = endpoint_override(environment_, "AWS_ENDPOINT_URL_STS");
  if (file.empty() || role.empty()) {
    finish(precondition("only one of AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN is set"));
    return;
  }
  if (region.empty() && url.empty()) {
    finish(precondition("AWS_WEB_IDENTITY_TOKEN_FILE without AWS_REGION"));
    return;
  }
  Result<std::string> token = environment_.read_file(file, kTokenFileLimit);  // it rotates
  if (!token) {
    finish(with_context(std::move(token).error(), "AWS credentials: web identity token"));
    return;
  }
  std::string session = value_of(environment_, "AWS_ROLE_SESSION_NAME");
  session = session.empty() ? "imagefs-guard" : session;
  HttpRequest request;
  request.method = "POST";
  request.url = (url.empty() ? "https://sts." + region + "." + aws_dns_suffix(region) : url) + "/";
  request.headers = {"Content-Type: application/x-www-form-urlencoded", "Accept: application/json"};
  request.body =
      "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=" + percent_encode(role) +
      "&RoleSessionName=" + percent_encode(session) +
      "&WebIdentityToken=" + percent_encode(trimmed(*std::move(token))) + "&DurationSeconds=3600";
  request.total_timeout = kStsTimeout;
  request.use_proxy = url.empty();
  start(std::move(request), [this](Result<HttpResponse> reply) {
    const Result<HttpResponse> response = checked(std::move(reply), "STS");
    finish(response ? parse_sts_credentials(response->body)
                    : Result<AwsCredentials>(response.error()));
  });
}

// ---- container endpoint (Pod Identity, ECS)
// --------------------------------------------------------

/// Raw file content, no "Bearer": so the endpoint wants it.
Result<std::string> AwsCredentialChain::container_authorization() const {
  std::string token = value_of(environment_, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string file = value_of(environment_, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!file.empty()) {
    Result<std::string> content = environment_.read_file(file, kTokenFileLimit);
    if (!content) {
      return with_context(std::move(content).error(), "AWS credentials: container token");
    }
    token = trimmed(*std::move(content));
  }
  if (token.find_first_of("\r\n") != std::string::npos) {
    return precondition("a line break in the container authorization token");
  }
  return token;
}

void AwsCredentialChain::fetch_container(const std::string& url) {
  const std::optional<Url> parsed = parse_url(url);
  if (!parsed || !is_container_host(*parsed)) {
    finish(precondition("the container endpoint is neither https nor an address of this node"));
    return;
  }
  const Result<std::string> token = container_authorization();
  if (!token) {
    finish(token.error());
    return;
  }
  HttpRequest request;
  request.url = url;
  request.headers = {"Accept: application/json"};
  if (!token->empty()) {
    request.headers.push_back("Authorization: " + *token);
  }
  request.connect_timeout = kContainerTimeout;
  request.total_timeout = kContainerTimeout;
  start(std::move(request), [this](Result<HttpResponse> reply) {
    const Result<HttpResponse> response =
        checked(std::move(reply), "container credential endpoint");
    finish(response ? parse_container_credentials(response->body)
                    : Result<AwsCredentials>(response.error()));
  });
}

// ---- instance metadata
// -----------------------------------------------------------------------------

std::string AwsCredentialChain::instance_url(const std::string& path) const {
  std::string base = value_of(environment_, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (base.empty()) {
    const std::string mode = value_of(environment_, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    base = mode == "IPv6" || mode == "ipv6" ? "http://[fd00:ec2::254]" : "http://169.254.169.254";
  }
  while (base.ends_with('/')) {
    base.pop_back();
  }
  return base + path;
}

void AwsCredentialChain::fetch_instance() {
  HttpRequest request;
  request.method = "PUT";
  request.url = instance_url("/latest/api/token");
  request.headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"};
  request.connect_timeout = kInstanceTimeout;
  request.total_timeout = kInstanceTimeout;
  start(std::move(request), [this](Result<HttpResponse> reply) {
    Result<HttpResponse> response = checked(std::move(reply), "instance metadata service");
    if (!response) {
      Error error = response.error();
      if (error.kind == ErrorKind::DeadlineExceeded) {
        error.message += " (is the hop limit of the instance's metadata 1?)";
      }
      finish(std::move(error));
      return;
    }
    const std::string token = trimmed(response->body);
    if (token.empty() || token.find_first_of("\r\n") != std::string::npos) {
      finish(precondition("the instance metadata service gave no token"));
      return;
    }
    fetch_instance_role(token);
  });
}

void AwsCredentialChain::fetch_instance_role(const std::string& token) {
  HttpRequest request;
  request.url = instance_url("/latest/meta-data/iam/security-credentials/");
  request.headers = {"X-aws-ec2-metadata-token: " + token};
  request.connect_timeout = kInstanceTimeout;
  request.total_timeout = kInstanceTimeout;
  start(std::move(request), [this, token](Result<HttpResponse> reply) {
    const std::string metadata_token = token;  // the call, and this lambda, end with the next one
    const Result<HttpResponse> response = checked(std::move(reply), "instance metadata service");
    if (!response) {
      finish(response.error());
      return;
    }
    const std::string role = trimmed(response->body.substr(0, response->body.find('\n')));
    if (role.empty() || percent_encode(role).find("%2F") != std::string::npos) {
      finish(precondition("the instance has no role"));
      return;
    }
    fetch_instance_credentials(role, metadata_token);
  });
}

void AwsCredentialChain::fetch_instance_credentials(const std::string& role,
                                                    const std::string& token) {
  HttpRequest request;
  request.url = instance_url("/latest/meta-data/iam/security-credentials/" + percent_encode(role));
  request.headers = {"X-aws-ec2-metadata-token: " + token};
  request.connect_timeout = kInstanceTimeout;
  request.total_timeout = kInstanceTimeout;
  start(std::move(request), [this](Result<HttpResponse> reply) {
    const Result<HttpResponse> response = checked(std::move(reply), "instance metadata service");
    if (!response) {
      finish(response.error());
      return;
    }
    Result<AwsCredentials> credentials = parse_instance_credentials(response->body);
    if (credentials) {
      keep_expired_instance_credentials(*credentials);
    }
    finish(std::move(credentials));
  });
}

/// In an outage the service hands out what has expired, and AWS accepts it: use it, and spread the
/// fleet's next attempts.
void AwsCredentialChain::keep_expired_instance_credentials(AwsCredentials& credentials) {
  constexpr std::int64_t kSpreadFirst = 120;
  constexpr std::uint64_t kSpread = 480;
  const WallTime now = loop_.wall_now();
  if (credentials.expires_at && *credentials.expires_at <= now + kAttemptFloor) {
    credentials.expires_at =
        now + kRefreshBefore +
        std::chrono::seconds(kSpreadFirst + static_cast<std::int64_t>(random_() % kSpread));
  }
}

}  // namespace imagefs_guard
