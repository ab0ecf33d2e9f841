#include "agent/registry/registry_client.h"

#include <doctest/doctest.h>

#include <string>

#include "agent/core/sha256.h"
#include "tests/unit/fake_http.h"
#include "tests/unit/fake_loop.h"
#include "tests/unit/fake_registry.h"

namespace imagefs_guard::registry_client_test {

namespace {

using std::chrono::minutes;

std::string index_of(const std::string& entries) {
  return std::string(R"({"schemaVersion":2,"mediaType":")") + kOciIndexType + R"(","manifests":[)" +
         entries + "]}";
}

std::string entry(const Digest& digest,
                  const std::string& platform,
                  const std::string& type = kOciManifestType) {
  return R"({"mediaType":")" + type + R"(","size":500,"digest":")" + to_string(digest) + "\"" +
         (platform.empty() ? "" : R"(,"platform":)" + platform) + "}";
}

const std::string kAmd64 = R"({"os":"linux","architecture":"amd64"})";

struct Answer {
  std::optional<ImageManifest> early;
  std::optional<Result<ImageManifest>> result;
};

struct Fixture {
  FakeLoop loop;
  FakeHttp http{loop};
  FakeEnvironment env;
  Policy policy;
  std::optional<RegistryClient> client;

  RegistryClient& make() {
    if (!client) {
      client.emplace(
          loop, http, RegistrySetup{policy, env.environment(), Platform{"linux", "amd64", ""}, 1});
    }
    return *client;
  }

  void ask(const std::string& image, Answer& answer) {
    make().resolve(image,
                   {.on_manifest = [&answer](const ImageManifest& m) { answer.early = m; },
                    .done = [&answer](Result<ImageManifest> r) { answer.result = std::move(r); }});
  }

  Answer resolve(const std::string& image) {
    Answer answer;
    ask(image, answer);
    loop.run_ready();
    REQUIRE(answer.result);
    return answer;
  }

  Error error(const std::string& image) {
    const Answer answer = resolve(image);
    REQUIRE(!*answer.result);
    return answer.result->error();
  }
};

}  // namespace

TEST_CASE("client: a tag, without Docker-Content-Digest on GET") {
  Fixture f;
  const FakeImage image("a");
  serve(f.http, "https://reg.io/v2/team/app", "v1", image);
  const Answer answer = f.resolve("reg.io/team/app:v1");
  REQUIRE(*answer.result);
  const ImageManifest& manifest = **answer.result;
  CHECK(manifest.manifest_digest == image.digest());
  CHECK(manifest.index_digest.is_zero());
  CHECK(manifest.config_digest == sha256(image.config));
  REQUIRE(manifest.layers.size() == 2);
  CHECK(manifest.layers[1].compressed_bytes == 1001);
  CHECK(manifest.layers[0].chain_id == sha256("diff a/0"));
  CHECK(!manifest.layers[1].chain_id.is_zero());
  REQUIRE(answer.early);  // told before the config was asked for
  CHECK(answer.early->config_ref == "config-" + to_string(sha256(image.config)));
  CHECK(answer.early->layers[0].chain_id.is_zero());
  CHECK(sent_header(f.http.requests[0], "Accept") == std::string(kManifestAccept));
  CHECK(f.http.requests.size() == 2);
}

TEST_CASE("client: what is known is not fetched again") {
  Fixture f;
  const FakeImage image("a");
  serve(f.http, "https://reg.io/v2/app", "v1", image);
  REQUIRE(*f.resolve("reg.io/app:v1").result);
  REQUIRE(*f.resolve("reg.io/app:v1").result);
  REQUIRE(*f.resolve("reg.io/app@" + to_string(image.digest())).result);
  CHECK(f.http.requests.size() == 2);
  f.loop.advance(minutes(6));  // the tag is no longer trusted, the digest is
  const FakeImage newer("b");
  serve(f.http, "https://reg.io/v2/app", "v1", newer);
  CHECK((*f.resolve("reg.io/app:v1").result)->manifest_digest == newer.digest());
  CHECK(f.http.requests.size() == 4);
  f.loop.advance(minutes(6));
  REQUIRE(*f.resolve("reg.io/app:v1").result);
  CHECK(f.http.requests.size() == 5);  // same digest: no config again
}

TEST_CASE("client: a new policy counts from the next request on") {
  Fixture f;
  const FakeImage image("a");
  serve(f.http, "http://reg.io/v2/app", "v1", image);
  CHECK_FALSE(*f.resolve("reg.io/app:v1").result);  // https, which nobody serves
  Policy policy;
  policy.plain_http_registries = {"reg.io"};
  f.client->set_policy(policy);
  CHECK(*f.resolve("reg.io/app:v1").result);
}

TEST_CASE("client: one flight per name, however it is spelt") {
  Fixture f;
  serve(f.http, "https://registry-1.docker.io/v2/library/nginx", "latest", FakeImage("a"));
  std::vector<Answer> answers(25);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    f.ask(i % 2 == 0 ? "nginx" : "docker.io/library/nginx:latest", answers[i]);
  }
  f.loop.run_ready();
  for (const Answer& answer : answers) {
    REQUIRE(answer.result);
    CHECK(answer.result->has_value());
    CHECK(answer.early);
  }
  CHECK(f.http.requests.size() == 2);
}

