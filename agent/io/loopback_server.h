#pragma once
/// For tests only: an HTTP/1.1 server on 127.0.0.1, a port of its own, on the loop of the test.
/// It answers what the test's handler says, in one piece or slowly, and counts connections.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/time.h"

namespace imagefs_guard {

class EventLoop;

struct LoopbackRequest {
  std::string method;
  std::string target;                          // path and query
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

struct LoopbackReply {
  int status = 200;
  std::vector<std::string> headers;  // "Name: value"; Content-Length is added
  std::string body;
  /// Sent in pieces of this size, one each `piece_interval`; 0 = at once.
  std::size_t piece_bytes = 0;
  Duration piece_interval = std::chrono::milliseconds(10);
  bool never_reply = false;
  bool close_early = false;  // announces one byte more than it sends, then closes
};

class LoopbackServer {
 public:
  using Handler = std::function<LoopbackReply(const LoopbackRequest&)>;

  virtual ~LoopbackServer() = default;
  static std::unique_ptr<LoopbackServer> create(EventLoop& loop, Handler handler);

  [[nodiscard]] virtual std::uint16_t port() const = 0;
  [[nodiscard]] virtual int connections_accepted() const = 0;
  /// Body bytes that were handed to the kernel so far.
  [[nodiscard]] virtual std::size_t body_bytes_sent() const = 0;

  /// "http://127.0.0.1:<port>" + path.
  [[nodiscard]] std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port()) + path;
  }
};

}  // namespace imagefs_guard
