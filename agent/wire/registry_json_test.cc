#include "agent/wire/registry_json.h"

#include <doctest/doctest.h>

#include <string>

namespace imagefs_guard::registry_json_test {

namespace {

WallTime at(std::int64_t seconds) {
  return WallTime(std::chrono::seconds(seconds));
}

}  // namespace

TEST_CASE("challenges: several, quoted commas, odd spacing, any case") {
  struct Case {
    const char* header;
    std::vector<Challenge> want;
  };

  for (const Case& c : std::vector<Case>{
           {R"(Bearer realm="https://a/token",service="reg",scope="repository:a/b:pull,push")",
            {{"bearer",
              {{"realm", "https://a/token"},
               {"service", "reg"},
               {"scope", "repository:a/b:pull,push"}}}}},
           {R"(Basic realm="https://h/",service="ecr.amazonaws.com")",
            {{"basic", {{"realm", "https://h/"}, {"service", "ecr.amazonaws.com"}}}}},
           {R"(BASIC Realm=x, bearer realm = "y" , error="insufficient_scope")",
            {{"basic", {{"realm", "x"}}},
             {"bearer", {{"realm", "y"}, {"error", "insufficient_scope"}}}}},
           {"Negotiate, Basic", {{"negotiate", {}}, {"basic", {}}}},
           {R"(Bearer realm="a\"b)", {{"bearer", {{"realm", "a\"b"}}}}},
           {R"(Bearer realm="a\)", {{"bearer", {{"realm", "a"}}}}},
           {"", {}},
           {"=,=\"", {}},
           {"\"\"\"", {}},
       }) {
    CAPTURE(c.header);
    CHECK(parse_challenges(c.header) == c.want);
  }
  std::string many;
  for (int i = 0; i < 1000; ++i) {
    many += "a ,";
  }
  CHECK(parse_challenges(many).size() == 17);
}

TEST_CASE("bearer tokens: both names, defaults, bounds") {
  CHECK(*parse_bearer_token(R"({"token":"t"})") ==
        BearerToken{"t", std::chrono::seconds(60), std::nullopt});
  CHECK(*parse_bearer_token(
            R"({"access_token":"a","expires_in":300,"issued_at":"2026-01-02T03:04:05Z"})") ==
        BearerToken{"a", std::chrono::seconds(300), at(1'767'323'045)});
  CHECK(parse_bearer_token(R"({"token":"t","expires_in":-5})")->lifetime == Duration{});
  CHECK(parse_bearer_token(R"({"token":"t","expires_in":99999999999})")->lifetime ==
        std::chrono::hours(24));
  for (const char* body : {"", "{}", "[]", R"({"token":7})", R"({"token":"a\nX: y"})"}) {
    CAPTURE(body);
    CHECK(!parse_bearer_token(body));
  }
}

TEST_CASE("AWS credentials: container, instance, STS in both forms") {
  const auto container = parse_container_credentials(
      R"({"AccessKeyId":"A","SecretAccessKey":"S","Token":"T","AccountId":"123456789012",
          "Expiration":"2026-01-02T03:04:05.123456789Z"})");
  REQUIRE(container);
  CHECK(container->session_token == "T");
  CHECK(container->expires_at == at(1'767'323'045) + Duration(123'456));
  CHECK(!parse_container_credentials(
      R"({"AccessKeyId":"A","SecretAccessKey":"S","SessionToken":"T","Expiration":"soon"})"));
  CHECK(!parse_container_credentials("400 bad token"));

  CHECK(parse_instance_credentials(
            R"({"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"A","SecretAccessKey":"S",
                "Token":"T","Expiration":"2026-01-02T03:04:05Z"})")
            ->expires_at == at(1'767'323'045));
  CHECK(parse_instance_credentials(R"({"AccessKeyId":"A","SecretAccessKey":"S"})").has_value());
  CHECK(parse_instance_credentials(R"({"Code":"AssumeRoleUnauthorizedAccess"})").error().message ==
        "instance credentials: AssumeRoleUnauthorizedAccess");

  const AwsCredentials sts{"A", "S", "a&b", at(1'767'323'045)};
  CHECK(*parse_sts_credentials(
            R"({"AssumeRoleWithWebIdentityResponse":{"AssumeRoleWithWebIdentityResult":{
                "Credentials":{"AccessKeyId":"A","SecretAccessKey":"S","SessionToken":"a&b",
                "Expiration":1.767323045E9}}}})") == sts);
  CHECK(*parse_sts_credentials(
            "\n<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/"
            "2011-06-15/\"><AssumeRoleWithWebIdentityResult><Credentials>"
            "<AccessKeyId>A</AccessKeyId><SecretAccessKey>S</SecretAccessKey>"
            "<SessionToken>a&amp;b</SessionToken><Expiration>2026-01-02T03:04:05Z</Expiration>"
            "</Credentials></AssumeRoleWithWebIdentityResult>"
            "</AssumeRoleWithWebIdentityResponse>") == sts);
  for (const char* body : {"<a/>", "<AccessKeyId>A", "{}", ""}) {
    CAPTURE(body);
    CHECK(!parse_sts_credentials(body));
  }
}

TEST_CASE("ECR token") {
  const auto token = parse_ecr_token(
      R"({"authorizationData":[{"authorizationToken":"QVdTOnB3","expiresAt":1420070400.123,
          "proxyEndpoint":"https://123456789012.dkr.ecr.us-west-2.amazonaws.com"}]})");
  REQUIRE(token);
  CHECK(token->basic == "QVdTOnB3");
  CHECK(token->expires_at == at(1'420'070'400) + Duration(123'000));
  for (const char* body :
       {"{}",
        R"({"authorizationData":[]})",
        R"({"authorizationData":[{"authorizationToken":"a\r\nb","expiresAt":1}]})",
        R"({"authorizationData":[{"authorizationToken":"QVdTOnB3"}]})"}) {
    CAPTURE(body);
    CHECK(!parse_ecr_token(body));
  }
}

TEST_CASE("errors: registry, AWS JSON and XML, plain text") {
  CHECK(parse_registry_error(
            R"({"errors":[{"code":"MANIFEST_UNKNOWN","message":"not\nfound"},{"code":"B"}]})") ==
        ServiceError{"MANIFEST_UNKNOWN", "not found"});
  CHECK(parse_registry_error("Not Authorized") == ServiceError{"", "Not Authorized"});
  CHECK(parse_registry_error("<html>") == ServiceError{});
  CHECK(parse_registry_error(R"({"details":"incorrect username or password"})").message ==
        "incorrect username or password");
  CHECK(parse_registry_error(std::string(5000, 'x')).message.size() == 300);

  CHECK(parse_aws_error(R"({"__type":"com.amazon#ThrottlingException:http://x","message":"m"})",
                        "") == ServiceError{"ThrottlingException", "m"});
  CHECK(parse_aws_error(R"({"Message":"m"})", "AccessDeniedException:http://y") ==
        ServiceError{"AccessDeniedException", "m"});
  CHECK(parse_aws_error(
            R"({"Error":{"Code":"ExpiredTokenException","Message":"m"},"RequestId":"r"})", "") ==
        ServiceError{"ExpiredTokenException", "m"});
  CHECK(parse_aws_error("<ErrorResponse><Error><Code>AccessDenied</Code><Message>a &lt; b"
                        "</Message></Error></ErrorResponse>",
                        "") == ServiceError{"AccessDenied", "a < b"});
  CHECK(parse_aws_error("oops", "") == ServiceError{"", "oops"});
  CHECK(is_throttling("ThrottlingException"));
  CHECK(!is_throttling("AccessDeniedException"));
}

TEST_CASE("docker config: logins, keys, order") {
  const auto logins = parse_docker_config(
      R"({"auths":{"https://index.docker.io/v1/":{"auth":"dXNlcjpwYTpzcw=="},
          "registry.corp/team":{"username":"u","password":"p"},
          "registry.corp":{"auth":"dXNlcjpwYTpzcw==","username":"ignored","password":"x"},
          "tokens.corp":{"identitytoken":"idt"},
          "broken":{"auth":"%%%"},"empty":{}},"credsStore":"desktop"})");
  REQUIRE(logins);
  REQUIRE(logins->size() == 4);
  CHECK((*logins)[0].key == "tokens.corp");
  CHECK((*logins)[0].identity_token == "idt");
  CHECK((*logins)[1].key == "registry.corp/team");
  CHECK((*logins)[1].basic == base64_encode("u:p"));
  CHECK((*logins)[2].key == "registry.corp");
  CHECK((*logins)[2].basic == base64_encode("user:pa:ss"));
  CHECK((*logins)[3].key == "index.docker.io");
  CHECK(parse_docker_config(R"({"a.b":{"auth":"dTpw"}})")->at(0).key == "a.b");
  CHECK(!parse_docker_config("[]"));
  CHECK(!parse_docker_config("{"));
}

