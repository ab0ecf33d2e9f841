#pragma once
/// HTTP calls on the loop: one transport (curl_multi) for API server, kubelet, registries, AWS
/// endpoints and, with HTTP/2 prior knowledge on a unix socket, gRPC. No policy and no retries
/// here: the caller decides. Nothing in here logs headers or URLs, and no reply but a 2xx quotes a
/// secret of its own request (redact.h).

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/result.h"
#include "agent/core/time.h"

namespace imagefs_guard {

/// Signs the request with AWS Signature Version 4 (by libcurl). POST without query only.
struct AwsSignature {
  std::string region;
  std::string service;
  std::string access_key_id;
  std::string secret_access_key;
};

/// Which addresses a connection may go to, checked when it is made (after DNS).
enum class AddressPolicy {
  Any,         // API server, kubelet, metadata services, registries named in the policy
  PublicOnly,  // refuses loopback, link-local, private, unspecified: hosts that pods may choose
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  std::string body;
  std::string ca_file;  // empty = the system's
  Duration connect_timeout = std::chrono::seconds(5);
  Duration total_timeout = std::chrono::seconds(15);  // zero = none (watches)
  Duration idle_timeout{};                            // no byte for this long: DeadlineExceeded
  std::size_t body_limit = std::size_t{8} << 20;      // more: ResourceExhausted
  AddressPolicy addresses = AddressPolicy::Any;
  bool use_proxy = false;  // honour http_proxy & co.: registries only
  std::optional<AwsSignature> aws_signature;
  /// With it, 2xx body bytes go here as they come and `HttpResponse::body` stays empty.
  std::function<void(std::string_view)> on_data;
};

struct HttpResponse {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;  // of non-2xx replies at most 64 KiB, the rest is dropped

  /// First header of that (lower-case) name, or empty.
  [[nodiscard]] std::string_view header(std::string_view name) const;
};

/// A call under way. Destroying it cancels it; its callback then never comes.
class HttpCall {
 public:
  virtual ~HttpCall() = default;
};

using HttpDone = std::function<void(Result<HttpResponse>)>;

class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  /// `done` comes exactly once, from the loop, never from inside start(). Any HTTP status is a
  /// response; an Error means that there is none (Unavailable, DeadlineExceeded,
  /// ResourceExhausted, PermissionDenied for a refused address, InvalidArgument for a bad URL).
  /// `done` may destroy the call and start others.
  [[nodiscard]] virtual std::unique_ptr<HttpCall> start(HttpRequest request, HttpDone done) = 0;
};

class EventLoop;

/// The real one, on libcurl. Redirects are never followed: the registry client does it itself.
[[nodiscard]] Result<std::unique_ptr<HttpTransport>> make_curl_transport(EventLoop& loop);

}  // namespace imagefs_guard
