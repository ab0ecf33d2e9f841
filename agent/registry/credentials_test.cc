#include "agent/registry/credentials.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "tests/unit/fake_http.h"
#include "tests/unit/fake_loop.h"
#include "tests/unit/fake_registry.h"

namespace imagefs_guard::credentials_test {

namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

// The fake loop's wall clock begins at 2026-01-02T03:04:05Z.
constexpr const char* kInOneHour = "2026-01-02T04:04:05Z";

std::string keys(const std::string& id, const std::string& expiration) {
  return R"({"Code":"Success","AccessKeyId":")" + id +
         R"(","SecretAccessKey":"S","Token":"T","Expiration":")" + expiration + "\"}";
}

struct Fixture {
  FakeLoop loop;
  FakeHttp http{loop};
  FakeEnvironment env;
  std::mt19937_64 random{1};
  AwsCredentialChain chain{loop, http, env.environment(), random};

  Result<AwsCredentials> get(Duration wait = seconds(0)) {
    std::optional<Result<AwsCredentials>> answer;
    chain.get([&answer](Result<AwsCredentials> result) { answer = std::move(result); });
    loop.run_ready();
    if (!answer) {
      loop.advance(wait);
    }
    REQUIRE(answer);
    return *answer;
  }

  void instance_metadata(const std::string& credentials) {
    http.reply("PUT http://169.254.169.254/latest/api/token", ok("token\n"));
    http.reply("GET http://169.254.169.254/latest/meta-data/iam/security-credentials/",
               ok("node-role\n"));
    http.reply("GET http://169.254.169.254/latest/meta-data/iam/security-credentials/node-role",
               ok(credentials));
  }
};

}  // namespace

TEST_CASE("credentials: environment, static") {
  Fixture f;
  f.env.variables = {{"AWS_ACCESS_KEY_ID", "A"}, {"AWS_SECRET_ACCESS_KEY", "S"}};
  CHECK(*f.get() == AwsCredentials{"A", "S", "", std::nullopt});
  CHECK(f.http.requests.empty());
  f.env.variables["AWS_SECURITY_TOKEN"] = "T";
  f.chain.forget();
  f.loop.advance(minutes(1));
  CHECK(f.get()->session_token == "T");
}

