#include "agent/io/redact.h"

#include <doctest/doctest.h>

#include "agent/wire/registry_json.h"

namespace imagefs_guard::redact_test {

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

HttpResponse reply(int status, std::string body) {
  return {.status = status, .headers = {}, .body = std::move(body)};
}

}  // namespace

TEST_CASE("a reply that quotes its request loses the secrets") {
  struct Case {
    const char* name;
    HttpRequest request;
    std::string secret;
    std::string quoted;
  };

  HttpRequest signed_request;
  signed_request.headers = {"X-Amz-Security-Token: FwoG/abc+def=="};
  signed_request.aws_signature = AwsSignature{.region = "r",
                                              .service = "ecr",
                                              .access_key_id = "AKIDEXAMPLE",
                                              .secret_access_key = "wJal/rXUt+nFEMI"};
  HttpRequest form;
  form.method = "POST";
  form.body = "Action=AssumeRoleWithWebIdentity&WebIdentityToken=eyJ%2Babc%3D&RoleArn=arn";
  const std::string basic = base64_encode("user:pass word");
  const std::vector<Case> cases = {
      {"bearer", {.headers = {"Authorization: Bearer abc.def"}}, "abc.def", "got abc.def"},
      {"basic", {.headers = {"authorization: Basic " + basic}}, basic, "got Basic " + basic},
      {"password", {.headers = {"Authorization: Basic " + basic}}, "pass word", "no pass word"},
      {"session", signed_request, "FwoG/abc+def==", "x-amz-security-token:FwoG/abc+def==\n"},
      {"escaped", signed_request, R"(FwoG\/abc+def==)", R"({"m":"FwoG\/abc+def=="})"},
      {"encoded", signed_request, "FwoG%2Fabc%2Bdef%3D%3D", "?t=FwoG%2Fabc%2Bdef%3D%3D"},
      {"key", signed_request, "wJal/rXUt+nFEMI", "wJal/rXUt+nFEMI"},
      {"key id", signed_request, "AKIDEXAMPLE", "key AKIDEXAMPLE unknown"},
      {"form", form, "eyJ+abc=", "token eyJ+abc= has expired"},
      {"presigned",
       {.url = "https://s3/x?X-Amz-Credential=AKID%2F2026&X-Amz-Signature=0123abcd"},
       "0123abcd",
       "<SignatureProvided>0123abcd</SignatureProvided>"},
      {"presigned credential",
       {.url = "https://s3/x?X-Amz-Credential=AKID%2F2026&X-Amz-Signature=0123abcd"},
       "AKID/2026",
       "AKID/2026"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    HttpResponse response = reply(403, c.quoted + " twice: " + c.quoted);
    response.headers = {{"audit-id", c.quoted}};
    redact(c.request, response);
    CHECK_FALSE(has(response.body, c.secret));
    CHECK(has(response.body, "[redacted]"));
    CHECK(has(response.body, " twice: "));
    CHECK_FALSE(has(response.headers[0].second, c.secret));
  }
}

TEST_CASE("what is no secret, and successes, stay as they are") {
  HttpRequest request;
  request.url = "https://reg/token?service=registry&scope=repository:a:pull";
  request.headers = {"Accept: application/json", "Authorization: Bearer abcd"};
  HttpResponse response = reply(403, "scope repository:a:pull of registry, application/json");
  redact(request, response);
  CHECK(response.body == "scope repository:a:pull of registry, application/json");
  response = reply(200, "abcd");
  redact(request, response);
  CHECK(response.body == "abcd");
  response = reply(307, "");
  response.headers = {{"location", "https://s3/abcd"}};
  redact(request, response);
  CHECK(response.headers[0].second == "https://s3/abcd");
}

TEST_CASE("a presigned URL that the server names loses its signature") {
  HttpResponse response =
      reply(500, R"({"message":"GET https://s3/b?x=1&X-Amz-Signature=0f1e&y=2: 403"})");
  redact({}, response);
  CHECK(response.body ==
        R"({"message":"GET https://s3/b?x=1&X-Amz-Signature=[redacted]&y=2: 403"})");
}

TEST_CASE("secrets of a few characters would take whole texts apart") {
  HttpRequest request;
  request.headers = {"Authorization: Basic " + base64_encode("u:a")};
  HttpResponse response = reply(401, "a bad password");
  redact(request, response);
  CHECK(response.body == "a bad password");
}

TEST_CASE("the longest goes first, so that no end of it stays") {
  HttpRequest request;
  request.headers = {"Authorization: Bearer abcdefgh", "Cookie: abcd"};
  HttpResponse response = reply(401, "abcdefgh");
  redact(request, response);
  CHECK(response.body == "[redacted]");
}

}  // namespace imagefs_guard::redact_test
