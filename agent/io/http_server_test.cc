#include "agent/io/http_server.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "agent/io/http.h"
#include "agent/io/loop.h"
#include "agent/io/run_until.h"

namespace imagefs_guard::http_server_test {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

PageReply echo(const PageRequest& request) {
  if (request.path != "/here") {
    return {.status = 404, .body = "nothing at " + request.path + "\n"};
  }
  std::string body = request.accept + "\n";
  for (const auto& [key, value] : request.query) {
    body += key + "=" + value + "\n";
  }
  return {.body = std::move(body)};
}

/// A loop, a server and raw connections to it: what a client library would never send.
struct World {
  explicit World(HttpServerLimits limits = {})
      : server(make_http_server(*loop, {.host = "127.0.0.1"}, echo, limits).value()) {}

  ~World() {
    for (const int fd : sockets) {
      close(fd);
    }
  }

  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int connect_to() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(fd >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server->port());
    REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    sockets.push_back(fd);
    return fd;
  }

  static void send_text(int fd, const std::string& text) {
    CHECK(send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }

  /// All that comes until the server closes; nullopt if it doesn't in time.
  std::optional<std::string> read_to_end(int fd, Duration limit = seconds(10)) {
    std::string text;
    const bool ended = run_until(
        *loop,
        [&] {
          char buffer[4096];
          for (;;) {
            const ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
            if (got > 0) {
              text.append(buffer, static_cast<std::size_t>(got));
              continue;
            }
            // Nothing yet is the only thing that is no end.
            return !(got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
          }
        },
        limit);
    return ended ? std::optional(text) : std::nullopt;
  }

  std::string ask(const std::string& text) {
    const int fd = connect_to();
    send_text(fd, text);
    const std::optional<std::string> answer = read_to_end(fd);
    REQUIRE(answer.has_value());
    return *answer;
  }

  std::unique_ptr<EventLoop> loop = EventLoop::create().value();
  std::unique_ptr<HttpServer> server;
  std::vector<int> sockets;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("addresses to listen on") {
  CHECK(parse_listen_address(":9808").value() == ListenAddress{.host = "", .port = 9808});
  CHECK(parse_listen_address("127.0.0.1:0").value() == ListenAddress{"127.0.0.1", 0});
  CHECK(parse_listen_address("[::1]:80").value() == ListenAddress{"::1", 80});
  for (const char* bad : {"",
                          "9808",
                          ":",
                          ":http",
                          ":65536",
                          ":-1",
                          "localhost:80",
                          "::1:80",
                          "[127.0.0.1]:80",
                          "1.2.3:80",
                          "[::1]",
                          ":80 "}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_listen_address(bad).has_value());
  }
}

TEST_CASE("a client of the same loop gets pages, query and headers") {
  World world;
  const auto transport = make_curl_transport(*world.loop).value();
  std::optional<Result<HttpResponse>> answer;
  const auto call = transport->start(
      {.url = "http://127.0.0.1:" + std::to_string(world.server->port()) + "/here?verbose&a=b%20c",
       .headers = {"Accept: text/x"}},
      [&](Result<HttpResponse> result) { answer = std::move(result); });
  REQUIRE(run_until(*world.loop, [&] { return answer.has_value(); }));
  REQUIRE(answer->has_value());
  CHECK((*answer)->status == 200);
  CHECK((*answer)->body == "text/x\nverbose=\na=b c\n");
  CHECK((*answer)->header("cache-control") == "no-store");
  CHECK((*answer)->header("x-content-type-options") == "nosniff");
}

TEST_CASE("HEAD has the headers of GET and no body") {
  World world;
  const std::string head = world.ask("HEAD /here HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(head.starts_with("HTTP/1.1 200"));
  CHECK(has(head, "Content-Length: 1\r\n"));
  CHECK(head.ends_with("\r\n\r\n"));
}

TEST_CASE("other methods and bodies are refused at once") {
  World world;
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"}) {
    CAPTURE(method);
    const std::string answer =
        world.ask(std::string(method) + " /here HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(answer.starts_with("HTTP/1.1 405"));
    CHECK(has(answer, "Allow: GET, HEAD\r\n"));
  }
  // The body never comes: the answer must not wait for it.
  CHECK(world.ask("GET /here HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
            .starts_with("HTTP/1.1 400"));
  CHECK(world.ask("GET /here HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            .starts_with("HTTP/1.1 400"));
}

TEST_CASE("no path names a file") {
  World world;
  for (const char* path : {"/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"}) {
    CAPTURE(path);
    const std::string answer =
        world.ask(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(answer.starts_with("HTTP/1.1 404"));
    CHECK_FALSE(has(answer, "root:"));
  }
  CHECK(world.ask("GET /" + std::string(1000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n")
            .starts_with("HTTP/1.1 404"));
}

TEST_CASE("headers are bounded") {
  World world;
  const int fd = world.connect_to();
  World::send_text(fd, "GET /here HTTP/1.1\r\nHost: x\r\nX-Long: " + std::string(64 << 10, 'a'));
  const std::optional<std::string> answer = world.read_to_end(fd);
  REQUIRE(answer.has_value());
  CHECK_FALSE(has(*answer, " 200 "));
}

TEST_CASE("a peer that sends a byte now and then gets no more than its time") {
  World world({.connection_time = milliseconds(300)});
  const MonotonicTime begin = world.loop->now();
  const int fd = world.connect_to();
  const std::string request = "GET /here HTTP/1.1\r\nHost: x\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaa";
  bool closed = false;
  for (std::size_t i = 0; i < request.size() && !closed; ++i) {
    closed = send(fd, &request[i], 1, MSG_NOSIGNAL) != 1;
    run_for(*world.loop, milliseconds(50));
  }
  CHECK(closed);
  CHECK(world.loop->now() - begin < seconds(2));
  CHECK(world.server->connections() == 0);
}

TEST_CASE("a peer that doesn't read gets no more than its time") {
  World world({.connection_time = milliseconds(300)});
  world.connect_to();
  REQUIRE(run_until(*world.loop, [&] { return world.server->connections() == 1; }));
  CHECK(run_until(
      *world.loop, [&] { return world.server->connections() == 0; }, seconds(2)));
}

TEST_CASE("connections that do nothing can't keep a probe out") {
  World world({.connections = 4, .connection_time = seconds(60)});
  for (int i = 0; i < 100; ++i) {
    world.connect_to();
    run_for(*world.loop, milliseconds(1));
  }
  CHECK(world.ask("GET /here HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200"));
  run_for(*world.loop, milliseconds(50));
  CHECK(world.server->connections() <= 4);
}

TEST_CASE("what is no HTTP is closed") {
  World world;
  const int fd = world.connect_to();
  World::send_text(fd, std::string("\x16\x03\x01\x00\r\n\r\n\0\0\0\r\n\r\n", 15));
  CHECK(world.read_to_end(fd).has_value());
}

TEST_CASE("an address that is taken is an error in words") {
  World world;
  const auto second =
      make_http_server(*world.loop, {.host = "127.0.0.1", .port = world.server->port()}, echo);
  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().kind == ErrorKind::Unavailable);
  CHECK(has(second.error().message, "Address already in use"));
}

TEST_CASE("every address means both families") {
  World world;
  const auto both = make_http_server(*world.loop, {}, echo);
  REQUIRE(both.has_value());
  const auto transport = make_curl_transport(*world.loop).value();
  for (const char* host : {"127.0.0.1", "[::1]"}) {
    std::optional<Result<HttpResponse>> answer;
    const auto call = transport->start(
        {.url = "http://" + std::string(host) + ":" + std::to_string((*both)->port()) + "/here"},
        [&](Result<HttpResponse> result) { answer = std::move(result); });
    REQUIRE(run_until(*world.loop, [&] { return answer.has_value(); }));
    if (!answer->has_value() && std::string(host) == "[::1]") {
      MESSAGE("no IPv6 on this machine");
      continue;
    }
    CHECK(answer->has_value());
  }
}

}  // namespace imagefs_guard::http_server_test