TEST_CASE("client: index, platform, attestations; one flight per digest") {
  Fixture f;
  const FakeImage image("a");
  const std::string index =
      index_of(entry(sha256("att"), R"({"os":"unknown","architecture":"unknown"})") + "," +
               entry(sha256("arm"), R"({"os":"linux","architecture":"arm64"})") + "," +
               entry(image.digest(), kAmd64));
  const std::string url = "GET https://reg.io/v2/app/";
  serve(f.http, "https://reg.io/v2/app", "unused", image);
  f.http.reply(url + "manifests/v1", ok(index, kOciIndexType));
  f.http.reply(url + "manifests/v2", ok(index, kOciIndexType));
  std::vector<Answer> answers(2);
  f.ask("reg.io/app:v1", answers[0]);
  f.ask("reg.io/app:v2", answers[1]);
  f.loop.run_ready();
  for (const Answer& answer : answers) {
    REQUIRE(*answer.result);
    CHECK((*answer.result)->manifest_digest == image.digest());
    CHECK((*answer.result)->index_digest == sha256(index));
  }
  CHECK(f.http.count(url + image.manifest_path()) == 1);
  CHECK(f.client->cache().find(image.digest())->parsed.image.index_digest == sha256(index));
  REQUIRE(*f.resolve("reg.io/app@" + to_string(sha256(index))).result);  // the index is known too
  CHECK(f.http.requests.size() <= 5);
}

TEST_CASE("client: no platform that fits, and images that say so only in their config") {
  Fixture f;
  const std::string url = "GET https://reg.io/v2/app/";
  f.http.reply(url + "manifests/arm",
               ok(index_of(entry(sha256("x"), R"({"os":"linux","architecture":"arm64"})"))));
  CHECK(f.error("reg.io/app:arm") ==
        Error{ErrorKind::NotFound, "no image for linux/amd64, only for linux/arm64"});
  f.http.reply(url + "manifests/empty", ok(index_of("")));
  CHECK(f.error("reg.io/app:empty").message == "no image for linux/amd64");

  FakeImage arm("arm");
  const std::string old_digest = to_string(sha256(arm.config));
  arm.config.replace(arm.config.find("amd64"), 5, "arm64");
  arm.manifest.replace(
      arm.manifest.find(old_digest), old_digest.size(), to_string(sha256(arm.config)));
  serve(f.http, "https://reg.io/v2/app", "unused", arm);
  f.http.reply(url + "manifests/none", ok(index_of(entry(arm.digest(), ""))));
  CHECK(f.error("reg.io/app:none") ==
        Error{ErrorKind::NotFound, "config: the image is for linux/arm64"});
}

