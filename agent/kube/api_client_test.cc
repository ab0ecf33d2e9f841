#include "agent/kube/api_client.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::api_client_test {
namespace {

using std::chrono::seconds;

struct TokenFile {
  std::string path = "imagefs-guard-token-" + std::to_string(getpid());

  explicit TokenFile(const std::string& text) { write(text); }

  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  ~TokenFile() { std::remove(path.c_str()); }

  void write(const std::string& text) const { std::ofstream(path) << text; }
};

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApiOptions options{"https://api", "", "", 1};
  std::optional<KubeApi> api;
  std::unique_ptr<KubeCall> call;
  std::optional<Result<std::string>> answer;

  KubeApi& client() {
    if (!api.has_value()) {
      api.emplace(loop, server, options);
    }
    return *api;
  }

  /// Not delivered yet.
  void begin(KubeVerb verb, const std::string& path, const std::string& body = "") {
    KubeRequest request;
    request.verb = verb;
    request.resource = "nodes";
    request.path = path;
    request.body = body;
    answer.reset();
    call = client().start(std::move(request), [this](Result<std::string> result) {
      call.reset();
      answer = std::move(result);
    });
    CHECK_FALSE(answer.has_value());  // never from inside start()
  }

  Result<std::string> run(KubeVerb verb, const std::string& path, const std::string& body = "") {
    begin(verb, path, body);
    loop.run_ready();
    REQUIRE(answer.has_value());
    return *std::exchange(answer, std::nullopt);
  }
};

}  // namespace

TEST_CASE("each status has its kind, and the message says what the server said") {
  struct Case {
    int status;
    ErrorKind want;
  };

  const Case cases[] = {
      {400, ErrorKind::InvalidArgument},
      {401, ErrorKind::Unauthenticated},
      {403, ErrorKind::PermissionDenied},
      {404, ErrorKind::NotFound},
      {409, ErrorKind::Aborted},
      {410, ErrorKind::FailedPrecondition},
      {422, ErrorKind::InvalidArgument},
      {429, ErrorKind::Unavailable},
      {500, ErrorKind::Unavailable},
      {503, ErrorKind::Unavailable},
      {504, ErrorKind::Unavailable},
      {418, ErrorKind::Internal},
      {302, ErrorKind::Internal},
  };
  for (const Case& c : cases) {
    CAPTURE(c.status);
    World world;
    world.server.fail_next(1, c.status);
    const Result<std::string> answer = world.run(KubeVerb::Get, "/api/v1/nodes/n1");
    REQUIRE_FALSE(answer);
    CHECK(answer.error().kind == c.want);
    CHECK(answer.error().message == "GET /api/v1/nodes/n1: " + std::to_string(c.status) +
                                        " Injected: injected failure (audit audit-1)");
    CHECK(world.client().request_counts() == KubeRequestCounts{{{"GET", "nodes", c.status}, 1}});
  }
}

TEST_CASE("an object that exists is not the same as a conflict") {
  World world;
  const std::string body = R"({"metadata":{"name":"e1"}})";
  CHECK(world.run(KubeVerb::Create, "/api/v1/namespaces/ns/events", body));
  const auto again = world.run(KubeVerb::Create, "/api/v1/namespaces/ns/events", body);
  REQUIRE_FALSE(again);
  CHECK(again.error().kind == ErrorKind::AlreadyExists);
}

TEST_CASE("no answer keeps its kind: a write's outcome is unknown") {
  World world;
  world.server.break_next(1, ErrorKind::DeadlineExceeded);
  const auto answer = world.run(KubeVerb::MergePatch, "/api/v1/nodes/n1", "{}");
  REQUIRE_FALSE(answer);
  CHECK(answer.error().kind == ErrorKind::DeadlineExceeded);
  CHECK(world.client().request_counts() == KubeRequestCounts{{{"PATCH", "nodes", 0}, 1}});
}

TEST_CASE("the token is kept for a minute and read again at once after a 401") {
  World world;
  const TokenFile file("first\n");
  world.options.token_file = file.path;
  world.server.require_token("first");
  world.server.put("/api/v1/nodes/n1", "{}");
  CHECK(world.run(KubeVerb::Get, "/api/v1/nodes/n1"));

  file.write("second\n");
  CHECK(world.run(KubeVerb::Get, "/api/v1/nodes/n1"));  // still the first, and still good
  world.server.require_token("second");
  CHECK(world.run(KubeVerb::Get, "/api/v1/nodes/n1"));
  CHECK(world.client().request_counts().at({"GET", "nodes", 401}) == 1);

  file.write("third\n");
  world.loop.advance(seconds(61));
  world.server.require_token("third");
  CHECK(world.run(KubeVerb::Get, "/api/v1/nodes/n1"));
  CHECK(world.client().request_counts().at({"GET", "nodes", 401}) == 1);

  world.server.require_token("another");
  const auto refused = world.run(KubeVerb::Get, "/api/v1/nodes/n1");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind == ErrorKind::Unauthenticated);
  CHECK(refused.error().message.find("third") == std::string::npos);
  CHECK(world.client().request_counts().at({"GET", "nodes", 401}) == 3);  // tried twice, not more
}

