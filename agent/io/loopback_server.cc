// untested: a helper of tests.
#include "agent/io/loopback_server.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <string_view>

#include "agent/core/text.h"
#include "agent/core/verify.h"
#include "agent/io/loop.h"

namespace imagefs_guard {

namespace {

class Server;

class Connection {
 public:
  Connection(Server& server, int fd);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  ~Connection() {
    sd_event_source_disable_unref(source_);
    close(fd_);
  }

 private:
  static int on_io(sd_event_source*, int, std::uint32_t events, void* self) noexcept;
  bool read_some();
  void serve();
  bool send_some();

  void wait_for(std::uint32_t events) {
    VERIFY(sd_event_source_set_io_events(source_, events) >= 0);
  }

  Server& server_;
  int fd_;
  sd_event_source* source_ = nullptr;
  std::unique_ptr<Timer> pace_;
  std::string input_;
  std::string output_;
  std::size_t sent_ = 0;
  std::size_t head_bytes_ = 0;
  LoopbackReply reply_;
  bool busy_ = false;
};

class Server final : public LoopbackServer {
 public:
  Server(EventLoop& event_loop, Handler on_request)
      : loop(event_loop), handler(std::move(on_request)) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    VERIFY(fd_ >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    VERIFY(bind(fd_, generic, sizeof(address)) == 0);
    VERIFY(listen(fd_, 64) == 0);
    socklen_t length = sizeof(address);
    VERIFY(getsockname(fd_, generic, &length) == 0);
    port_ = ntohs(address.sin_port);
    VERIFY(sd_event_add_io(loop.raw(), &source_, fd_, EPOLLIN, on_accept, this) >= 0);
    VERIFY(sd_event_source_set_exit_on_failure(source_, 1) >= 0);
  }

  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  ~Server() override {
    sd_event_source_disable_unref(source_);
    close(fd_);
  }

  [[nodiscard]] std::uint16_t port() const override { return port_; }

  [[nodiscard]] int connections_accepted() const override { return accepted_; }

  [[nodiscard]] std::size_t body_bytes_sent() const override { return body_bytes; }

  void drop(Connection* connection) {
    std::erase_if(connections_,
                  [connection](const auto& kept) { return kept.get() == connection; });
  }

  EventLoop& loop;
  Handler handler;
  std::size_t body_bytes = 0;

 private:
  static int on_accept(sd_event_source*, int fd, std::uint32_t, void* self) noexcept {
    auto* server = static_cast<Server*>(self);
    const int peer = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer >= 0) {
      ++server->accepted_;
      server->connections_.push_back(std::make_unique<Connection>(*server, peer));
    }
    return 0;
  }

  int fd_ = -1;
  sd_event_source* source_ = nullptr;
  std::uint16_t port_ = 0;
  int accepted_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;
};

Connection::Connection(Server& server, int fd) : server_(server), fd_(fd) {
  VERIFY(sd_event_add_io(server.loop.raw(), &source_, fd, EPOLLIN, on_io, this) >= 0);
  VERIFY(sd_event_source_set_exit_on_failure(source_, 1) >= 0);
  pace_ = server.loop.make_timer("loopback pace", [this] { wait_for(EPOLLOUT); });
}

int Connection::on_io(sd_event_source*, int, std::uint32_t events, void* self) noexcept {
  auto* connection = static_cast<Connection*>(self);
  bool keep = true;
  if ((events & EPOLLIN) != 0) {
    keep = connection->read_some();
  } else if ((events & EPOLLOUT) != 0) {
    keep = connection->send_some();
  } else {
    keep = false;
  }
  if (!keep) {
    connection->server_.drop(connection);
  }
  return 0;
}

bool Connection::read_some() {
  std::array<char, 16384> chunk{};
  const ssize_t got = recv(fd_, chunk.data(), chunk.size(), 0);
  if (got < 0) {
    return errno == EAGAIN;
  }
  if (got == 0) {
    return false;
  }
  constexpr char kTlsHandshake = 0x16;
  if (chunk[0] == kTlsHandshake) {
    // Somebody tries HTTPS first: plain HTTP tells it not to.
    constexpr std::string_view kAnswer = "HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\n";
    send(fd_, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
    return false;
  }
  input_.append(chunk.data(), static_cast<std::size_t>(got));
  if (!busy_) {
    serve();
  }
  return true;
}

void Connection::serve() {
  const std::size_t head_end = input_.find("\r\n\r\n");
  if (head_end == std::string::npos) {
    return;
  }
  LoopbackRequest request;
  std::size_t at = input_.find("\r\n");
  const std::string line = input_.substr(0, at);
  request.method = line.substr(0, line.find(' '));
  request.target = line.substr(request.method.size() + 1);
  request.target.resize(request.target.find(' '));
  while (at < head_end) {
    const std::size_t start = at + 2;
    at = input_.find("\r\n", start);
    const std::string header = input_.substr(start, at - start);
    const std::size_t colon = header.find(':');
    const std::size_t value = std::min(header.find_first_not_of(' ', colon + 1), header.size());
    request.headers[lower(header.substr(0, colon))] = header.substr(value);
  }
  std::size_t body_bytes = 0;
  if (request.headers.contains("content-length")) {
    body_bytes = std::stoul(request.headers["content-length"]);
  }
  if (input_.size() < head_end + 4 + body_bytes) {
    return;
  }
  request.body = input_.substr(head_end + 4, body_bytes);
  input_.erase(0, head_end + 4 + body_bytes);
  busy_ = true;
  reply_ = server_.handler(request);
  if (reply_.never_reply) {
    return;
  }
  output_ = "HTTP/1.1 " + std::to_string(reply_.status) + " x\r\n";
  for (const std::string& header : reply_.headers) {
    output_ += header + "\r\n";
  }
  const std::size_t announced = reply_.body.size() + (reply_.close_early ? 1 : 0);
  output_ += "Content-Length: " + std::to_string(announced) + "\r\n\r\n";
  head_bytes_ = output_.size();
  if (request.method != "HEAD") {
    output_ += reply_.body;
  }
  sent_ = 0;
  wait_for(EPOLLOUT);
}

bool Connection::send_some() {
  std::size_t wanted = output_.size() - sent_;
  if (reply_.piece_bytes > 0) {
    wanted = std::min(wanted, reply_.piece_bytes);
  }
  const ssize_t done = send(fd_, output_.data() + sent_, wanted, MSG_NOSIGNAL);
  if (done < 0) {
    return errno == EAGAIN;
  }
  const std::size_t before = std::max(sent_, head_bytes_);
  sent_ += static_cast<std::size_t>(done);
  server_.body_bytes += std::max(sent_, head_bytes_) - before;
  if (sent_ < output_.size()) {
    if (reply_.piece_bytes > 0) {
      wait_for(0);
      pace_->arm(reply_.piece_interval);
    }
    return true;
  }
  if (reply_.close_early) {
    return false;
  }
  busy_ = false;
  wait_for(EPOLLIN);
  serve();
  return true;
}

}  // namespace

std::unique_ptr<LoopbackServer> LoopbackServer::create(EventLoop& loop, Handler handler) {
  return std::make_unique<Server>(loop, std::move(handler));
}

}  // namespace imagefs_guard
