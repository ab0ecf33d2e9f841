#include "agent/registry/ecr.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "tests/unit/fake_http.h"
#include "tests/unit/fake_loop.h"
#include "tests/unit/fake_registry.h"

namespace imagefs_guard::ecr_test {

namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr const char* kApi = "POST https://api.ecr.us-west-2.amazonaws.com/";
constexpr double kNow = 1'767'323'045;  // the fake loop's wall clock

const EcrHost& host() {
  static const EcrHost kHost = *parse_ecr_host("123456789012.dkr.ecr.us-west-2.amazonaws.com");
  return kHost;
}

HttpResponse token(const std::string& basic, double expires_at) {
  return ok(R"({"authorizationData":[{"authorizationToken":")" + basic + R"(","expiresAt":)" +
            std::to_string(expires_at) + "}]}");
}

HttpResponse throttled() {
  return status(400, R"({"__type":"ThrottlingException","message":"Rate exceeded"})");
}

struct Fixture {
  FakeLoop loop;
  FakeHttp http{loop};
  FakeEnvironment env{{{"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"},
                       {"AWS_SECRET_ACCESS_KEY", "secret"},
                       {"AWS_SESSION_TOKEN", "session"}},
                      {}};
  std::mt19937_64 random{7};
  std::string endpoint;
  std::optional<EcrTokens> tokens;

  Result<std::string> get() {
    if (!tokens) {
      tokens.emplace(loop, http, EcrSetup{env.environment(), endpoint, &random});
    }
    std::optional<Result<std::string>> answer;
    tokens->get(host(), [&answer](Result<std::string> result) { answer = std::move(result); });
    loop.run_ready();
    REQUIRE(answer);
    return *answer;
  }
};

}  // namespace