TEST_CASE("keyring: host labels by glob, port equal, path by prefix") {
  struct Case {
    const char* key;
    const char* image;
    bool want;
  };

  for (const Case& c : {
           Case{"registry.corp", "registry.corp/team/app", true},
           Case{"registry.corp", "registry.corp:5000/app", false},
           Case{"registry.corp:5000", "registry.corp:5000/app", true},
           Case{"*.dkr.ecr.*.amazonaws.com",
                "123456789012.dkr.ecr.us-west-2.amazonaws.com/app",
                true},
           Case{"*.amazonaws.com", "a.b.amazonaws.com/app", false},
           Case{"*.corp", "registry.corp/app", true},
           Case{"*.corp", "corp/app", false},
           Case{"reg*y.corp", "registry.corp/app", true},
           Case{"registry.corp/foo", "registry.corp/foobar", true},
           Case{"registry.corp/foo", "registry.corp/bar", false},
           Case{"registry.corp/*", "registry.corp/bar", false},
           Case{"registry.corp", "evil-registry.corp/app", false},
           Case{"", "registry.corp/app", false},
       }) {
    CAPTURE(c.key);
    CAPTURE(c.image);
    CHECK(login_matches(c.key, c.image) == c.want);
  }
}

TEST_CASE("base64") {
  for (const std::string& bytes : {std::string(),
                                   std::string("f"),
                                   std::string("fo"),
                                   std::string("foo"),
                                   std::string("\0\xff\x7f\x80", 4)}) {
    CHECK(base64_decode(base64_encode(bytes)) == bytes);
  }
  CHECK(base64_encode("fo") == "Zm8=");
  CHECK(base64_decode("Zm8") == "fo");
  CHECK(!base64_decode("Z"));
  CHECK(!base64_decode("Zm8\n"));
}

}  // namespace imagefs_guard::registry_json_test