TEST_CASE("credentials: half a configuration is an error, not the next source") {
  struct Case {
    std::map<std::string, std::string> variables;
    const char* message;
  };

  for (const Case& c : std::vector<Case>{
           {{{"AWS_ACCESS_KEY_ID", "A"}},
            "AWS credentials: only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set"},
           {{{"AWS_ROLE_ARN", "r"}},
            "AWS credentials: only one of AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN is set"},
           {{{"AWS_ROLE_ARN", "r"}, {"AWS_WEB_IDENTITY_TOKEN_FILE", "/t"}},
            "AWS credentials: AWS_WEB_IDENTITY_TOKEN_FILE without AWS_REGION"},
           {{{"AWS_ROLE_ARN", "r"}, {"AWS_WEB_IDENTITY_TOKEN_FILE", "/t"}, {"AWS_REGION", "x"}},
            "AWS credentials: web identity token: /t"},
           {{{"AWS_PROFILE", "p"}},
            "AWS credentials: shared files are configured (AWS_PROFILE, "
            "AWS_SHARED_CREDENTIALS_FILE or AWS_CONFIG_FILE) but not supported"},
           {{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://10.0.0.1/"}},
            "AWS credentials: the container endpoint is neither https nor an address of this node"},
           {{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.evil.com/"}},
            "AWS credentials: the container endpoint is neither https nor an address of this node"},
           {{{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@evil.com/"}},
            "AWS credentials: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with /"},
           {{{"AWS_EC2_METADATA_DISABLED", "True"}},
            "AWS credentials: none configured, and the instance metadata service is disabled"},
       }) {
    CAPTURE(c.message);
    Fixture f;
    f.env.variables = c.variables;
    f.instance_metadata(keys("NODE", kInOneHour));
    const auto result = f.get();
    REQUIRE(!result);
    CHECK(result.error().message == c.message);
    CHECK(f.http.requests.empty());
  }
}

TEST_CASE("credentials: web identity, reply in JSON or XML, token read each time") {
  Fixture f;
  f.env.variables = {{"AWS_WEB_IDENTITY_TOKEN_FILE", "/token"},
                     {"AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r"},
                     {"AWS_REGION", "cn-north-1"}};
  f.env.files["/token"] = "jwt.one\n";
  f.http.replies(
      "POST https://sts.cn-north-1.amazonaws.com.cn/",
      {ok(R"({"AssumeRoleWithWebIdentityResponse":{"AssumeRoleWithWebIdentityResult":{
              "Credentials":{"AccessKeyId":"A1","SecretAccessKey":"S","SessionToken":"T",
              "Expiration":1767326645}}}})"),
       ok("<R><Credentials><AccessKeyId>A2</AccessKeyId><SecretAccessKey>S</SecretAccessKey>"
          "<SessionToken>T</SessionToken><Expiration>2026-01-02T06:04:05Z</Expiration>"
          "</Credentials></R>",
          "text/xml"),
       HttpResponse{.status = 400,
                    .headers = {},
                    .body = R"({"Error":{"Code":"ExpiredTokenException","Message":"old"}})"}});
  CHECK(f.get()->access_key_id == "A1");
  const HttpRequest& request = f.http.requests[0];
  CHECK(sent_header(request, "Accept") == "application/json");
  CHECK(!request.aws_signature);
  CHECK(request.body ==
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A"
        "123456789012%3Arole%2Fr&RoleSessionName=imagefs-guard&WebIdentityToken=jwt.one&"
        "DurationSeconds=3600");

  f.env.files["/token"] = "jwt.two";
  f.loop.advance(minutes(51));  // less than 10 minutes are left
  CHECK(f.get()->access_key_id == "A2");
  CHECK(f.http.requests[1].body.find("WebIdentityToken=jwt.two&") != std::string::npos);

  f.loop.advance(minutes(125));  // 2 minutes are left and the source fails: what is at hand is used
  CHECK(f.get()->access_key_id == "A2");
  CHECK(f.get()->access_key_id == "A2");
  CHECK(f.http.requests.size() == 3);  // not more than once a minute
  f.loop.advance(minutes(10));
  const auto expired = f.get();
  REQUIRE(!expired);
  CHECK(expired.error().message == "STS answered 400 ExpiredTokenException: old");
}

TEST_CASE("credentials: Pod Identity wants the raw token") {
  Fixture f;
  f.env.variables = {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"},
                     {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/token"},
                     {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "not this one"}};
  f.env.files["/token"] = "pod.jwt\n";
  f.http.reply("GET http://169.254.170.23/v1/credentials", ok(keys("POD", kInOneHour)));
  CHECK(f.get()->access_key_id == "POD");
  CHECK(sent_header(f.http.requests[0], "Authorization") == "pod.jwt");
  CHECK(!f.http.requests[0].use_proxy);
  CHECK(f.http.requests[0].body_limit == kAuthBytesLimit);

  Fixture broken;
  broken.env.variables = f.env.variables;
  broken.env.files["/token"] = "a\r\nX: y";
  CHECK(broken.get().error().message ==
        "AWS credentials: a line break in the container authorization token");

  Fixture refused;
  refused.env.variables = f.env.variables;
  refused.env.files = f.env.files;
  refused.http.reply("GET http://169.254.170.23/", status(400, "bad token"));
  CHECK(refused.get().error().message == "container credential endpoint answered 400: bad token");
}

TEST_CASE("credentials: ECS, relative before full") {
  Fixture f;
  f.env.variables = {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "https://other/"},
                     {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x"}};
  f.http.reply("GET http://169.254.170.2/v2/x", ok(keys("ECS", kInOneHour)));
  CHECK(f.get()->access_key_id == "ECS");
  CHECK(!sent_header(f.http.requests[0], "Authorization"));
}

TEST_CASE("credentials: instance metadata, version 2 only") {
  Fixture f;
  f.instance_metadata(keys("NODE", kInOneHour));
  CHECK(f.get()->access_key_id == "NODE");
  REQUIRE(f.http.requests.size() == 3);
  CHECK(sent_header(f.http.requests[0], "X-aws-ec2-metadata-token-ttl-seconds") == "21600");
  CHECK(sent_header(f.http.requests[2], "X-aws-ec2-metadata-token") == "token");
  CHECK(f.get()->access_key_id == "NODE");
  CHECK(f.http.requests.size() == 3);
}

TEST_CASE("credentials: a silent metadata service is given up on fast, and not asked again soon") {
  Fixture f;
  f.http.hang("PUT http://169.254.169.254/");
  const auto result = f.get(seconds(1));
  REQUIRE(!result);
  CHECK(result.error().message ==
        "instance metadata service: timed out (is the hop limit of the instance's metadata 1?)");
  CHECK(f.get().error().kind == ErrorKind::DeadlineExceeded);
  CHECK(f.http.requests.size() == 1);
  f.loop.advance(minutes(1));
  f.instance_metadata(keys("NODE", "2026-01-02T09:00:00Z"));
  CHECK(f.get()->access_key_id == "NODE");
}

TEST_CASE("credentials: expired ones from the instance are used, and not asked for in a loop") {
  Fixture f;
  f.instance_metadata(keys("OLD", "2026-01-02T01:00:00Z"));
  CHECK(f.get()->access_key_id == "OLD");
  for (int i = 0; i < 10; ++i) {
    f.loop.advance(seconds(10));
    CHECK(f.get()->access_key_id == "OLD");
  }
  CHECK(f.http.count("PUT") == 1);
  f.loop.advance(minutes(11));
  CHECK(f.get()->access_key_id == "OLD");
  CHECK(f.http.count("PUT") == 2);
}

TEST_CASE("credentials: all who ask at once share one fetch") {
  Fixture f;
  f.instance_metadata(keys("NODE", kInOneHour));
  int answers = 0;
  for (int i = 0; i < 25; ++i) {
    f.chain.get([&answers](const Result<AwsCredentials>& result) { answers += result ? 1 : 0; });
  }
  f.loop.run_ready();
  CHECK(answers == 25);
  CHECK(f.http.requests.size() == 3);
}

TEST_CASE("credentials: endpoint overrides") {
  FakeEnvironment env;
  CHECK(endpoint_override(env.environment(), "AWS_ENDPOINT_URL_ECR").empty());
  env.variables["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1/";
  CHECK(endpoint_override(env.environment(), "AWS_ENDPOINT_URL_ECR") == "http://127.0.0.1:1");
  env.variables["AWS_ENDPOINT_URL_ECR"] = "http://127.0.0.1:2";
  CHECK(endpoint_override(env.environment(), "AWS_ENDPOINT_URL_ECR") == "http://127.0.0.1:2");
  env.variables["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "true";
  CHECK(endpoint_override(env.environment(), "AWS_ENDPOINT_URL_ECR").empty());
}

}  // namespace imagefs_guard::credentials_test
