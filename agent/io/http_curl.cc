#include <curl/curl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "agent/io/address.h"
#include "agent/io/curl_multi.h"
#include "agent/io/http.h"
#include "agent/io/loop.h"
#include "agent/io/proxy.h"
#include "agent/io/redact.h"

namespace imagefs_guard {

namespace {

// Idle connections kept for reuse: API server, kubelet, credentials, and a registry with its
// token and blob hosts, twice over. Each costs some 50 KiB with TLS.
constexpr long kIdleConnections = 8;
// A registry that answers slowly must not make us open connections without end.
constexpr long kConnectionsPerHost = 8;
constexpr long kConnectionsTotal = 32;
// Replies with more or longer headers are no replies of ours to read.
constexpr std::size_t kHeaderLimit = 64;
constexpr std::size_t kHeaderBytesLimit = std::size_t{64} << 10;
constexpr std::size_t kErrorBodyLimit = std::size_t{64} << 10;
constexpr long kKeepAliveIdleSeconds = 30;
constexpr long kKeepAliveIntervalSeconds = 10;

bool has_control_bytes(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

long milliseconds(Duration duration) {
  // 0 would mean "no limit" to curl.
  return std::max<long>(
      1, static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(duration).count()));
}

struct UrlParts {
  std::string scheme;
  std::string host;
};

Result<UrlParts> parse_url(const std::string& url) {
  const Error bad{ErrorKind::InvalidArgument, "malformed URL"};
  if (has_control_bytes(url)) {
    return bad;
  }
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), curl_url_cleanup);
  if (!parsed || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return bad;
  }
  UrlParts parts;
  char* text = nullptr;
  if (curl_url_get(parsed.get(), CURLUPART_SCHEME, &text, 0) != CURLUE_OK) {
    return bad;
  }
  parts.scheme = text;
  curl_free(text);
  if (curl_url_get(parsed.get(), CURLUPART_HOST, &text, 0) != CURLUE_OK) {
    return bad;
  }
  parts.host = text;
  curl_free(text);
  if (parts.scheme != "http" && parts.scheme != "https") {
    return Error{ErrorKind::InvalidArgument, "URL scheme " + parts.scheme + " is not supported"};
  }
  return parts;
}

Result<UrlParts> check_request(const HttpRequest& request) {
  for (const std::string& header : request.headers) {
    if (has_control_bytes(header)) {
      return Error{ErrorKind::InvalidArgument, "header with a control character"};
    }
  }
  return parse_url(request.url);
}

ErrorKind error_kind(CURLcode code) {
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return ErrorKind::DeadlineExceeded;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_LOGIN_DENIED:
      return ErrorKind::InvalidArgument;
    default:
      return ErrorKind::Unavailable;
  }
}

class HttpTransfer final : public CurlTransfer {
 public:
  HttpTransfer(CURL* easy, EventLoop& loop, HttpRequest request, HttpDone done)
      : CurlTransfer(easy), loop_(loop), request_(std::move(request)), done_(std::move(done)) {}

  ~HttpTransfer() override { curl_slist_free_all(header_list_); }

  HttpTransfer(const HttpTransfer&) = delete;
  HttpTransfer& operator=(const HttpTransfer&) = delete;

