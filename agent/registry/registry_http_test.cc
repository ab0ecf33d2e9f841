#include "agent/registry/registry_http.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "tests/unit/fake_http.h"
#include "tests/unit/fake_loop.h"
#include "tests/unit/fake_registry.h"

namespace imagefs_guard::registry_http_test {

namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr const char* kEcrHost = "123456789012.dkr.ecr.us-west-2.amazonaws.com";
constexpr const char* kEcrApi = "POST https://api.ecr.us-west-2.amazonaws.com/";

struct Fixture {
  FakeLoop loop;
  FakeHttp http{loop};
  FakeEnvironment env;
  std::mt19937_64 random{1};
  Policy policy;
  std::optional<RegistryHttp> registry;

  Result<HttpResponse> get(const std::string& image, const std::string& path = "/v2/x") {
    if (!registry) {
      registry.emplace(loop, http, AuthSetup{policy, env.environment(), &random});
    }
    RegistryRequest request;
    request.target = *make_target(*parse_image_reference(image), policy);
    request.path = path;
    request.body_limit = 1000;
    std::optional<Result<HttpResponse>> answer;
    registry->get(std::move(request),
                  [&answer](Result<HttpResponse> result) { answer = std::move(result); });
    loop.run_ready();
    REQUIRE(answer);
    return *answer;
  }

  void login_to_ecr(const std::vector<std::string>& tokens) {
    env.variables = {{"AWS_ACCESS_KEY_ID", "A"}, {"AWS_SECRET_ACCESS_KEY", "S"}};
    std::vector<HttpResponse> responses;
    for (const std::string& token : tokens) {
      responses.push_back(ok(R"({"authorizationData":[{"authorizationToken":")" + token +
                             R"(","expiresAt":1767366245}]})"));
    }
    http.replies(kEcrApi, responses);
  }

  [[nodiscard]] std::string last_authorization() const {
    return sent_header(http.requests.back(), "Authorization").value_or("");
  }
};

/// A registry that lets in who sends `wanted`.
FakeHttp::Handler guarded(const std::string& wanted, const HttpResponse& refusal) {
  return [wanted, refusal](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    return sent_header(request, "Authorization") == wanted ? ok("body") : refusal;
  };
}

}  // namespace

TEST_CASE("registry: anonymous") {
  Fixture f;
  f.http.reply("GET https://quay.io/v2/x", ok("body"));
  CHECK(f.get("quay.io/a")->body == "body");
  CHECK(f.last_authorization().empty());
  CHECK(f.http.requests[0].addresses == AddressPolicy::PublicOnly);
  CHECK(f.http.requests[0].use_proxy);
}

