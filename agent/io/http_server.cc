#include "agent/io/http_server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <list>
#include <utility>

#include "agent/core/verify.h"
#include "agent/io/loop.h"

namespace imagefs_guard {

namespace {

// After curl's sockets (0) and the tick's timers (10): nobody's probe may delay a hold.
constexpr std::int64_t kServerPriority = 15;
/// Request line, headers and our own headers of one connection; a real scrape needs under 1 KiB.
constexpr std::size_t kConnectionMemoryBytes = std::size_t{8} << 10;
constexpr int kBacklog = 64;
/// libmicrohttpd stops to accept at its own limit, so that has to lie above ours: it takes at most
/// ten connections in a row.
constexpr int kSpareConnections = 16;
constexpr std::size_t kQueryLimit = 16;
constexpr std::size_t kPathBytesLimit = 256;

Error refuse(std::string_view text) {
  return Error{ErrorKind::InvalidArgument,
               "\"" + std::string(text.substr(0, 80)) +
                   "\" is no ADDRESS:PORT such as :9808, 127.0.0.1:9808 or [::1]:9808"};
}

/// A socket address of either family.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress ipv4_address(const in_addr& host, std::uint16_t port) {
  SocketAddress address;
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr = host;
  in.sin_port = htons(port);
  std::memcpy(&address.storage, &in, sizeof(in));
  address.length = sizeof(in);
  return address;
}

SocketAddress ipv6_address(const in6_addr& host, std::uint16_t port) {
  SocketAddress address;
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_addr = host;
  in.sin6_port = htons(port);
  std::memcpy(&address.storage, &in, sizeof(in));
  address.length = sizeof(in);
  return address;
}

/// What to try, in order: without a host both families by one socket, else IPv4 alone.
std::vector<SocketAddress> socket_addresses(const ListenAddress& address) {
  if (address.host.empty()) {
    return {ipv6_address(in6addr_any, address.port),
            ipv4_address(in_addr{.s_addr = htonl(INADDR_ANY)}, address.port)};
  }
  in_addr host4{};
  if (inet_pton(AF_INET, address.host.c_str(), &host4) == 1) {
    return {ipv4_address(host4, address.port)};
  }
  in6_addr host6{};
  if (inet_pton(AF_INET6, address.host.c_str(), &host6) == 1) {
    return {ipv6_address(host6, address.port)};
  }
  return {};
}

/// A listening socket, or -1 with errno.
int listen_on(const SocketAddress& address) {
  const int family = address.get()->sa_family;
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return -1;
  }
  const int yes = 1;
  const int no = 0;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
      (family != AF_INET6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) == 0) &&
      bind(fd, address.get(), address.length) == 0 && listen(fd, kBacklog) == 0) {
    return fd;
  }
  const int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

Result<int> listen_on(const ListenAddress& address) {
  int reason = EADDRNOTAVAIL;
  for (const SocketAddress& candidate : socket_addresses(address)) {
    const int fd = listen_on(candidate);
    if (fd >= 0) {
      return fd;
    }
    reason = errno;
    if (reason == EADDRINUSE) {
      break;  // not an IPv6 that isn't there: IPv4 alone would hide it
    }
  }
  return Error{ErrorKind::Unavailable,
               "can't listen on " + address.host + ":" + std::to_string(address.port) + ": " +
                   std::strerror(reason)};
}

std::uint16_t port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  VERIFY(getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) == 0);
  if (bound.ss_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &bound, sizeof(in));
    return ntohs(in.sin6_port);
  }
  sockaddr_in in{};
  std::memcpy(&in, &bound, sizeof(in));
  return ntohs(in.sin_port);
}

std::string header_of(MHD_Connection* connection, const char* name) {
  const char* value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value == nullptr ? std::string() : std::string(value);
}

class MhdServer final : public HttpServer {
 public:
  MhdServer(EventLoop& loop, PageHandler handler, HttpServerLimits limits)
      : loop_(loop), handler_(std::move(handler)), limits_(limits) {}

  MhdServer(const MhdServer&) = delete;
  MhdServer& operator=(const MhdServer&) = delete;