  void prepare(const std::optional<std::string>& proxy) {
    set(CURLOPT_URL, request_.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_QUICK_EXIT, 1L);  // don't wait for the resolver thread when cancelled
    set(CURLOPT_ERRORBUFFER, error_buffer_.data());
    set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(request_.connect_timeout));
    if (request_.total_timeout > Duration{0}) {
      set(CURLOPT_TIMEOUT_MS, milliseconds(request_.total_timeout));
    }
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_TCP_KEEPIDLE, kKeepAliveIdleSeconds);
    set(CURLOPT_TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
    if (!request_.ca_file.empty()) {
      set(CURLOPT_CAINFO, request_.ca_file.c_str());
      set(CURLOPT_CAPATH, static_cast<char*>(nullptr));
      set(CURLOPT_CA_CACHE_TIMEOUT, 0L);  // the kubelet swaps the file when the CA rotates
    }
    set(CURLOPT_PROXY, proxy ? proxy->c_str() : "");
    set(CURLOPT_NOPROXY, proxy ? "" : "*");
    set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    if (request_.addresses == AddressPolicy::PublicOnly && !proxy) {
      set(CURLOPT_OPENSOCKETFUNCTION, open_public_socket);
      set(CURLOPT_OPENSOCKETDATA, this);
    }
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, on_body);
    set(CURLOPT_WRITEDATA, this);
    prepare_method();
    prepare_headers();
    if (request_.idle_timeout > Duration{0}) {
      idle_timer_ = loop_.make_timer("http idle", [this] {
        idle_ = true;
        finish(CURLE_OPERATION_TIMEDOUT);
      });
      idle_timer_->arm(request_.idle_timeout);
    }
  }

 protected:
  void collect(CURLcode code) override {
    idle_timer_.reset();
    read_status();
    if (refused_) {
      result_ =
          Error{ErrorKind::PermissionDenied, "address " + refused_address_ + " is not public"};
    } else if (too_much_ != nullptr) {
      result_ = Error{ErrorKind::ResourceExhausted, too_much_};
    } else if (idle_) {
      result_ = Error{ErrorKind::DeadlineExceeded, "no data for the idle timeout"};
    } else if (code != CURLE_OK) {
      result_ = Error{error_kind(code), describe_curl_error(easy(), code, error_buffer_.data())};
    }
  }

  void deliver() override {
    if (result_) {
      redact(request_, response_);
      done_(std::move(response_));
    } else {
      done_(std::move(result_).error());
    }
  }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    VERIFY(curl_easy_setopt(easy(), option, value) == CURLE_OK);
  }

  void prepare_method() {
    const std::string& method = request_.method;
    if (method == "HEAD") {
      set(CURLOPT_NOBODY, 1L);
      return;
    }
    if (!request_.body.empty() || method == "POST") {
      set(CURLOPT_POST, 1L);
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body.size()));
      set(CURLOPT_POSTFIELDS, request_.body.data());
    }
    if (method != "GET" || !request_.body.empty()) {
      set(CURLOPT_CUSTOMREQUEST, method.c_str());
    }
  }

  void prepare_headers() {
    if (!request_.aws_signature) {
      // curl would wait a second for "100 Continue" behind large bodies. Before 8.3 a header that
      // is taken away like this is signed all the same, and AWS refuses the signature.
      add_header("Expect:");
    }
    for (const std::string& header : request_.headers) {
      // "Name:" would remove curl's own header, "Name;" sends an empty one.
      add_header(header.ends_with(':') ? header.substr(0, header.size() - 1) + ";" : header);
    }
    set(CURLOPT_HTTPHEADER, header_list_);
    if (request_.aws_signature) {
      const AwsSignature& signature = *request_.aws_signature;
      const std::string provider = "aws:amz:" + signature.region + ":" + signature.service;
      set(CURLOPT_AWS_SIGV4, provider.c_str());
      set(CURLOPT_USERNAME, signature.access_key_id.c_str());
      set(CURLOPT_PASSWORD, signature.secret_access_key.c_str());
    }
  }

  void add_header(const std::string& header) {
    curl_slist* list = curl_slist_append(header_list_, header.c_str());
    VERIFY(list != nullptr);
    header_list_ = list;
  }

  static curl_socket_t open_public_socket(void* self,
                                          curlsocktype,
                                          curl_sockaddr* address) noexcept {
    if (!is_public_address(address->addr)) {
      auto* transfer = static_cast<HttpTransfer*>(self);
      transfer->refused_ = true;
      transfer->refused_address_ = to_string(address->addr);
      return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }

  static std::size_t on_header(char* data, std::size_t, std::size_t bytes, void* self) noexcept {
    auto* transfer = static_cast<HttpTransfer*>(self);
    if (transfer->cancelled() || !transfer->take_header(std::string_view(data, bytes))) {
      return 0;
    }
    return bytes;
  }

  bool take_header(std::string_view line) {
    touch();
    if (line.starts_with("HTTP/")) {  // also after a 1xx reply or a proxy's CONNECT
      response_ = HttpResponse{};
      header_bytes_ = 0;
      return true;
    }
    while (line.ends_with('\n') || line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty()) {
      return true;
    }
    header_bytes_ += line.size();
    if (header_bytes_ > kHeaderBytesLimit || response_.headers.size() >= kHeaderLimit) {
      too_much_ = "reply with too many headers";
      return false;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      return true;
    }
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    std::string_view value = line.substr(colon + 1);
    while (value.starts_with(' ') || value.starts_with('\t')) {
      value.remove_prefix(1);
    }
    while (value.ends_with(' ') || value.ends_with('\t')) {
      value.remove_suffix(1);
    }
    response_.headers.emplace_back(std::move(name), value);
    return true;
  }

  static std::size_t on_body(char* data, std::size_t, std::size_t bytes, void* self) noexcept {
    auto* transfer = static_cast<HttpTransfer*>(self);
    if (transfer->cancelled() || !transfer->take_body(std::string_view(data, bytes))) {
      return bytes == 0 ? 1 : 0;
    }
    return bytes;
  }

  bool take_body(std::string_view data) {
    touch();
    read_status();
    if (response_.status < 200 || response_.status > 299) {
      const std::size_t room = kErrorBodyLimit - std::min(kErrorBodyLimit, response_.body.size());
      response_.body.append(data.substr(0, room));
      return true;
    }
    if (request_.on_data) {
      request_.on_data(data);
      return true;
    }
    if (data.size() > request_.body_limit - std::min(request_.body_limit, response_.body.size())) {
      too_much_ = "reply longer than the limit";
      return false;
    }
    response_.body.append(data);
    return true;
  }

  void read_status() {
    long status = 0;
    curl_easy_getinfo(easy(), CURLINFO_RESPONSE_CODE, &status);
    response_.status = static_cast<int>(status);
  }

  void touch() {
    if (idle_timer_) {
      idle_timer_->arm(request_.idle_timeout);
    }
  }

  EventLoop& loop_;
  HttpRequest request_;
  HttpDone done_;
  curl_slist* header_list_ = nullptr;
  std::array<char, CURL_ERROR_SIZE> error_buffer_{};
  std::unique_ptr<Timer> idle_timer_;
  HttpResponse response_;
  std::size_t header_bytes_ = 0;
  bool refused_ = false;
  bool idle_ = false;
  const char* too_much_ = nullptr;
  std::string refused_address_;
  Result<void> result_;
};