TEST_CASE("registry: bearer, and the token serves the next requests") {
  Fixture f;
  const auto refusal = challenge(
      R"(Bearer realm="https://auth.io/token?x=1",service="reg.io",scope="repository:a:pull")");
  f.http.on("GET https://reg.io/", guarded("Bearer t1", refusal));
  f.http.reply("GET https://auth.io/token", ok(R"({"token":"t1","expires_in":300})"));
  CHECK(f.get("reg.io/a").has_value());
  CHECK(f.http.requests[1].url ==
        "https://auth.io/token?x=1&service=reg.io&scope=repository%3Aa%3Apull");
  CHECK(!sent_header(f.http.requests[1], "Authorization"));
  CHECK(f.http.requests.size() == 3);
  CHECK(f.get("reg.io/a").has_value());
  CHECK(f.http.requests.size() == 4);  // no challenge, no token: both are known
  CHECK(f.get("reg.io/b").has_value());
  CHECK(f.http.requests.size() == 6);  // another scope, asked for before the registry
  CHECK(f.http.requests[4].url.ends_with("scope=repository%3Ab%3Apull"));
  f.loop.advance(seconds(291));
  CHECK(f.get("reg.io/a").has_value());
  CHECK(f.http.requests.size() == 8);  // the token is renewed before it expires
}

TEST_CASE("registry: one new login per request, then the registry's word") {
  Fixture f;
  f.http.reply("GET https://reg.io/", challenge(R"(Bearer realm="https://auth.io/t")"));
  f.http.reply("GET https://auth.io/", ok(R"({"access_token":"t1"})"));
  const auto result = f.get("reg.io/a");
  CHECK(result.error() ==
        Error{ErrorKind::Unauthenticated, "reg.io answered 401 UNAUTHORIZED: login"});
  CHECK(f.http.count("GET https://reg.io/") == 2);

  Fixture scope;
  scope.http.replies("GET https://reg.io/",
                     {challenge(R"(Bearer realm="https://auth.io/t")"),
                      challenge(R"(Bearer realm="https://auth.io/t",error="insufficient_scope")")});
  scope.http.reply("GET https://auth.io/", ok(R"({"token":"t1"})"));
  CHECK(scope.get("reg.io/a").error().kind == ErrorKind::PermissionDenied);
}

TEST_CASE("registry: token services that may not be spoken to") {
  struct Case {
    const char* realm;
    const char* message;
  };

  for (const Case& c : {
           Case{"http://auth.io/t", "reg.io names a token service that is no https URL"},
           Case{"", "reg.io names a token service that is no https URL"},
           Case{"https://user@auth.io/", "reg.io names a token service that is no https URL"},
           Case{"https://169.254.169.254/latest",
                "token service 169.254.169.254: address 169.254.169.254 is not public"},
           Case{"https://inside.io/t", "token service inside.io: address inside.io is not public"},
       }) {
    CAPTURE(c.realm);
    Fixture f;
    f.http.resolve_inside("inside.io");
    f.http.reply("GET https://reg.io/",
                 challenge(std::string(R"(Bearer realm=")") + c.realm + "\""));
    const auto result = f.get("reg.io/a");
    REQUIRE(!result);
    CHECK(result.error().message == c.message);
  }
}

TEST_CASE("registry: logins of the config file go to their registry and its token service") {
  Fixture f;
  f.policy.registry_config_file = "/config.json";
  f.env.files["/config.json"] =
      R"({"auths":{"basic.io":{"username":"u","password":"p"},
                   "bearer.io/team":{"username":"v","password":"q"},
                   "https://index.docker.io/v1/":{"username":"d","password":"r"},
                   "identity.io":{"identitytoken":"idt"}}})";
  f.http.on("GET https://basic.io/",
            guarded("Basic " + base64_encode("u:p"), challenge(R"(Basic realm="x")")));
  CHECK(f.get("basic.io/a").has_value());

  f.http.on("GET https://bearer.io/",
            guarded("Bearer t", challenge(R"(Bearer realm="https://auth.io/t")")));
  f.http.on("GET https://auth.io/t", [](const HttpRequest& request) {
    return sent_header(request, "Authorization") == "Basic " + base64_encode("v:q")
               ? ok(R"({"token":"t"})")
               : status(401, R"({"details":"who are you"})");
  });
  CHECK(f.get("bearer.io/team/a").has_value());
  CHECK(f.get("bearer.io/other/a").error().message ==
        "token service auth.io answered 401: who are you");

  f.http.on("GET https://registry-1.docker.io/",
            guarded("Bearer h", challenge(R"(Bearer realm="https://auth.docker.io/token")")));
  f.http.on("GET https://auth.docker.io/token", [](const HttpRequest& request) {
    return sent_header(request, "Authorization") == "Basic " + base64_encode("d:r")
               ? ok(R"({"token":"h"})")
               : status(401);
  });
  CHECK(f.get("nginx").has_value());

  f.http.on("GET https://identity.io/",
            guarded("Bearer i", challenge(R"(Bearer realm="https://auth.io/id",service="s")")));
  f.http.reply("POST https://auth.io/id", ok(R"({"access_token":"i"})"));
  CHECK(f.get("identity.io/a").has_value());
  CHECK(f.http.requests[f.http.requests.size() - 2].body ==
        "grant_type=refresh_token&client_id=imagefs-guard&service=s&scope=repository%3Aa%3Apull"
        "&refresh_token=idt");
}

TEST_CASE("registry: a wrong password is not sent twice") {
  Fixture f;
  f.policy.registry_config_file = "/config.json";
  f.env.files["/config.json"] = R"({"auths":{"basic.io":{"username":"u","password":"p"}}})";
  f.http.reply("GET https://basic.io/", challenge(R"(Basic realm="x")"));
  CHECK(f.get("basic.io/a").error().kind == ErrorKind::Unauthenticated);
  CHECK(f.http.requests.size() == 2);
  CHECK(f.get("other.io/a").error().kind == ErrorKind::Unavailable);
  CHECK(f.last_authorization().empty());
}

TEST_CASE("registry: ECR's login comes first and goes nowhere else") {
  Fixture f;
  f.login_to_ecr({"QVdTOnB3"});
  const std::string url = std::string("GET https://") + kEcrHost + "/";
  f.http.on(url, guarded("Basic QVdTOnB3", status(401, "Not Authorized")));
  CHECK(f.get(std::string(kEcrHost) + "/a").has_value());
  CHECK(f.http.requests.size() == 2);
  CHECK(f.http.requests[1].addresses == AddressPolicy::Any);  // private endpoints

  const std::string evil = std::string(kEcrHost) + ".evil.com";
  f.http.reply("GET https://" + evil + "/", challenge(R"(Basic realm="x")"));
  CHECK(f.get(evil + "/a").error().kind == ErrorKind::Unauthenticated);
  CHECK(f.last_authorization().empty());
}

TEST_CASE("registry: ECR says expired at 403, one new login") {
  Fixture f;
  f.login_to_ecr({"b25l", "dHdv"});
  const HttpResponse expired = status(403, R"({"errors":[{"code":"DENIED","message":
              "Your authorization token has expired. Reauthenticate and try again."}]})");
  f.http.on(std::string("GET https://") + kEcrHost + "/", guarded("Basic dHdv", expired));
  const std::string image = std::string(kEcrHost) + "/a";
  // A fresh login that is called expired won't get better by another.
  CHECK(f.get(image).error().kind == ErrorKind::PermissionDenied);
  CHECK(f.http.count(kEcrApi) == 1);
  f.loop.advance(minutes(2));
  CHECK(f.get(image).has_value());
  CHECK(f.http.count(kEcrApi) == 2);
  CHECK(f.http.count("GET") == 3);

  Fixture denied;
  denied.login_to_ecr({"b25l", "dHdv"});
  denied.http.reply(std::string("GET https://") + kEcrHost + "/",
                    status(403, R"({"errors":[{"code":"DENIED","message":"not authorized"}]})"));
  CHECK(!denied.get(image));
  denied.loop.advance(minutes(2));
  CHECK(denied.get(image).error().message ==
        std::string(kEcrHost) + " answered 403 DENIED: not authorized");
  CHECK(denied.http.count(kEcrApi) == 1);
}

TEST_CASE("registry: an expired bearer at 400 is renewed once") {
  Fixture f;
  f.http.on("GET https://public.ecr.aws/",
            [](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
              const auto sent = sent_header(request, "Authorization");
              if (!sent) {
                return challenge(R"(Bearer realm="https://public.ecr.aws/token/")");
              }
              return sent == "Bearer new" ? ok("body") : status(400, "expired");
            });
  f.http.replies("GET https://public.ecr.aws/token/",
                 {ok(R"({"token":"old","expires_in":9999})"), ok(R"({"token":"new"})")});
  // First the challenge's own login is used up, then the next request begins with what it left.
  CHECK(f.get("public.ecr.aws/a").error().kind == ErrorKind::InvalidArgument);
  CHECK(f.get("public.ecr.aws/a").has_value());
}

TEST_CASE("registry: redirects by hand, without the login") {
  Fixture f;
  f.login_to_ecr({"QVdTOnB3"});
  const std::string image = std::string(kEcrHost) + "/a";
  const std::string url = std::string("GET https://") + kEcrHost + "/";
  const std::string s3 =
      "https://prod-us-west-2-starport-layer-bucket.s3.us-west-2.amazonaws.com/x?X-Amz-Sig=1";
  f.http.reply(url, HttpResponse{.status = 307, .headers = {{"location", s3}}, .body = ""});
  f.http.reply("GET " + s3, ok("blob"));
  CHECK(f.get(image)->body == "blob");
  CHECK(f.http.requests.back().url == s3);
  CHECK(f.last_authorization().empty());
  CHECK(f.http.requests.back().addresses == AddressPolicy::Any);

  f.http.reply(url + "v2/rel",
               HttpResponse{.status = 302, .headers = {{"location", "/v2/other"}}, .body = ""});
  f.http.reply(url + "v2/other", ok("same host"));
  CHECK(f.get(image, "/v2/rel")->body == "same host");
  CHECK(f.last_authorization() == "Basic QVdTOnB3");
}

TEST_CASE("registry: redirects that are not followed") {
  struct Case {
    const char* location;
    ErrorKind kind;
  };

  for (const Case& c : {
           Case{"http://reg.io/plain", ErrorKind::PermissionDenied},
           Case{"https://169.254.169.254/latest/meta-data/", ErrorKind::PermissionDenied},
           Case{"https://inside.io/", ErrorKind::PermissionDenied},
           Case{"file:///etc/passwd", ErrorKind::PermissionDenied},
           Case{"", ErrorKind::PermissionDenied},
           Case{"/v2/x", ErrorKind::Unavailable},  // for ever
       }) {
    CAPTURE(c.location);
    Fixture f;
    f.http.resolve_inside("inside.io");
    f.http.reply("GET https://reg.io/v2/x",
                 HttpResponse{.status = 307, .headers = {{"location", c.location}}, .body = ""});
    CHECK(f.get("reg.io/a").error().kind == c.kind);
    CHECK(f.http.requests.size() <= 4);
  }
}

TEST_CASE("registry: a redirected host's challenge is not answered") {
  Fixture f;
  f.policy.registry_config_file = "/config.json";
  f.env.files["/config.json"] = R"({"auths":{"reg.io":{"username":"u","password":"p"}}})";
  f.http.reply(
      "GET https://reg.io/",
      HttpResponse{.status = 307, .headers = {{"location", "https://cdn.io/"}}, .body = ""});
  f.http.reply("GET https://cdn.io/", challenge(R"(Basic realm="x")"));
  CHECK(f.get("reg.io/a").error().kind == ErrorKind::Unauthenticated);
  CHECK(f.http.count("GET https://cdn.io/") == 1);
}

TEST_CASE("registry: 429 pauses the host, as long as it asks for") {
  struct Case {
    const char* retry_after;
    Duration at_least;
    Duration at_most;
  };

  for (const Case& c : {
           Case{"20", seconds(20), seconds(20)},
           Case{"0", seconds(1), seconds(1)},
           Case{"99999", seconds(300), seconds(300)},
           Case{"Fri, 02 Jan 2026 03:05:05 GMT", seconds(60), seconds(60)},
           Case{"", seconds(1), seconds(31)},
       }) {
    CAPTURE(c.retry_after);
    Fixture f;
    f.http.replies("GET https://reg.io/",
                   {HttpResponse{.status = 429,
                                 .headers = {{"retry-after", c.retry_after}},
                                 .body = R"({"errors":[{"code":"TOOMANYREQUESTS"}]})"},
                    ok("body")});
    f.http.reply("GET https://other.io/", ok("body"));
    CHECK(f.get("reg.io/a").error().kind == ErrorKind::ResourceExhausted);
    f.loop.advance(c.at_least - std::chrono::microseconds(1));
    CHECK(f.get("reg.io/b").error().message.starts_with("reg.io has asked for a pause, "));
    CHECK(f.get("other.io/a").has_value());
    CHECK(f.http.count("GET https://reg.io/") == 1);
    f.loop.advance(c.at_most - c.at_least + seconds(1));
    CHECK(f.get("reg.io/a").has_value());
  }
}

TEST_CASE("registry: statuses and failures in words") {
  struct Case {
    int status;
    const char* body;
    Error want;
  };

  for (const Case& c : {
           Case{404,
                R"({"errors":[{"code":"MANIFEST_UNKNOWN","message":"gone"}]})",
                {ErrorKind::NotFound, "reg.io answered 404 MANIFEST_UNKNOWN: gone"}},
           Case{403, "", {ErrorKind::PermissionDenied, "reg.io answered 403"}},
           Case{500, "<html>", {ErrorKind::Unavailable, "reg.io answered 500"}},
           Case{503, "busy", {ErrorKind::Unavailable, "reg.io answered 503: busy"}},
           Case{418, "", {ErrorKind::Internal, "reg.io answered 418"}},
       }) {
    Fixture f;
    f.http.reply("GET https://reg.io/", status(c.status, c.body));
    CHECK(f.get("reg.io/a").error() == c.want);
    CHECK(f.http.requests.size() == 1);
  }
  Fixture f;
  CHECK(f.get("reg.io/a").error().message.starts_with("reg.io: no such server"));
  f.http.reply("GET https://big.io/", ok(std::string(1001, 'x')));
  CHECK(f.get("big.io/a").error() ==
        Error{ErrorKind::InvalidArgument, "big.io: reply longer than the limit"});
  CHECK(f.get("10.0.0.1/a").error().message ==
        "10.0.0.1: address 10.0.0.1 is not public; name the host in privateRegistries if that is "
        "meant");
}

TEST_CASE("registry: gone before the answer") {
  Fixture f;
  f.http.reply("GET https://reg.io/", ok("body"));
  f.registry.emplace(f.loop, f.http, AuthSetup{f.policy, f.env.environment(), &f.random});
  RegistryRequest request;
  request.target = *make_target(*parse_image_reference("reg.io/a"), f.policy);
  request.path = "/v2/";
  bool called = false;
  f.registry->get(std::move(request), [&called](const Result<HttpResponse>&) { called = true; });
  f.registry.reset();
  f.loop.run_ready();
  CHECK(!called);
}

}  // namespace imagefs_guard::registry_http_test