TEST_CASE("a token goes over plain http only to this machine, and only as one word") {
  const TokenFile file("secret");

  struct Case {
    const char* url;
    bool sent;
  };

  for (const Case& c : {Case{"http://127.0.0.1:8080", true},
                        Case{"http://localhost", true},
                        Case{"http://[::1]:80", true},
                        Case{"http://127.0.0.1.example.com", false},
                        Case{"http://10.0.0.1", false},
                        Case{"https://10.0.0.1", true}}) {
    CAPTURE(c.url);
    World world;
    world.options.base_url = c.url;
    world.options.token_file = file.path;
    world.server.require_token("secret");
    world.server.put("/api/v1/nodes/n1", "{}");
    CHECK(world.run(KubeVerb::Get, "/api/v1/nodes/n1").has_value() == c.sent);
  }
  file.write("two\r\nX-Header: words");
  World world;
  world.options.token_file = file.path;
  const auto answer = world.run(KubeVerb::Get, "/api/v1/nodes/n1");
  REQUIRE_FALSE(answer);
  CHECK(answer.error().kind == ErrorKind::Unauthenticated);
  CHECK(answer.error().message.find("words") == std::string::npos);
  CHECK(world.server.request_count() == 0);
}

TEST_CASE("without a token file: plain http goes on, https says so") {
  for (const bool https : {false, true}) {
    World world;
    world.options.base_url = https ? "https://127.0.0.1" : "http://127.0.0.1";
    world.options.token_file = "does-not-exist/token";
    world.server.put("/api/v1/nodes/n1", "{}");
    const auto answer = world.run(KubeVerb::Get, "/api/v1/nodes/n1");
    CHECK(answer.has_value() == !https);
    CHECK(world.server.request_count() == (https ? 0 : 1));
  }
}

TEST_CASE("Retry-After keeps the client away, within limits") {
  struct Case {
    int status;
    const char* retry_after;
    Duration want;
  };

  for (const Case& c : {Case{429, "7", seconds(7)},
                        Case{429, "", seconds(1)},
                        Case{429, "soon", seconds(1)},
                        Case{503, "3", seconds(3)},
                        Case{500, "", seconds(0)},
                        Case{404, "9", seconds(0)},
                        Case{429, "86400", seconds(60)}}) {
    CAPTURE(c.status);
    CAPTURE(c.retry_after);
    World world;
    world.server.put("/api/v1/nodes/n1", "{}");
    world.server.fail_next(1, c.status, c.retry_after);
    CHECK_FALSE(world.run(KubeVerb::Get, "/api/v1/nodes/n1"));
    CHECK(world.client().pause_left() == c.want);
    const auto meanwhile = world.run(KubeVerb::Get, "/api/v1/nodes/n1");
    CHECK(meanwhile.has_value() == (c.want == Duration::zero()));
    if (!meanwhile) {
      CHECK(meanwhile.error().kind == ErrorKind::Unavailable);
      CHECK(world.server.request_count() == 1);
    }
    world.loop.advance(c.want);
    CHECK(world.run(KubeVerb::Get, "/api/v1/nodes/n1"));
  }
}

TEST_CASE("a destroyed call says nothing any more, sent or not") {
  World world;
  world.server.put("/api/v1/nodes/n1", "{}");
  world.begin(KubeVerb::Get, "/api/v1/nodes/n1");
  world.call.reset();
  world.loop.run_ready();
  CHECK_FALSE(world.answer.has_value());

  world.server.fail_next(1, 429, "5");
  CHECK_FALSE(world.run(KubeVerb::Get, "/api/v1/nodes/n1"));
  world.begin(KubeVerb::Get, "/api/v1/nodes/n1");  // refused by the pause
  world.call.reset();
  world.loop.run_ready();
  CHECK_FALSE(world.answer.has_value());
}

TEST_CASE("percent_encode leaves only unreserved characters") {
  CHECK(percent_encode("aZ09-._~") == "aZ09-._~");
  CHECK(percent_encode("a=b&c/d ü") == "a%3Db%26c%2Fd%20%C3%BC");
}

}  // namespace imagefs_guard::api_client_test