/// What the caller holds: destroying it cancels.
class CurlHttpCall final : public HttpCall {
 public:
  explicit CurlHttpCall(std::shared_ptr<CurlTransfer> transfer) : transfer_(std::move(transfer)) {}

  CurlHttpCall(const CurlHttpCall&) = delete;
  CurlHttpCall& operator=(const CurlHttpCall&) = delete;

  ~CurlHttpCall() override { transfer_->cancel(); }

 private:
  std::shared_ptr<CurlTransfer> transfer_;
};

/// A call that could not even be begun; its answer still comes from the loop.
class FailedHttpCall final : public HttpCall {
 public:
  FailedHttpCall(EventLoop& loop, Error error, HttpDone done)
      : done_(std::make_shared<HttpDone>(std::move(done))) {
    loop.defer([weak = std::weak_ptr<HttpDone>(done_), failure = std::move(error)] {
      if (const std::shared_ptr<HttpDone> callback = weak.lock()) {
        (*callback)(failure);
      }
    });
  }

 private:
  std::shared_ptr<HttpDone> done_;
};

class CurlTransport final : public HttpTransport {
 public:
  CurlTransport(EventLoop& loop,
                std::unique_ptr<CurlMulti> any,
                std::unique_ptr<CurlMulti> public_only)
      : loop_(loop), any_(std::move(any)), public_only_(std::move(public_only)) {}

  [[nodiscard]] std::unique_ptr<HttpCall> start(HttpRequest request, HttpDone done) override {
    Result<UrlParts> parts = check_request(request);
    if (!parts) {
      return fail(std::move(parts).error(), std::move(done));
    }
    Result<CURL*> easy = new_easy_handle();
    if (!easy) {
      return fail(std::move(easy).error(), std::move(done));
    }
    std::optional<std::string> proxy;
    if (request.use_proxy) {
      proxy = proxy_for(parts->scheme, parts->host, [](const char* name) {
        const char* value = std::getenv(name);
        return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
      });
    }
    // Connections that were made without the address check must not serve calls that want it.
    CurlMulti& multi = request.addresses == AddressPolicy::PublicOnly ? *public_only_ : *any_;
    auto transfer =
        std::make_shared<HttpTransfer>(*easy, loop_, std::move(request), std::move(done));
    transfer->prepare(proxy);
    multi.start(transfer);
    return std::make_unique<CurlHttpCall>(std::move(transfer));
  }

 private:
  std::unique_ptr<HttpCall> fail(Error error, HttpDone done) {
    return std::make_unique<FailedHttpCall>(loop_, std::move(error), std::move(done));
  }

  EventLoop& loop_;
  std::unique_ptr<CurlMulti> any_;
  std::unique_ptr<CurlMulti> public_only_;
};

}  // namespace

std::string_view HttpResponse::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) {
      return value;
    }
  }
  return {};
}

Result<std::unique_ptr<HttpTransport>> make_curl_transport(EventLoop& loop) {
  const CurlMulti::Limits limits{.idle_connections = kIdleConnections,
                                 .connections_per_host = kConnectionsPerHost,
                                 .connections_total = kConnectionsTotal};
  std::unique_ptr<CurlMulti> any = TRY(CurlMulti::create(loop, limits));
  std::unique_ptr<CurlMulti> public_only = TRY(CurlMulti::create(loop, limits));
  return std::unique_ptr<HttpTransport>(
      std::make_unique<CurlTransport>(loop, std::move(any), std::move(public_only)));
}

}  // namespace imagefs_guard
