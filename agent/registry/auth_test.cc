#include "agent/registry/auth.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "tests/unit/fake_http.h"
#include "tests/unit/fake_loop.h"
#include "tests/unit/fake_registry.h"

namespace imagefs_guard::auth_test {

namespace {

using std::chrono::seconds;

struct Fixture {
  FakeLoop loop;
  FakeHttp http{loop};
  FakeEnvironment env;
  std::mt19937_64 random{1};
  Policy policy;
  std::optional<RegistryAuth> auth;

  RegistryTarget target(const std::string& image) {
    if (!auth) {
      auth.emplace(loop, http, AuthSetup{policy, env.environment(), &random});
    }
    return *make_target(*parse_image_reference(image), policy);
  }

  Result<std::string> answer(const std::string& image, const std::string& header) {
    const RegistryTarget to = target(image);
    std::optional<Result<std::string>> result;
    auth->answer(to, {header, ""}, [&result](Result<std::string> r) { result = std::move(r); });
    loop.run_ready();
    REQUIRE(result);
    return *result;
  }
};

}  // namespace

TEST_CASE("auth: a token's age counts from when it was issued") {
  Fixture f;
  // Issued 100 s before the fake clock's time, for 120 s: 20 s are left, 10 of them unused.
  f.http.replies("GET https://auth.io/",
                 {ok(R"({"token":"a","expires_in":120,"issued_at":"2026-01-02T03:02:25Z"})"),
                  ok(R"({"token":"b","expires_in":120,"issued_at":"2036-01-02T03:02:25Z"})")});
  const char* header = R"(Bearer realm="https://auth.io/t")";
  CHECK(*f.answer("reg.io/a", header) == "Bearer a");
  f.loop.advance(seconds(9));
  CHECK(*f.answer("reg.io/a", header) == "Bearer a");
  f.loop.advance(seconds(2));
  CHECK(*f.answer("reg.io/a", header) == "Bearer b");
  f.loop.advance(seconds(100));  // a clock that is ahead doesn't shorten it
  CHECK(*f.answer("reg.io/a", header) == "Bearer b");
  CHECK(f.http.requests.size() == 2);
}

TEST_CASE("auth: one token request for all who wait, one per scope") {
  Fixture f;
  f.http.reply("GET https://auth.io/", ok(R"({"token":"a"})"));
  int answers = 0;
  for (int i = 0; i < 20; ++i) {
    const RegistryTarget to = f.target(i % 2 == 0 ? "reg.io/a" : "reg.io/b");
    f.auth->answer(to,
                   {R"(Bearer realm="https://auth.io/t")", ""},
                   [&answers](const Result<std::string>& r) { answers += r ? 1 : 0; });
  }
  f.loop.run_ready();
  CHECK(answers == 20);
  CHECK(f.http.requests.size() == 2);
}

TEST_CASE("auth: token services that fail") {
  Fixture f;
  f.http.reply("GET https://auth.io/busy", status(429));
  f.http.reply("GET https://auth.io/down", status(502));
  f.http.reply("GET https://auth.io/page", ok("<html>"));
  const auto kind = [&f](const std::string& path) {
    return f.answer("reg.io/a", "Bearer realm=\"https://auth.io/" + path + "\"").error().kind;
  };
  CHECK(kind("busy") == ErrorKind::ResourceExhausted);
  CHECK(kind("down") == ErrorKind::Unavailable);
  CHECK(kind("page") == ErrorKind::InvalidArgument);
  CHECK(kind("none") == ErrorKind::Unavailable);
}

TEST_CASE("auth: nothing to answer with") {
  Fixture f;
  CHECK(f.answer("reg.io/a", R"(Basic realm="x")")->empty());
  CHECK(f.answer("reg.io/a", "Negotiate")->empty());
  CHECK(f.answer("reg.io/a", "")->empty());
  CHECK(f.http.requests.empty());
}

TEST_CASE("auth: the config file is read again, a broken one leaves what was there") {
  Fixture f;
  f.policy.registry_config_file = "/config.json";
  f.env.files["/config.json"] = R"({"auths":{"reg.io":{"username":"u","password":"1"}}})";
  const char* header = R"(Basic realm="x")";
  CHECK(*f.answer("reg.io/a", header) == "Basic " + base64_encode("u:1"));
  f.env.files["/config.json"] = R"({"auths":{"reg.io":{"username":"u","password":"2"}}})";
  CHECK(*f.answer("reg.io/a", header) == "Basic " + base64_encode("u:1"));
  f.loop.advance(seconds(60));
  CHECK(*f.answer("reg.io/a", header) == "Basic " + base64_encode("u:2"));
  f.env.files["/config.json"] = "{";
  f.loop.advance(seconds(60));
  CHECK(*f.answer("reg.io/a", header) == "Basic " + base64_encode("u:2"));
}

}  // namespace imagefs_guard::auth_test
