#include "agent/registry/layer_sizes.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/unit/builders.h"
#include "tests/unit/fake_http.h"
#include "tests/unit/fake_loop.h"
#include "tests/unit/fake_registry.h"

namespace imagefs_guard::layer_sizes_test {
namespace {

using testing::digest;

constexpr std::int64_t kBlobBytes = 1'000'000;

struct Fixture {
  FakeLoop loop;
  FakeHttp http{loop};
  FakeEnvironment env;
  Policy policy;
  std::unique_ptr<RegistryClient> client;
  std::unique_ptr<LayerSizes> sizes;
  int changes = 0;
  NodeSnapshot snapshot;

  Fixture() {
    snapshot.runtime.emplace();
    snapshot.resolved = {
        {.image = "reg.io/app:v1", .manifest_digest = digest(1), .error = {}, .resolved_at = {}}};
    snapshot.manifests = {{.manifest_digest = digest(1),
                           .config_digest = digest(2),
                           .config_ref = {},
                           .layers = {{.digest = digest(3),
                                       .compressed_bytes = kBlobBytes,
                                       .compression = LayerCompression::Gzip,
                                       .diff_id = digest(4),
                                       .chain_id = digest(5),
                                       .facts = {}}}}};
  }

  void make() {
    client = std::make_unique<RegistryClient>(
        loop, http, RegistrySetup{policy, env.environment(), Platform{"linux", "amd64", ""}, 1});
    sizes = std::make_unique<LayerSizes>(*client, [this] { ++changes; });
  }

  void tick() {
    sizes->contribute(snapshot);
    loop.run_ready();
    sizes->contribute(snapshot);
  }

  /// A registry that has `bytes` (little endian) as the gzip trailer and no readable beginning.
  void serve_trailer(const std::string& trailer) {
    http.on("GET https://reg.io/v2/app/blobs/", [trailer](const HttpRequest& request) {
      const std::string range = sent_header(request, "Range").value_or("");
      if (range == "bytes=999936-999999") {
        return HttpResponse{.status = 206,
                            .headers = {{"content-range", "bytes 999936-999999/1000000"}},
                            .body = std::string(64 - trailer.size(), 'x') + trailer};
      }
      return HttpResponse{.status = 206,
                          .headers = {{"content-range", "bytes 0-32767/1000000"}},
                          .body = std::string(32'768, 'x')};
    });
  }
};

TEST_CASE("layer sizes: the trailer becomes a fact, once for each digest") {
  Fixture f;
  f.make();
  f.serve_trailer(std::string("\x01\x02\x03\x04\x00\x28\x00\x00", 8));
  f.tick();
  REQUIRE(f.snapshot.manifests[0].layers[0].facts.size() == 1);
  const SizeFact& fact = f.snapshot.manifests[0].layers[0].facts[0];
  CHECK(fact.source == SizeSource::GzipTrailer);
  CHECK(fact.bytes == 10'240);
  CHECK(fact.sampled_tar_bytes == 0);
  CHECK(f.changes == 1);
  const int asked = f.http.count("GET https://reg.io/v2/app/blobs/");
  f.tick();
  CHECK(f.http.count("GET https://reg.io/v2/app/blobs/") == asked);
  CHECK(f.snapshot.manifests[0].layers[0].facts.size() == 1);
}

TEST_CASE("layer sizes: a small blob is asked for once, as a whole") {
  Fixture f;
  f.make();
  f.snapshot.manifests[0].layers[0].compressed_bytes = 100;
  f.http.on("GET https://reg.io/v2/app/blobs/", [](const HttpRequest& request) {
    CHECK(sent_header(request, "Range").value_or("") == "bytes=0-99");
    return HttpResponse{.status = 206,
                        .headers = {{"content-range", "bytes 0-99/100"}},
                        .body = std::string(96, 'x') + std::string("\x00\x28\x00\x00", 4)};
  });
  f.tick();
  CHECK(f.http.count("GET https://reg.io/v2/app/blobs/") == 1);
  REQUIRE(f.snapshot.manifests[0].layers[0].facts.size() == 1);
  CHECK(f.snapshot.manifests[0].layers[0].facts[0].bytes == 10'240);
}

TEST_CASE("layer sizes: nothing is asked for an image that is here, or without leave") {
  Fixture here;
  here.make();
  here.snapshot.runtime->snapshots = {{.chain_id = digest(5)}};
  here.tick();
  CHECK(here.http.requests.empty());

  Fixture forbidden;
  forbidden.policy.blob_access = false;
  forbidden.make();
  forbidden.tick();
  CHECK(forbidden.http.requests.empty());
  CHECK(forbidden.snapshot.manifests[0].layers[0].facts.empty());
}

TEST_CASE("layer sizes: a passing failure is asked again later, a refusal is not") {
  Fixture f;
  f.make();
  f.http.reply("GET https://reg.io/v2/app/blobs/", {.status = 503, .headers = {}, .body = {}});
  f.tick();
  f.tick();
  const int first = f.http.count("GET https://reg.io/v2/app/blobs/");
  CHECK(first >= 1);
  f.serve_trailer(std::string("\x01\x02\x03\x04\x00\x28\x00\x00", 8));
  f.snapshot.taken_at += std::chrono::minutes(6);
  f.loop.advance(std::chrono::minutes(6));
  f.tick();
  CHECK(f.snapshot.manifests[0].layers[0].facts.size() == 1);

  Fixture whole;  // ignores Range
  whole.make();
  whole.http.reply("GET https://reg.io/v2/app/blobs/",
                   {.status = 200, .headers = {}, .body = "all of it"});
  whole.tick();
  whole.snapshot.taken_at += std::chrono::minutes(6);
  whole.loop.advance(std::chrono::minutes(6));
  whole.tick();
  CHECK(whole.http.count("GET https://reg.io/v2/app/blobs/") == 1);
  CHECK(whole.snapshot.manifests[0].layers[0].facts.empty());
}

TEST_CASE("layer sizes: a layer that somebody has measured is not asked for, a doubtful one is") {
  Fixture f;
  f.make();
  f.serve_trailer(std::string("\x01\x02\x03\x04\x00\x28\x00\x00", 8));
  Layer& layer = f.snapshot.manifests[0].layers[0];
  layer.facts = {{.source = SizeSource::LearnedElsewhere, .bytes = 3'000'000, .inodes = 10}};
  f.tick();
  CHECK(f.http.requests.empty());
  layer.compressed_bytes = 2'000'000;
  layer.facts[0].bytes = 1;  // can't be true
  f.tick();
  CHECK(!f.http.requests.empty());
}

TEST_CASE("layer sizes: a registry that never answers makes room for others") {
  Fixture f;
  f.make();
  f.http.hang("GET https://reg.io/v2/app/blobs/");
  f.tick();
  CHECK(f.snapshot.manifests[0].layers[0].size_pending);
  f.snapshot.taken_at += std::chrono::seconds(61);
  f.tick();
  CHECK(!f.snapshot.manifests[0].layers[0].size_pending);
  CHECK(f.changes == 1);
  f.serve_trailer(std::string("\x01\x02\x03\x04\x00\x28\x00\x00", 8));
  f.snapshot.taken_at += std::chrono::seconds(31);
  f.tick();
  CHECK(f.snapshot.manifests[0].layers[0].facts.size() == 1);
}

}  // namespace
}  // namespace imagefs_guard::layer_sizes_test
