#pragma once
/// A small HTTP/1.1 server on the loop, for health, metrics and the status page. libmicrohttpd
/// without a thread: its epoll descriptor is one more source of the loop.
/// Promises: GET and HEAD only, no request body, a limit on connections, headers and the time of a
/// connection whatever its peer does; no path from outside ever names a file. One request per
/// connection: probes and scrapes come seconds apart.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/result.h"
#include "agent/core/time.h"

namespace imagefs_guard {

class EventLoop;

struct PageRequest {
  std::string path;  // "/readyz", percent-decoded, never empty
  std::vector<std::pair<std::string, std::string>> query;  // at most 16, in their order
  std::string accept;                                      // header Accept; empty = none

  /// `?verbose`, also with a value.
  [[nodiscard]] bool has_query(std::string_view key) const;
};

struct PageReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

/// Answers at once, from memory. Called from the loop.
using PageHandler = std::function<PageReply(const PageRequest&)>;

/// An address of this machine; the host is a literal, never a name to look up.
struct ListenAddress {
  std::string host;        // "" = every address, IPv6 and IPv4
  std::uint16_t port = 0;  // 0 = any free one

  bool operator==(const ListenAddress&) const = default;
};

/// ":9808", "127.0.0.1:9808", "[::1]:9808"; else InvalidArgument.
[[nodiscard]] Result<ListenAddress> parse_listen_address(std::string_view text);

struct HttpServerLimits {
  int connections = 32;  // when there is one more, the oldest is closed
  Duration connection_time = std::chrono::seconds(5);
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;

  /// The port that it listens on.
  [[nodiscard]] virtual std::uint16_t port() const = 0;

  [[nodiscard]] virtual int connections() const = 0;
};

/// Unavailable if the address can't be had. The loop outlives it.
[[nodiscard]] Result<std::unique_ptr<HttpServer>> make_http_server(EventLoop& loop,
                                                                   const ListenAddress& address,
                                                                   PageHandler handler,
                                                                   HttpServerLimits limits = {});

}  // namespace imagefs_guard
