#include <doctest/doctest.h>

#include "agent/io/http.h"
#include "agent/io/loop.h"
#include "agent/io/loopback_server.h"
#include "agent/io/run_until.h"

namespace imagefs_guard::http_curl_test {

namespace {

using std::chrono::milliseconds;

/// A loop, a server and a transport.
struct World {
  explicit World(LoopbackServer::Handler handler)
      : server(LoopbackServer::create(*loop, std::move(handler))) {}

  Result<HttpResponse> call(HttpRequest request) {
    std::optional<Result<HttpResponse>> answer;
    const auto running = transport->start(std::move(request), [&](Result<HttpResponse> result) {
      CHECK_FALSE(answer.has_value());
      answer = std::move(result);
    });
    CHECK_FALSE(answer.has_value());
    REQUIRE(run_until(*loop, [&] { return answer.has_value(); }));
    return *std::move(answer);
  }

  Result<HttpResponse> get(const std::string& path) { return call({.url = server->url(path)}); }

  std::unique_ptr<EventLoop> loop = EventLoop::create().value();
  std::unique_ptr<LoopbackServer> server;
  std::unique_ptr<HttpTransport> transport = make_curl_transport(*loop).value();
};

LoopbackReply echo(const LoopbackRequest& request) {
  std::string text = request.method + " " + request.target + "\n";
  for (const auto& [name, value] : request.headers) {
    text += name + "=" + value + "\n";
  }
  return {.headers = {"X-Test:  padded ", "X-Empty:"}, .body = text + "\n" + request.body};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a failed reply does not quote the secrets of its request") {
  World world([](const LoopbackRequest& request) {
    return LoopbackReply{.status = 403, .body = "got " + request.headers.at("authorization")};
  });
  const Result<HttpResponse> got = world.call(
      {.url = world.server->url("/"), .headers = {"Authorization: Bearer planted-secret"}});
  REQUIRE(got);
  CHECK(got->body == "got Bearer [redacted]");
}

TEST_CASE("methods, headers and bodies arrive as given") {
  World world(echo);
  const Result<HttpResponse> got = world.get("/a?b=c");
  REQUIRE(got);
  CHECK(got->status == 200);
  CHECK(got->body.starts_with("GET /a?b=c\n"));
  CHECK(got->header("x-test") == "padded");
  CHECK(got->header("x-empty").empty());
  CHECK(got->header("none").empty());

  const Result<HttpResponse> patched =
      world.call({.method = "PATCH",
                  .url = world.server->url("/node"),
                  .headers = {"Content-Type: application/merge-patch+json", "X-None:"},
                  .body = std::string("a\0b", 3)});
  REQUIRE(patched);
  CHECK(patched->body.starts_with("PATCH /node\n"));
  CHECK(contains(patched->body, "content-type=application/merge-patch+json\n"));
  CHECK(contains(patched->body, "x-none=\n"));
  CHECK_FALSE(contains(patched->body, "expect="));
  CHECK(patched->body.ends_with(std::string("\na\0b", 4)));

  CHECK(world.call({.method = "POST", .url = world.server->url("/p")})->body.starts_with("POST"));
  CHECK(
      world.call({.method = "DELETE", .url = world.server->url("/p")})->body.starts_with("DELETE"));
  const Result<HttpResponse> head = world.call({.method = "HEAD", .url = world.server->url("/h")});
  REQUIRE(head);
  CHECK(head->status == 200);
  CHECK(head->body.empty());
}

TEST_CASE("a connection is used again, and many calls run at once") {
  World world(echo);
  for (int i = 0; i < 5; ++i) {
    CHECK(world.get("/")->status == 200);
  }
  CHECK(world.server->connections_accepted() == 1);

  std::vector<std::unique_ptr<HttpCall>> calls;
  int answers = 0;
  for (int i = 0; i < 30; ++i) {
    calls.push_back(
        world.transport->start({.url = world.server->url("/")}, [&](Result<HttpResponse> result) {
          CHECK(result);
          ++answers;
        }));
  }
  CHECK(run_until(*world.loop, [&] { return answers == 30; }));
  CHECK(world.server->connections_accepted() <= 8);
}

TEST_CASE("redirects and error statuses are answers, with a bounded body") {
  World world([](const LoopbackRequest& request) -> LoopbackReply {
    if (request.target == "/moved") {
      return {.status = 307, .headers = {"Location: /elsewhere"}};
    }
    return {.status = 500, .body = std::string(200'000, 'e')};
  });
  CHECK(world.get("/moved")->status == 307);
  CHECK(world.get("/moved")->header("location") == "/elsewhere");
  const Result<HttpResponse> failed = world.get("/");
  CHECK(failed->status == 500);
  CHECK(failed->body.size() == 65'536);
}

TEST_CASE("limits: body size, total time, idle time, a reply that breaks off") {
  World world([](const LoopbackRequest& request) -> LoopbackReply {
    if (request.target == "/never") {
      return {.never_reply = true};
    }
    if (request.target == "/drip") {
      return {.body = std::string(100, 'd'), .piece_bytes = 10};
    }
    if (request.target == "/cut") {
      return {.body = "half", .close_early = true};
    }
    return {.body = std::string(1001, 'x')};
  });
  const std::string url = world.server->url("/");
  CHECK(world.call({.url = url, .body_limit = 1001})->body.size() == 1001);
  CHECK(world.call({.url = url, .body_limit = 1000}).error().kind == ErrorKind::ResourceExhausted);
  CHECK(world.call({.url = url + "never", .total_timeout = milliseconds(30)}).error().kind ==
        ErrorKind::DeadlineExceeded);
  CHECK(world.call({.url = url + "never", .idle_timeout = milliseconds(30)}).error().kind ==
        ErrorKind::DeadlineExceeded);
  CHECK(world.call({.url = url + "drip", .idle_timeout = milliseconds(300)})->body.size() == 100);
  CHECK(world.call({.url = url + "cut"}).error().kind == ErrorKind::Unavailable);
}

TEST_CASE("bad requests and unreachable hosts are errors from the loop") {
  World world(echo);
  const std::string url = world.server->url("/");
  CHECK(world.call({.url = "ftp://127.0.0.1/"}).error().kind == ErrorKind::InvalidArgument);
  CHECK(world.call({.url = "http://"}).error().kind == ErrorKind::InvalidArgument);
  CHECK(world.call({.url = url + "\r\nX: y"}).error().kind == ErrorKind::InvalidArgument);
  CHECK(world.call({.url = url, .headers = {"A: b\r\nC: d"}}).error().kind ==
        ErrorKind::InvalidArgument);
  CHECK(world.call({.url = "http://user:secret@127.0.0.1/"}).error().kind ==
        ErrorKind::InvalidArgument);
  const Result<HttpResponse> refused = world.call({.url = "http://127.0.0.1:1/"});
  CHECK(refused.error().kind == ErrorKind::Unavailable);
  CHECK(contains(refused.error().message, "refused"));
  CHECK(world.call({.url = "https://127.0.0.1:1/", .ca_file = "/nonexistent"}).error().kind ==
        ErrorKind::Unavailable);
}

TEST_CASE("PublicOnly refuses the inside, even over a connection that is open") {
  World world(echo);
  CHECK(world.get("/")->status == 200);
  const Result<HttpResponse> refused =
      world.call({.url = world.server->url("/"), .addresses = AddressPolicy::PublicOnly});
  CHECK(refused.error().kind == ErrorKind::PermissionDenied);
  CHECK(contains(refused.error().message, "127.0.0.1"));
  const std::string by_name = "http://localhost:" + std::to_string(world.server->port()) + "/";
  CHECK(world.call({.url = by_name, .addresses = AddressPolicy::PublicOnly}).error().kind ==
        ErrorKind::PermissionDenied);
  CHECK(world.server->connections_accepted() == 1);
}

TEST_CASE("streamed data arrives in pieces, and the handler may destroy its own call") {
  World world([](const LoopbackRequest&) -> LoopbackReply {
    return {.body = std::string(1000, 'x'), .piece_bytes = 100, .piece_interval = milliseconds(1)};
  });
  std::size_t bytes = 0;
  int pieces = 0;
  std::unique_ptr<HttpCall> call;
  std::unique_ptr<HttpCall> other;
  bool other_done = false;
  HttpRequest request{.url = world.server->url("/")};
  request.on_data = [&](std::string_view data) {
    bytes += data.size();
    if (++pieces == 3) {
      call.reset();
      other =
          world.transport->start({.url = world.server->url("/")}, [&](Result<HttpResponse> result) {
            CHECK(result);
            other_done = true;
          });
    }
  };
  call = world.transport->start(std::move(request),
                                [](Result<HttpResponse>) { FAIL_CHECK("was cancelled"); });
  CHECK(run_until(*world.loop, [&] { return other_done; }));
  CHECK(pieces == 3);
  CHECK(bytes < 1000);
}

TEST_CASE("a cancelled call never answers; done may destroy its call and others") {
  World world(echo);
  auto cancelled = world.transport->start(
      {.url = world.server->url("/")}, [](Result<HttpResponse>) { FAIL_CHECK("was cancelled"); });
  auto bad = world.transport->start({.url = "bad:"},
                                    [](Result<HttpResponse>) { FAIL_CHECK("was cancelled"); });
  cancelled.reset();
  bad.reset();
  std::vector<std::unique_ptr<HttpCall>> calls(2);
  int answers = 0;
  for (auto& call : calls) {
    call = world.transport->start({.url = world.server->url("/")}, [&](Result<HttpResponse>) {
      ++answers;
      calls.clear();
    });
  }
  CHECK(run_until(*world.loop, [&] { return answers > 0; }));
  run_for(*world.loop, milliseconds(30));
  CHECK(answers == 1);
}

TEST_CASE("a transport may go while calls run") {
  World world([](const LoopbackRequest&) -> LoopbackReply { return {.never_reply = true}; });
  const auto call = world.transport->start({.url = world.server->url("/")},
                                           [](Result<HttpResponse>) { FAIL_CHECK("is gone"); });
  run_for(*world.loop, milliseconds(20));
  world.transport.reset();
  run_for(*world.loop, milliseconds(20));
}

TEST_CASE("AWS requests are signed") {
  World world(echo);
  const Result<HttpResponse> got = world.call(
      {.method = "POST",
       .url = world.server->url("/"),
       .headers = {"X-Amz-Target: Service.Do", "Content-Type: application/x-amz-json-1.1"},
       .body = "{}",
       .aws_signature = AwsSignature{.region = "eu-west-1",
                                     .service = "ecr",
                                     .access_key_id = "AKIDEXAMPLE",
                                     .secret_access_key = "secret"}});
  REQUIRE(got);
  CHECK(contains(got->body, "authorization=AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"));
  CHECK(contains(got->body, "/eu-west-1/ecr/aws4_request"));
  CHECK_FALSE(contains(got->body, "secret"));
}

}  // namespace imagefs_guard::http_curl_test