  ~MhdServer() override {
    sd_event_source_disable_unref(source_);
    if (daemon_ != nullptr) {
      MHD_stop_daemon(daemon_);  // closes the listening socket as well
    }
  }

  Result<void> start(int listening) {
    port_ = port_of(listening);
    daemon_ = MHD_start_daemon(MHD_USE_EPOLL,
                               /* port= */ 0,
                               /* apc= */ nullptr,
                               /* apc_cls= */ nullptr,
                               on_request,
                               this,
                               MHD_OPTION_LISTEN_SOCKET,
                               listening,
                               MHD_OPTION_CONNECTION_LIMIT,
                               static_cast<unsigned int>(limits_.connections + kSpareConnections),
                               MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                               kConnectionMemoryBytes,
                               MHD_OPTION_NOTIFY_CONNECTION,
                               on_connection,
                               this,
                               MHD_OPTION_END);
    if (daemon_ == nullptr) {
      close(listening);
      return Error{ErrorKind::Internal, "libmicrohttpd does not start"};
    }
    const MHD_DaemonInfo* info = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD);
    VERIFY(info != nullptr);
    run_timer_ = loop_.make_timer("http server", [this] { run(); });
    deadline_timer_ = loop_.make_timer("http deadlines", [this] { close_overdue(); });
    VERIFY(sd_event_add_io(loop_.raw(), &source_, info->epoll_fd, EPOLLIN, on_readable, this) >= 0);
    VERIFY(sd_event_source_set_description(source_, "http server") >= 0);
    VERIFY(sd_event_source_set_priority(source_, kServerPriority) >= 0);
    VERIFY(sd_event_source_set_exit_on_failure(source_, 1) >= 0);
    return {};
  }

  [[nodiscard]] std::uint16_t port() const override { return port_; }

  [[nodiscard]] int connections() const override { return static_cast<int>(open_.size()); }

 private:
  struct Open {
    MHD_Connection* connection = nullptr;
    int fd = -1;
    MonotonicTime deadline{};
    bool ended = false;  // by us; libmicrohttpd notices when it looks again
  };

  static int on_readable(sd_event_source*, int, std::uint32_t, void* self) noexcept {
    static_cast<MhdServer*>(self)->run();
    return 0;
  }

  void run() {
    // A failure is one of a connection, and libmicrohttpd closes that itself.
    static_cast<void>(MHD_run(daemon_));
    MHD_UNSIGNED_LONG_LONG milliseconds = 0;
    if (MHD_get_timeout(daemon_, &milliseconds) == MHD_YES) {
      run_timer_->arm(std::chrono::milliseconds(std::min<MHD_UNSIGNED_LONG_LONG>(
          milliseconds, static_cast<MHD_UNSIGNED_LONG_LONG>(60'000))));
    } else {
      run_timer_->disarm();
    }
  }

  static void on_connection(void* self,
                            MHD_Connection* connection,
                            void**,
                            MHD_ConnectionNotificationCode code) noexcept {
    auto& server = *static_cast<MhdServer*>(self);
    switch (code) {
      case MHD_CONNECTION_NOTIFY_STARTED:
        server.opened(connection);
        break;
      case MHD_CONNECTION_NOTIFY_CLOSED:
        std::erase_if(server.open_, [&](const Open& o) { return o.connection == connection; });
        break;
    }
  }

  /// A deadline from the first byte on, not from the last: a peer that sends a byte a second gets
  /// no more. And the oldest goes first: connections that do nothing can't keep a probe out.
  void opened(MHD_Connection* connection) {
    const MHD_ConnectionInfo* info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    VERIFY(info != nullptr);
    open_.push_back({.connection = connection,
                     .fd = info->connect_fd,
                     .deadline = loop_.now() + limits_.connection_time});
    auto alive =
        std::count_if(open_.begin(), open_.end(), [](const Open& open) { return !open.ended; });
    for (auto open = open_.begin(); alive > limits_.connections; ++open) {
      if (!open->ended) {
        end(*open);
        --alive;
      }
    }
    if (open_.size() == 1) {
      deadline_timer_->arm(limits_.connection_time);
    }
  }

  static void end(Open& open) {
    // The descriptor is libmicrohttpd's to close.
    shutdown(open.fd, SHUT_RDWR);
    open.ended = true;
  }

  void close_overdue() {
    const MonotonicTime now = loop_.now();
    for (Open& open : open_) {
      if (open.deadline > now) {
        break;
      }
      if (!open.ended) {
        end(open);
      }
    }
    if (!open_.empty()) {
      deadline_timer_->arm(
          std::max<Duration>(open_.front().deadline - now, std::chrono::milliseconds(100)));
    }
  }

  static MHD_Result on_query(void* query, MHD_ValueKind, const char* key, const char* value) {
    auto& pairs = *static_cast<std::vector<std::pair<std::string, std::string>>*>(query);
    if (pairs.size() >= kQueryLimit) {
      return MHD_NO;
    }
    pairs.emplace_back(key, value == nullptr ? "" : value);
    return MHD_YES;
  }

  static MHD_Result on_request(void* self,
                               MHD_Connection* connection,
                               const char* url,
                               const char* method,
                               const char*,
                               const char*,
                               std::size_t*,
                               void**) noexcept {
    // Answered as soon as the headers are there: a body is never waited for.
    const PageReply reply = static_cast<MhdServer*>(self)->answer(connection, url, method);
    MHD_Response* response =
        MHD_create_response_from_buffer(reply.body.size(),
                                        // Copied, so const or not is all the same.
                                        const_cast<char*>(reply.body.data()),
                                        MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) {
      return MHD_NO;  // no memory: libmicrohttpd closes the connection
    }
    MHD_add_response_header(response, "Content-Type", reply.content_type.c_str());
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Connection", "close");
    if (reply.status == MHD_HTTP_METHOD_NOT_ALLOWED) {
      MHD_add_response_header(response, "Allow", "GET, HEAD");
    }
    const MHD_Result queued =
        MHD_queue_response(connection, static_cast<unsigned int>(reply.status), response);
    MHD_destroy_response(response);
    return queued;
  }

  PageReply answer(MHD_Connection* connection, std::string_view url, std::string_view method) {
    if (method != "GET" && method != "HEAD") {
      return {.status = MHD_HTTP_METHOD_NOT_ALLOWED, .body = "GET and HEAD only\n"};
    }
    const std::string length = header_of(connection, "Content-Length");
    if (!header_of(connection, "Transfer-Encoding").empty() || (!length.empty() && length != "0")) {
      return {.status = MHD_HTTP_BAD_REQUEST, .body = "no request has a body here\n"};
    }
    if (url.empty() || url.front() != '/' || url.size() > kPathBytesLimit) {
      return {.status = MHD_HTTP_NOT_FOUND, .body = "there is no such page\n"};
    }
    PageRequest request{
        .path = std::string(url), .query = {}, .accept = header_of(connection, "Accept")};
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, on_query, &request.query);
    return handler_(request);
  }

  EventLoop& loop_;
  PageHandler handler_;
  HttpServerLimits limits_;
  MHD_Daemon* daemon_ = nullptr;
  sd_event_source* source_ = nullptr;
  std::unique_ptr<Timer> run_timer_;
  std::unique_ptr<Timer> deadline_timer_;
  std::uint16_t port_ = 0;
  std::list<Open> open_;  // the oldest first
};

}  // namespace

bool PageRequest::has_query(std::string_view key) const {
  return std::any_of(
      query.begin(), query.end(), [key](const auto& pair) { return pair.first == key; });
}

Result<ListenAddress> parse_listen_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return refuse(text);
  }
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  ListenAddress address;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return refuse(text);
  }
  if (host.empty()) {
    return address;
  }
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  address.host = std::string(bracketed ? host.substr(1, host.size() - 2) : host);
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  if (is_ipv6 != bracketed || socket_addresses(address).empty()) {
    return refuse(text);
  }
  return address;
}

Result<std::unique_ptr<HttpServer>> make_http_server(EventLoop& loop,
                                                     const ListenAddress& address,
                                                     PageHandler handler,
                                                     HttpServerLimits limits) {
  const int listening = TRY(listen_on(address));
  auto server = std::make_unique<MhdServer>(loop, std::move(handler), limits);
  TRY(server->start(listening));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace imagefs_guard