TEST_CASE("client: nested indexes, and those that never end") {
  Fixture f;
  const std::string url = "GET https://reg.io/v2/app/manifests/";
  const FakeImage image("a");
  serve(f.http, "https://reg.io/v2/app", "unused", image);
  std::string body = index_of(entry(image.digest(), kAmd64));
  for (int depth = 1; depth <= 4; ++depth) {
    f.http.reply(url + to_string(sha256(body)), ok(body, kOciIndexType));
    f.http.reply(url + "depth" + std::to_string(depth), ok(body, kOciIndexType));
    body = index_of(entry(sha256(body), "", kOciIndexType));
  }
  CHECK(f.resolve("reg.io/app:depth3").result->has_value());
  CHECK(f.error("reg.io/app:depth4").message == "indexes nested deeper than 3");
}

TEST_CASE("client: bodies that lie are refused") {
  const FakeImage good("good");
  const FakeImage bad("bad");
  const std::string url = "GET https://reg.io/v2/app/";

  Fixture by_digest;
  by_digest.http.reply(url + good.manifest_path(), ok(bad.manifest, kOciManifestType));
  CHECK(by_digest.error("reg.io/app@" + to_string(good.digest())).message ==
        "the manifest from reg.io has digest " + to_string(bad.digest()) + " instead of " +
            to_string(good.digest()));

  Fixture by_header;
  HttpResponse response = ok(bad.manifest, kOciManifestType);
  response.headers.emplace_back("docker-content-digest", to_string(good.digest()));
  by_header.http.reply(url + "manifests/v1", response);
  CHECK(by_header.error("reg.io/app:v1").kind == ErrorKind::InvalidArgument);

  Fixture config;
  serve(config.http, "https://reg.io/v2/app", "v1", good);
  std::string other = good.config;
  other.back() = ' ';
  config.http.reply(url + good.config_path(), ok(other));
  const Answer answer = config.resolve("reg.io/app:v1");
  CHECK(answer.early);
  CHECK(answer.result->error().message.starts_with("config: the config from reg.io has digest "));
  config.http.reply(url + good.config_path(), ok(good.config + " "));
  CHECK(config.error("reg.io/app:v1").message == "config: reg.io: reply longer than the limit");
  config.http.reply(url + good.config_path(), ok(good.config));
  CHECK(config.resolve("reg.io/app:v1").result->has_value());  // and then all is well
  CHECK(config.http.count(url + "manifests/") == 1);
}

