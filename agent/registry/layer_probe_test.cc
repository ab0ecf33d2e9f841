#include "agent/registry/layer_probe.h"

#include <doctest/doctest.h>

#include <charconv>

#include "agent/core/sha256.h"
#include "agent/core/unpacked_size.h"
#include "tests/unit/fake_blobs.h"
#include "tests/unit/fake_http.h"
#include "tests/unit/fake_loop.h"
#include "tests/unit/fake_registry.h"

namespace imagefs_guard::layer_probe_test {
namespace {

using testing::chunked_blob;
using testing::small_toc;
using testing::stargz_blob;

const std::string kBlobUrl = "GET https://reg.io/v2/app/blobs/";

/// What a server that understands Range makes of the request.
HttpResponse answer_range(const HttpRequest& request, const std::string& blob) {
  const std::string range = sent_header(request, "Range").value_or("");
  std::size_t first = 0;
  std::size_t last = 0;
  const std::size_t dash = range.find('-');
  REQUIRE(range.starts_with("bytes="));
  std::from_chars(range.data() + 6, range.data() + dash, first);
  std::from_chars(range.data() + dash + 1, range.data() + range.size(), last);
  if (first >= blob.size()) {
    return status(416);
  }
  last = std::min(last, blob.size() - 1);
  return HttpResponse{.status = 206,
                      .headers = {{"content-range",
                                   "bytes " + std::to_string(first) + "-" + std::to_string(last) +
                                       "/" + std::to_string(blob.size())}},
                      .body = blob.substr(first, last - first + 1)};
}

struct Fixture {
  FakeLoop loop;
  FakeHttp http{loop};
  FakeEnvironment env;
  Policy policy;
  std::unique_ptr<RegistryClient> client;
  std::unique_ptr<LayerProbe> probe;
  std::vector<Result<SizeFact>> answers;
  LayerQuestion question;
  std::string blob;

  void serve(const std::string& bytes, LayerCompression compression) {
    blob = bytes;
    question = {.image = "reg.io/app:v1",
                .digest = sha256(bytes),
                .compressed_bytes = static_cast<std::int64_t>(bytes.size()),
                .compression = compression};
    http.on(kBlobUrl, [this](const HttpRequest& request) { return answer_range(request, blob); });
  }