TEST_CASE("ecr: the request is what libcurl can sign") {
  Fixture f;
  f.http.reply(kApi, token("QVdTOnB3", kNow + 43'200));
  CHECK(*f.get() == "QVdTOnB3");
  const HttpRequest& request = f.http.requests[0];
  CHECK(request.method == "POST");
  CHECK(request.url == "https://api.ecr.us-west-2.amazonaws.com/");
  CHECK(request.body == "{}");
  CHECK(request.headers ==
        std::vector<std::string>{
            "Content-Type: application/x-amz-json-1.1",
            "X-Amz-Target: AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
            "X-Amz-Security-Token: session"});
  REQUIRE(request.aws_signature);
  CHECK(request.aws_signature->region == "us-west-2");
  CHECK(request.aws_signature->service == "ecr");
  CHECK(request.aws_signature->access_key_id == "AKIDEXAMPLE");
}

TEST_CASE("ecr: no empty security token, endpoint overrides") {
  Fixture f;
  f.env.variables.erase("AWS_SESSION_TOKEN");
  f.env.variables["AWS_ENDPOINT_URL_ECR"] = "http://127.0.0.1:9000";
  f.http.reply("POST http://127.0.0.1:9000/", token("QVdTOnB3", kNow + 43'200));
  CHECK(*f.get() == "QVdTOnB3");
  CHECK(!sent_header(f.http.requests[0], "X-Amz-Security-Token"));

  Fixture policy;
  policy.env.variables["AWS_ENDPOINT_URL_ECR"] = "http://127.0.0.1:9000";
  policy.endpoint = "http://127.0.0.1:4000";
  policy.http.reply("POST http://127.0.0.1:4000/", token("QVdTOnB3", kNow + 43'200));
  CHECK(policy.get().has_value());
}

TEST_CASE("ecr: renewed at half life, the old one serves while that fails") {
  Fixture f;
  f.http.replies(kApi, {token("b25l", kNow + 43'200), status(503), token("dHdv", kNow + 90'000)});
  CHECK(*f.get() == "b25l");
  f.loop.advance(hours(5));
  CHECK(*f.get() == "b25l");
  CHECK(f.http.requests.size() == 1);
  f.loop.advance(hours(1));
  CHECK(*f.get() == "b25l");  // asks behind our back: 503
  CHECK(f.http.requests.size() == 2);
  f.loop.advance(minutes(1));
  CHECK(*f.get() == "b25l");
  f.loop.run_ready();
  CHECK(*f.get() == "dHdv");
  CHECK(f.http.requests.size() == 3);
}

TEST_CASE("ecr: an expiry in the past is no loop of requests") {
  Fixture f;
  f.http.reply(kApi, token("QVdT", 1'420'070'400));
  for (int i = 0; i < 60; ++i) {
    CHECK(*f.get() == "QVdT");
    f.loop.advance(seconds(1));
  }
  CHECK(f.http.requests.size() == 1);
  CHECK(*f.get() == "QVdT");
  CHECK(f.http.requests.size() == 2);
}

TEST_CASE("ecr: throttling at status 400 is met with growing, jittered waits") {
  Fixture f;
  f.http.reply(kApi, throttled());
  CHECK(f.get().error().kind == ErrorKind::ResourceExhausted);
  CHECK(f.get().error().message == "ECR API answered 400 ThrottlingException: Rate exceeded");
  CHECK(f.http.requests.size() == 1);
  for (int i = 0; i < 600; ++i) {
    f.loop.advance(seconds(1));
    CHECK(!f.get());
  }
  // 1 + 2 + 4 + … up to a minute each: far fewer than one a second, more than one a minute.
  CHECK(f.http.requests.size() > 10);
  CHECK(f.http.requests.size() < 60);
  f.http.reply(kApi, token("QVdT", kNow + 43'200));
  f.loop.advance(minutes(1));
  CHECK(*f.get() == "QVdT");
}

TEST_CASE("ecr: two agents don't wait for the same time") {
  Fixture a;
  Fixture b;
  b.random.seed(8);
  for (Fixture* f : {&a, &b}) {
    f->http.reply(kApi, throttled());
    for (int i = 0; i < 300; ++i) {
      CHECK(!f->get());
      f->loop.advance(seconds(1));
    }
  }
  CHECK(a.http.requests.size() != b.http.requests.size());
}

TEST_CASE("ecr: refused is refused for a minute; bad credentials are fetched anew") {
  Fixture f;
  f.http.reply(kApi, status(400, R"({"__type":"x#AccessDeniedException","message":"no"})"));
  CHECK(f.get().error().kind == ErrorKind::PermissionDenied);
  f.loop.advance(seconds(59));
  CHECK(!f.get());
  CHECK(f.http.requests.size() == 1);

  Fixture expired;
  expired.http.replies(kApi,
                       {status(400, R"({"__type":"ExpiredTokenException","message":"old"})"),
                        token("QVdT", kNow + 43'200)});
  CHECK(expired.get().error().kind == ErrorKind::Unauthenticated);
  expired.env.variables["AWS_SESSION_TOKEN"] = "new";
  expired.loop.advance(minutes(1));
  CHECK(*expired.get() == "QVdT");
  CHECK(sent_header(expired.http.requests[1], "X-Amz-Security-Token") == "new");
}

TEST_CASE("ecr: a rejected login is replaced, unless it is fresh") {
  Fixture f;
  f.http.replies(kApi, {token("b25l", kNow + 43'200), token("dHdv", kNow + 43'200)});
  CHECK(*f.get() == "b25l");
  CHECK(!f.tokens->reject(host(), "b25l"));
  f.loop.advance(minutes(2));
  CHECK(f.tokens->reject(host(), "b25l"));
  CHECK(*f.get() == "dHdv");
  CHECK(f.tokens->reject(host(), "b25l"));  // whoever comes late finds the new one
  CHECK(f.http.requests.size() == 2);
}

TEST_CASE("ecr: everyone waits for one call") {
  Fixture f;
  f.http.reply(kApi, token("QVdT", kNow + 43'200));
  f.tokens.emplace(f.loop, f.http, EcrSetup{f.env.environment(), "", &f.random});
  int answers = 0;
  for (int i = 0; i < 25; ++i) {
    f.tokens->get(host(), [&answers](const Result<std::string>& r) { answers += r ? 1 : 0; });
  }
  f.loop.run_ready();
  CHECK(answers == 25);
  CHECK(f.http.requests.size() == 1);
}

}  // namespace imagefs_guard::ecr_test