TEST_CASE("client: oversize, negative sizes, malformed, too many layers, 1,000 layers") {
  Fixture f;
  const std::string url = "GET https://reg.io/v2/app/manifests/";
  f.http.reply(url + "big", ok(std::string(kManifestBytesLimit + 1, ' ')));
  CHECK(f.error("reg.io/app:big") ==
        Error{ErrorKind::InvalidArgument, "manifest: reg.io: reply longer than the limit"});
  FakeImage negative("n");
  negative.manifest.replace(negative.manifest.find("1000"), 4, "-100");
  f.http.reply(url + "negative", ok(negative.manifest));
  CHECK(f.error("reg.io/app:negative").message == "manifest: layer 1: a size of -100 bytes");
  f.http.reply(url + "page", ok("<html>", "text/html"));
  CHECK(f.error("reg.io/app:page").message == "manifest: not JSON");
  const FakeImage huge("huge", 10'001);
  f.http.reply(url + "huge", ok(huge.manifest));
  CHECK(f.error("reg.io/app:huge").kind == ErrorKind::InvalidArgument);
  serve(f.http, "https://reg.io/v2/app", "thousand", FakeImage("t", 1000));
  const Answer answer = f.resolve("reg.io/app:thousand");
  REQUIRE(*answer.result);
  CHECK((*answer.result)->layers.size() == 1000);
  serve(f.http, "https://reg.io/v2/app", "none", FakeImage("none", 0));
  CHECK((*f.resolve("reg.io/app:none").result)->layers.empty());
}

TEST_CASE("client: the registry's errors, and names that are none") {
  Fixture f;
  f.http.reply("GET https://reg.io/",
               status(404, R"({"errors":[{"code":"NAME_UNKNOWN","message":"no"}]})"));
  CHECK(f.error("reg.io/app:v1") ==
        Error{ErrorKind::NotFound, "manifest: reg.io answered 404 NAME_UNKNOWN: no"});
  CHECK(f.error("sha256:" + std::string(64, 'a')).kind == ErrorKind::InvalidArgument);
  CHECK(f.error("UPPER").kind == ErrorKind::InvalidArgument);
}

TEST_CASE("client: handlers may ask again from inside") {
  Fixture f;
  serve(f.http, "https://reg.io/v2/app", "v1", FakeImage("a"));
  Answer second;
  f.make().resolve("reg.io/app:v1",
                   {.on_manifest = [&](const ImageManifest&) { f.ask("reg.io/app:v1", second); },
                    .done = [](const Result<ImageManifest>&) {}});
  f.loop.run_ready();
  REQUIRE(second.result);
  CHECK(second.result->has_value());
  Answer third;
  f.make().resolve("reg.io/app:v1",
                   {.on_manifest = [](const ImageManifest&) {},
                    .done = [&](const Result<ImageManifest>&) { f.ask("reg.io/app:v1", third); }});
  f.loop.run_ready();
  REQUIRE(third.result);
}

TEST_CASE("client: gone with fetches under way") {
  Fixture f;
  serve(f.http, "https://reg.io/v2/app", "v1", FakeImage("a"));
  Answer answer;
  f.ask("reg.io/app:v1", answer);
  f.client.reset();
  f.loop.run_ready();
  CHECK(!answer.result);
}

TEST_CASE("client: ranges of a layer") {
  Fixture f;
  const Digest digest = sha256("layer");
  const std::string url = "GET https://reg.io/v2/app/blobs/" + to_string(digest);
  std::optional<Result<std::string>> answer;
  const auto ask = [&](const HttpResponse& response, BlobRange range) {
    f.http.reply(url, response);
    f.make().blob_range(
        "reg.io/app:v1", range, [&answer](Result<std::string> r) { answer = std::move(r); });
    f.loop.run_ready();
    REQUIRE(answer);
    return *answer;
  };
  const auto partial = [](const std::string& body, const std::string& content_range) {
    return HttpResponse{.status = 206, .headers = {{"content-range", content_range}}, .body = body};
  };
  CHECK(*ask(partial("12345678", "bytes 92-99/100"), {digest, 92, 8}) == "12345678");
  CHECK(sent_header(f.http.requests.back(), "Range") == "bytes=92-99");
  CHECK(ask(partial("1234567", "bytes 92-98/99"), {digest, 92, 8}).error().kind ==
        ErrorKind::Unimplemented);
  CHECK(ask(partial("12345678", "bytes 0-7/100"), {digest, 92, 8}).error().kind ==
        ErrorKind::Unimplemented);
  CHECK(ask(ok("12345678"), {digest, 92, 8}).error().kind == ErrorKind::Unimplemented);
  CHECK(ask(ok(std::string(100, 'x')), {digest, 92, 8}).error().kind == ErrorKind::Unimplemented);
  CHECK(ask(ok(""), {digest, -1, 8}).error().kind == ErrorKind::InvalidArgument);
  CHECK(ask(ok(""), {digest, 0, std::int64_t{1} << 21}).error().kind == ErrorKind::InvalidArgument);

  Fixture forbidden;
  forbidden.policy.blob_access = false;
  forbidden.make().blob_range(
      "reg.io/app:v1", {digest, 0, 8}, [&answer](Result<std::string> r) { answer = std::move(r); });
  CHECK(answer->error().kind == ErrorKind::FailedPrecondition);
}

}  // namespace imagefs_guard::registry_client_test