  Result<SizeFact> run() {
    client = std::make_unique<RegistryClient>(
        loop, http, RegistrySetup{policy, env.environment(), Platform{"linux", "amd64", ""}, 1});
    probe = std::make_unique<LayerProbe>(
        *client, question, [this](Result<SizeFact> fact) { answers.push_back(std::move(fact)); });
    probe->start();
    loop.run_ready();
    REQUIRE(answers.size() == 1);
    return answers[0];
  }
};

/// Random letters, so that compression doesn't make blobs too small to be asked for in pieces.
std::string noise(std::size_t size, std::uint64_t seed = 1) {
  std::string text(size, ' ');
  std::uint64_t state = seed;
  for (char& c : text) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    c = static_cast<char>(state >> 56U);
  }
  return text;
}

std::string some_tar() {
  std::string tar;
  for (int i = 0; i < 300; ++i) {
    tar +=
        testing::tar_file("usr/f" + std::to_string(i), noise(900, static_cast<std::uint64_t>(i)));
  }
  return tar + std::string(1024, '\0');
}

std::string source_of(const Result<SizeFact>& fact) {
  return fact ? to_string(fact->source) : fact.error().message;
}

TEST_CASE("layer probe: eStargz by its footer, checked by its annotation") {
  for (const bool annotated : {false, true}) {
    Fixture f;
    f.serve(stargz_blob(some_tar(), small_toc()), LayerCompression::Gzip);
    if (annotated) {
      f.question.hints.stargz_toc_digest = to_string(sha256(small_toc()));
    }
    const auto fact = f.run();
    REQUIRE(fact.has_value());
    CHECK(fact->source == SizeSource::Toc);
    CHECK(fact->inodes == 10);
    CHECK(f.http.count(kBlobUrl) == 2);
  }
}

TEST_CASE("layer probe: the last member's trailer is not the layer's size") {
  // Each member is a whole number of tar blocks, so the trailer alone looks like a size.
  const std::string tar = some_tar();
  for (const std::size_t first : {std::size_t{1024}, std::size_t{20'480}}) {
    Fixture f;
    f.serve(testing::gzip(tar.substr(0, first)) + testing::gzip(tar.substr(first)),
            LayerCompression::Gzip);
    const auto fact = f.run();
    CHECK_FALSE(fact.has_value());
    CHECK(source_of(fact) == "the layer has many gzip members: no size");
  }
}

TEST_CASE("layer probe: zstd:chunked by its annotation, or by its footer") {
  const auto blob = chunked_blob(some_tar(), small_toc());
  for (const bool annotated : {false, true}) {
    Fixture f;
    f.serve(blob.bytes, LayerCompression::Zstd);
    if (annotated) {
      f.question.hints.zstd_chunked_position = blob.position;
      f.question.hints.zstd_chunked_checksum = to_string(sha256(blob.toc));
    }
    const auto fact = f.run();
    REQUIRE(fact.has_value());
    CHECK(fact->source == SizeSource::Toc);
    CHECK(fact->inodes == 9);
    CHECK(f.http.count(kBlobUrl) == (annotated ? 1 : 2));
  }
}

TEST_CASE("layer probe: a table comes in pieces, and in blocks of the node's filesystem") {
  Fixture f;
  std::string json = R"({"version":1,"entries":[)";
  for (int i = 0; i < 9'000; ++i) {
    json += R"({"name":"f)" + std::to_string(i) + R"(","type":"reg","size":100,"digest":")" +
            to_string(sha256(std::to_string(i))) + "\"},";
  }
  json += R"({"name":"d","type":"dir"}]})";
  f.serve(stargz_blob(some_tar(), json), LayerCompression::Gzip);
  f.question.block_bytes = 1024;
  const auto fact = f.run();
  REQUIRE(fact.has_value());
  CHECK(fact->source == SizeSource::Toc);
  CHECK(fact->bytes ==
        9'000 * 1024 + static_cast<std::int64_t>((json.size() + 1023) / 1024 * 1024));
  CHECK(f.http.count(kBlobUrl) >= 3);
  for (const HttpRequest& request : f.http.requests) {
    CHECK(request.body_limit <= 256 * 1024);
  }
}

TEST_CASE("layer probe: what is no table, or not the manifest's, is passed over") {
  const std::string tar = some_tar();
  SUBCASE("eStargz with another digest") {
    Fixture f;
    f.serve(stargz_blob(tar, small_toc()), LayerCompression::Gzip);
    f.question.hints.stargz_toc_digest = to_string(sha256("another"));
    CHECK(source_of(f.run()) == "gzip trailer");
  }
  SUBCASE("eStargz whose table is damaged") {
    Fixture f;
    f.serve(stargz_blob(tar, small_toc().substr(0, 100)), LayerCompression::Gzip);
    CHECK(source_of(f.run()) == "gzip trailer");
  }
  SUBCASE("a footer that points at the layer's own files") {
    Fixture f;
    const std::string head = testing::gzip(tar);
    f.serve(head + testing::stargz_footer(0), LayerCompression::Gzip);
    CHECK(source_of(f.run()) == "gzip trailer");
  }
  SUBCASE("zstd:chunked: the annotation lies, the frame header does not") {
    Fixture f;
    f.serve(testing::zstd(tar), LayerCompression::Zstd);
    f.question.hints.zstd_chunked_position = "100:200:300:1";
    const auto fact = f.run();
    REQUIRE(source_of(fact) == "zstd header");
    CHECK(fact->bytes == static_cast<std::int64_t>(tar.size()));
  }
  SUBCASE("zstd:chunked: another checksum") {
    Fixture f;
    const auto blob = chunked_blob(tar, small_toc());
    f.serve(blob.bytes, LayerCompression::Zstd);
    f.question.hints.zstd_chunked_position = blob.position;
    f.question.hints.zstd_chunked_checksum = to_string(sha256("another"));
    CHECK(source_of(f.run()) == "zstd header");
  }
}

TEST_CASE("layer probe: gzip and zstd without a table: trailer or header, with a sample") {
  Fixture gzip;
  gzip.serve(testing::gzip(some_tar()), LayerCompression::Gzip);
  const auto trailer = gzip.run();
  REQUIRE(source_of(trailer) == "gzip trailer");
  CHECK(trailer->bytes == static_cast<std::int64_t>(some_tar().size()));
  CHECK(trailer->inodes > 10);
  CHECK(gzip.http.count(kBlobUrl) == 2);

  Fixture zstd;
  zstd.serve(testing::zstd(some_tar()), LayerCompression::Zstd);
  const auto header = zstd.run();
  REQUIRE(source_of(header) == "zstd header");
  CHECK(header->bytes == static_cast<std::int64_t>(some_tar().size()));

  Fixture small;
  small.serve(testing::zstd(testing::tar_file("a", noise(3000))), LayerCompression::Zstd);
  const auto whole = small.run();
  REQUIRE(source_of(whole) == "zstd header");
  CHECK(whole->sampled_tar_bytes == 3584);
  CHECK(small.http.count(kBlobUrl) == 1);

  Fixture frames;
  frames.serve(testing::zstd(some_tar()) + testing::zstd(some_tar()), LayerCompression::Zstd);
  CHECK(source_of(frames.run()) == "first zstd frame, a lower bound");

  Fixture silent;
  silent.serve(std::string("\x28\xb5\x2f\xfd\x00\x58", 6) + noise(50'000), LayerCompression::Zstd);
  const auto nothing = silent.run();
  REQUIRE(!nothing.has_value());
  CHECK(nothing.error().kind == ErrorKind::Unimplemented);
}

TEST_CASE("layer probe: a redirect to another host gets no Authorization") {
  Fixture f;
  f.serve(stargz_blob(some_tar(), small_toc()), LayerCompression::Gzip);
  f.policy.registry_config_file = "config.json";
  f.env.files["config.json"] = R"({"auths":{"reg.io":{"username":"u","password":"p"}}})";
  f.http.on(kBlobUrl, [](const HttpRequest& request) {
    if (!sent_header(request, "Authorization")) {
      return challenge(R"(Basic realm="reg.io")");
    }
    return HttpResponse{
        .status = 307, .headers = {{"location", "https://bucket.example/x?sig=1"}}, .body = {}};
  });
  f.http.on("GET https://bucket.example/", [&f](const HttpRequest& request) {
    CHECK(!sent_header(request, "Authorization").has_value());
    return answer_range(request, f.blob);
  });
  const auto fact = f.run();
  REQUIRE(fact.has_value());
  CHECK(fact->source == SizeSource::Toc);
  CHECK(f.http.count("GET https://bucket.example/") == 2);
}

TEST_CASE("layer probe: registries without Range, cut replies, refusals and failures") {
  struct Case {
    const char* name;
    HttpResponse response;
    ErrorKind kind;
  };

  const Case cases[] = {
      {"ignores Range", status(200, std::string(50'000, 'x')), ErrorKind::Unimplemented},
      {"ignores Range, small", status(200, "x"), ErrorKind::Unimplemented},
      {"another range",
       {.status = 206, .headers = {{"content-range", "bytes 0-63/99"}}, .body = noise(64)},
       ErrorKind::Unimplemented},
      {"no range header",
       {.status = 206, .headers = {}, .body = noise(64)},
       ErrorKind::Unimplemented},
      {"416", status(416), ErrorKind::Unimplemented},
      {"403", status(403), ErrorKind::PermissionDenied},
      {"404", status(404), ErrorKind::NotFound},
      {"500", status(500), ErrorKind::Unavailable},
      {"429", status(429), ErrorKind::ResourceExhausted},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Fixture f;
    f.serve(stargz_blob(some_tar(), small_toc()), LayerCompression::Gzip);
    f.http.reply(kBlobUrl, c.response);
    const auto fact = f.run();
    REQUIRE(!fact.has_value());
    CHECK(to_string(fact.error().kind) == std::string(to_string(c.kind)));
  }
}

TEST_CASE("layer probe: a failure in the middle of a table is asked again, a cut one is not") {
  const std::string blob = stargz_blob(some_tar(), small_toc());
  for (const bool passing : {true, false}) {
    Fixture f;
    f.serve(blob, LayerCompression::Gzip);
    int request_number = 0;
    f.http.on(kBlobUrl, [&](const HttpRequest& request) {
      ++request_number;
      if (request_number == 1) {
        return answer_range(request, blob);
      }
      HttpResponse cut = answer_range(request, blob);
      cut.body.pop_back();
      return passing ? status(503) : cut;
    });
    const auto fact = f.run();
    CHECK(fact.has_value() == !passing);
    CHECK(source_of(fact).starts_with(passing ? "reg.io answered 503" : "gzip trailer"));
  }
}

TEST_CASE("layer probe: nothing is asked without leave, and nothing is said after its end") {
  Fixture forbidden;
  forbidden.serve(testing::gzip(some_tar()), LayerCompression::Gzip);
  forbidden.policy.blob_access = false;
  const auto fact = forbidden.run();
  REQUIRE(!fact.has_value());
  CHECK(fact.error().kind == ErrorKind::FailedPrecondition);
  CHECK(forbidden.http.requests.empty());

  Fixture gone;
  gone.serve(testing::gzip(some_tar()), LayerCompression::Gzip);
  gone.client = std::make_unique<RegistryClient>(
      gone.loop,
      gone.http,
      RegistrySetup{gone.policy, gone.env.environment(), Platform{"linux", "amd64", ""}, 1});
  gone.probe = std::make_unique<LayerProbe>(
      *gone.client, gone.question, [](const Result<SizeFact>&) { FAIL("it was destroyed"); });
  gone.probe->start();
  gone.probe.reset();
  gone.loop.run_ready();
}

}  // namespace
}  // namespace imagefs_guard::layer_probe_test
