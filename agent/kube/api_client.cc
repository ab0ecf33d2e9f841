#include "agent/kube/api_client.h"

#include <algorithm>
#include <utility>

#include "agent/core/verify.h"
#include "agent/io/file.h"
#include "agent/wire/kube_json.h"
#include "agent/wire/time_text.h"

namespace imagefs_guard {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::size_t kTokenLimit = std::size_t{64} << 10;  // real ones have 1 to 4 KiB
constexpr Duration kTokenLifetime = minutes(1);             // as client-go
constexpr Duration kPauseLimit = seconds(60);               // API priority asks for at most 32
constexpr std::size_t kMessageLimit = 512;
constexpr int kUnauthorized = 401;

const char* method_of(KubeVerb verb) {
  switch (verb) {
    case KubeVerb::Get:
    case KubeVerb::List:
    case KubeVerb::Watch:
      return "GET";
    case KubeVerb::Create:
      return "POST";
    case KubeVerb::Update:
      return "PUT";
    case KubeVerb::Delete:
      return "DELETE";
    case KubeVerb::JsonPatch:
    case KubeVerb::MergePatch:
    case KubeVerb::StrategicMergePatch:
      return "PATCH";
  }
  return "GET";
}

/// As the API server counts them: a list is not a GET.
const char* counted_verb(KubeVerb verb) {
  switch (verb) {
    case KubeVerb::List:
      return "LIST";
    case KubeVerb::Watch:
      return "WATCH";
    case KubeVerb::Get:
    case KubeVerb::Create:
    case KubeVerb::Update:
    case KubeVerb::Delete:
    case KubeVerb::JsonPatch:
    case KubeVerb::MergePatch:
    case KubeVerb::StrategicMergePatch:
      return method_of(verb);
  }
  return method_of(verb);
}

/// Null for requests without a body of their own.
const char* content_type_of(KubeVerb verb) {
  switch (verb) {
    case KubeVerb::Get:
    case KubeVerb::List:
    case KubeVerb::Watch:
      return nullptr;
    case KubeVerb::Create:
    case KubeVerb::Update:
    case KubeVerb::Delete:
      return "Content-Type: application/json";
    case KubeVerb::JsonPatch:
      return "Content-Type: application/json-patch+json";
    case KubeVerb::MergePatch:
      return "Content-Type: application/merge-patch+json";
    case KubeVerb::StrategicMergePatch:
      return "Content-Type: application/strategic-merge-patch+json";
  }
  return nullptr;
}

bool is_write(KubeVerb verb) {
  return content_type_of(verb) != nullptr && verb != KubeVerb::Delete;
}

ErrorKind kind_of(int status, const ApiStatus& answer) {
  switch (status) {
    case 400:
    case 422:
      return ErrorKind::InvalidArgument;
    case kUnauthorized:
      return ErrorKind::Unauthenticated;
    case 403:
      return ErrorKind::PermissionDenied;
    case 404:
      return ErrorKind::NotFound;
    case 405:
    case 415:
      return ErrorKind::Unimplemented;
    case 409:
      return answer.reason == "AlreadyExists" ? ErrorKind::AlreadyExists : ErrorKind::Aborted;
    case 410:
      return ErrorKind::FailedPrecondition;
    case 413:
      return ErrorKind::ResourceExhausted;
    case 429:
      return ErrorKind::Unavailable;
    default:
      return status >= 500 ? ErrorKind::Unavailable : ErrorKind::Internal;
  }
}

/// "GET /api/v1/nodes/n1": without the query, which may hold a continue token.
std::string name_of(const KubeRequest& request) {
  return std::string(method_of(request.verb)) + " " + request.path;
}

Error error_of(const KubeRequest& request, const HttpResponse& response) {
  const ApiStatus answer = parse_api_status(response.body);
  std::string message = name_of(request) + ": " + std::to_string(response.status);
  if (!answer.reason.empty()) {
    message += " " + answer.reason;
  }
  if (!answer.message.empty()) {
    message += ": " + answer.message.substr(0, kMessageLimit);
  }
  const std::string_view audit_id = response.header("audit-id");
  if (!audit_id.empty()) {
    message += " (audit " + std::string(audit_id.substr(0, 64)) + ")";
  }
  return Error{kind_of(response.status, answer), std::move(message)};
}

bool is_plain_http(const std::string& base_url) {
  return base_url.starts_with("http://");
}

/// Over plain http a token may only stay on this machine.
bool may_carry_token(const std::string& base_url) {
  if (!is_plain_http(base_url)) {
    return true;
  }
  const std::string_view rest = std::string_view(base_url).substr(7);
  for (const std::string_view host : {"127.0.0.1", "localhost", "[::1]"}) {
    if (rest.starts_with(host) && (rest.size() == host.size() || rest[host.size()] == ':')) {
      return true;
    }
  }
  return false;
}

/// Anything else than one printable word would become more than one header.
bool is_token(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

KubeCall::KubeCall(KubeApi& api, KubeRequest request, KubeDone done)
    : api_(api),
      request_(std::move(request)),
      done_(std::move(done)),
      alive_(std::make_shared<bool>(true)) {}

KubeCall::~KubeCall() = default;

void KubeCall::send() {
  const Duration pause = api_.pause_left();
  if (pause > Duration::zero()) {
    const auto left = std::chrono::ceil<seconds>(pause).count();
    finish_later(Error{ErrorKind::Unavailable,
                       name_of(request_) + ": not sent, the server asked to wait " +
                           std::to_string(left) + " s more"});
    return;
  }
  Result<std::string> token = api_.token();
  if (!token) {
    finish_later(std::move(token).error());
    return;
  }
  HttpRequest http;
  http.method = method_of(request_.verb);
  http.url = api_.options_.base_url + request_.path;
  std::string query = request_.query;
  if (is_write(request_.verb)) {
    query += query.empty() ? "" : "&";
    query += "fieldManager=imagefs-guard.io";
  }
  http.url += query.empty() ? "" : "?" + query;
  http.headers = {request_.metadata_only
                      ? "Accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
                      : "Accept: application/json",
                  "User-Agent: imagefs-guard"};
  if (const char* content_type = content_type_of(request_.verb)) {
    http.headers.emplace_back(content_type);
  }
  if (!token->empty()) {
    http.headers.push_back("Authorization: Bearer " + *token);
  }
  http.body = request_.body;
  http.ca_file = api_.options_.ca_file;
  http.total_timeout = request_.total_timeout;
  http.idle_timeout = request_.idle_timeout;
  http.body_limit = request_.body_limit;
  http.on_data = request_.on_data;
  http_ = api_.transport_.start(std::move(http),
                                [this](Result<HttpResponse> reply) { on_reply(std::move(reply)); });
}

void KubeCall::finish_later(Error error) {
  api_.loop_.defer([this, alive = std::weak_ptr<bool>(alive_), error = std::move(error)] {
    if (!alive.expired()) {
      finish(error);
    }
  });
}

void KubeCall::on_reply(Result<HttpResponse> reply) {
  if (!reply) {
    api_.note_reply(request_, 0);
    finish(with_context(std::move(reply).error(), name_of(request_)));
    return;
  }
  api_.note_reply(request_, reply->status);
  if (reply->status >= 200 && reply->status < 300) {
    finish(std::move(reply->body));
    return;
  }
  api_.note_retry_after(*reply);
  if (reply->status == kUnauthorized) {
    // The kubelet has rotated the token earlier than our minute: once more with a fresh one.
    api_.forget_token();
    if (!token_renewed_ && !api_.options_.token_file.empty()) {
      token_renewed_ = true;
      send();
      return;
    }
  }
  finish(error_of(request_, *reply));
}

void KubeCall::finish(Result<std::string> result) {
  VERIFY(done_ != nullptr);
  const KubeDone done = std::exchange(done_, nullptr);
  done(std::move(result));  // may destroy this
}

KubeApi::KubeApi(EventLoop& loop, HttpTransport& transport, KubeApiOptions options)
    : loop_(loop), transport_(transport), options_(std::move(options)), random_(options_.seed) {}

std::unique_ptr<KubeCall> KubeApi::start(KubeRequest request, KubeDone done) {
  // The constructor is private to everybody else: no make_unique.
  std::unique_ptr<KubeCall> call(new KubeCall(*this, std::move(request), std::move(done)));
  call->send();
  return call;
}

Duration KubeApi::pause_left() const {
  return std::max(Duration::zero(), paused_until_ - loop_.now());
}

std::uint64_t KubeApi::random_below(std::uint64_t bound) {
  return bound == 0 ? 0 : random_() % bound;
}

Result<std::string> KubeApi::token() {
  if (options_.token_file.empty() || !may_carry_token(options_.base_url)) {
    return std::string();
  }
  const MonotonicTime now = loop_.now();
  if (token_read_at_.has_value() && now - *token_read_at_ < kTokenLifetime) {
    return token_;
  }
  Result<std::string> text = read_file(options_.token_file, kTokenLimit);
  if (!text) {
    if (text.error().kind == ErrorKind::NotFound && is_plain_http(options_.base_url)) {
      return std::string();
    }
    return Error{ErrorKind::Unauthenticated, "service account token: " + text.error().message};
  }
  std::string token = *std::move(text);
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' ')) {
    token.pop_back();
  }
  if (!is_token(token)) {
    return Error{ErrorKind::Unauthenticated,
                 "service account token: " + options_.token_file + " holds no token"};
  }
  token_ = std::move(token);
  token_read_at_ = now;
  return token_;
}

void KubeApi::note_reply(const KubeRequest& request, int status) {
  ++counts_[{counted_verb(request.verb), request.resource, status}];
}

void KubeApi::note_retry_after(const HttpResponse& response) {
  if (response.status != 429 && response.status < 500) {
    return;
  }
  Duration pause = parse_retry_after(response.header("retry-after"), loop_.wall_now())
                       .value_or(Duration::zero());
  if (response.status == 429) {
    pause = std::max<Duration>(pause, seconds(1));
  }
  paused_until_ = std::max(paused_until_, loop_.now() + std::min(pause, kPauseLimit));
}

}  // namespace imagefs_guard
