#include "agent/registry/manifest_store.h"

#include <doctest/doctest.h>

#include <string>

#include "agent/core/sha256.h"
#include "tests/unit/fake_http.h"
#include "tests/unit/fake_loop.h"
#include "tests/unit/fake_registry.h"

namespace imagefs_guard::manifest_store_test {

namespace {

using std::chrono::minutes;

struct Fixture {
  FakeLoop loop;
  FakeHttp http{loop};
  FakeEnvironment env;
  RegistryClient client{
      loop, http, RegistrySetup{Policy{}, env.environment(), Platform{"linux", "amd64", ""}, 1}};
  int changes = 0;
  ManifestStore store{loop, client, [this] { ++changes; }};
  NodeSnapshot snapshot;

  std::optional<Error> fetch(const std::string& image) {
    std::optional<Error> outcome;
    bool called = false;
    store.fetch(image, [&](std::optional<Error> error) {
      called = true;
      outcome = std::move(error);
    });
    CHECK(!called);
    loop.run_ready();
    CHECK(called);
    return outcome;
  }

  const ResolvedImage& resolved(const std::string& image) {
    store.contribute(snapshot);
    for (const ResolvedImage& one : snapshot.resolved) {
      if (one.image == image) {
        return one;
      }
    }
    FAIL("not resolved: " << image);
    return snapshot.resolved[0];
  }
};

}  // namespace

TEST_CASE("store: an image, from asked to complete") {
  Fixture f;
  const FakeImage image("a");
  serve(f.http, "https://reg.io/v2/app", "v1", image);
  f.store.fetch("reg.io/app:v1", [](const std::optional<Error>&) {});
  CHECK(f.resolved("reg.io/app:v1").in_flight);
  CHECK(!f.resolved("reg.io/app:v1").manifest_digest);
  f.loop.run_ready();
  const ResolvedImage& resolved = f.resolved("reg.io/app:v1");
  CHECK(!resolved.in_flight);
  CHECK(resolved.manifest_digest == image.digest());
  CHECK(!resolved.error);
  CHECK(resolved.resolved_at == f.loop.now());
  REQUIRE(f.snapshot.manifests.size() == 1);
  CHECK(!f.snapshot.manifests[0].layers[1].chain_id.is_zero());
  CHECK(f.store.is_complete(image.digest()));
  CHECK(f.changes >= 2);  // for the manifest, and again for its config
}

TEST_CASE("store: the manifest is in the snapshot while the config is awaited") {
  Fixture f;
  const FakeImage image("a");
  serve(f.http, "https://reg.io/v2/app", "v1", image);
  f.http.hang("GET https://reg.io/v2/app/" + image.config_path());
  f.store.fetch("reg.io/app:v1", [](const std::optional<Error>&) {});
  f.loop.run_ready();
  const ResolvedImage& resolved = f.resolved("reg.io/app:v1");
  CHECK(resolved.in_flight);
  CHECK(resolved.manifest_digest == image.digest());
  REQUIRE(f.snapshot.manifests.size() == 1);
  CHECK(f.snapshot.manifests[0].config_ref == "config-" + to_string(sha256(image.config)));
  CHECK(f.snapshot.manifests[0].layers[1].chain_id.is_zero());
  CHECK(!f.store.is_complete(image.digest()));
  f.loop.advance(minutes(1));  // the config never comes: the manifest stays, with the reason
  const ResolvedImage& failed = f.resolved("reg.io/app:v1");
  CHECK(!failed.in_flight);
  CHECK(failed.manifest_digest == image.digest());
  CHECK(failed.error->message == "config: reg.io: timed out");
  CHECK(failed.failures == 1);
}

TEST_CASE("store: failures are counted, success forgets them, old answers stay meanwhile") {
  Fixture f;
  f.http.reply("GET https://reg.io/", status(503));
  CHECK(f.fetch("reg.io/app:v1")->kind == ErrorKind::Unavailable);
  CHECK(f.fetch("reg.io/app:v1")->kind == ErrorKind::Unavailable);
  CHECK(f.resolved("reg.io/app:v1").failures == 2);
  CHECK(!f.resolved("reg.io/app:v1").manifest_digest);
  const FakeImage image("a");
  serve(f.http, "https://reg.io/v2/app", "v1", image);
  CHECK(!f.fetch("reg.io/app:v1"));
  CHECK(f.resolved("reg.io/app:v1").failures == 0);
  f.loop.advance(minutes(6));
  f.http.reply("GET https://reg.io/v2/app/manifests/v1", status(503));
  CHECK(f.fetch("reg.io/app:v1").has_value());
  CHECK(f.resolved("reg.io/app:v1").manifest_digest == image.digest());
  CHECK(f.resolved("reg.io/app:v1").error.has_value());
}

TEST_CASE("store: sorted, and left alone when nothing has changed") {
  Fixture f;
  for (const char* name : {"c", "a", "b"}) {
    serve(f.http, std::string("https://reg.io/v2/") + name, "v1", FakeImage(name));
    CHECK(!f.fetch(std::string("reg.io/") + name + ":v1"));
  }
  f.store.contribute(f.snapshot);
  REQUIRE(f.snapshot.resolved.size() == 3);
  CHECK(f.snapshot.resolved[0].image == "reg.io/a:v1");
  CHECK(f.snapshot.resolved[2].image == "reg.io/c:v1");
  CHECK(f.snapshot.manifests[0].manifest_digest < f.snapshot.manifests[1].manifest_digest);
  f.snapshot.resolved[0].failures = 99;
  f.store.contribute(f.snapshot);
  CHECK(f.snapshot.resolved[0].failures == 99);
  NodeSnapshot other;
  f.store.contribute(other);
  CHECK(other.manifests.size() == 3);
}

TEST_CASE("store: manifests from the node's content store") {
  Fixture f;
  ImageManifest image;
  image.manifest_digest = sha256("here");
  image.layers.resize(1);
  f.store.add_from_content_store(image);
  f.store.contribute(f.snapshot);
  REQUIRE(f.snapshot.manifests.size() == 1);
  CHECK(f.snapshot.manifests[0] == image);
  CHECK(!f.fetch("reg.io/app@" + to_string(image.manifest_digest)));
  CHECK(f.http.requests.empty());  // known by its digest: no registry is asked
  CHECK(f.changes > 0);
}

TEST_CASE("store: what nobody uses is dropped, what pods and the runtime name stays") {
  Fixture f;
  for (const char* name : {"pod", "lease", "index", "nobody"}) {
    serve(f.http, std::string("https://reg.io/v2/") + name, "v1", FakeImage(name));
    CHECK(!f.fetch(std::string("reg.io/") + name + ":v1"));
  }
  f.client.cache().set_index(FakeImage("index").digest(), sha256("an index"));
  f.snapshot.pods.emplace();
  f.snapshot.pods->push_back(Pod{.containers = {Container{.image = "reg.io/pod:v1"}}});
  f.snapshot.runtime.emplace();
  f.snapshot.runtime->images.push_back(LocalImage{.name = "x", .target = sha256("an index")});
  f.snapshot.runtime->leases.push_back(
      PullLease{.id = "l", .content = {FakeImage("lease").digest()}});
  for (int i = 0; i < 40; ++i) {
    f.loop.advance(minutes(1));
    f.store.contribute(f.snapshot);
  }
  CHECK(f.snapshot.resolved.size() == 1);
  CHECK(f.snapshot.manifests.size() == 3);
  CHECK(!f.store.is_complete(FakeImage("nobody").digest()));
}

TEST_CASE("store: bounded, and a few fetches at a time") {
  Fixture f;
  f.http.hang("GET https://reg.io/");
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    f.store.fetch("reg.io/app:v" + std::to_string(i), [&refused](std::optional<Error> error) {
      refused += error && error->kind == ErrorKind::ResourceExhausted ? 1 : 0;
    });
  }
  f.loop.run_ready();
  CHECK(refused == 600 - 512);
  CHECK(f.http.requests.size() == 8);
  f.loop.advance(std::chrono::seconds(21));
  CHECK(f.http.requests.size() == 16);
}

TEST_CASE("store: gone with fetches under way") {
  FakeLoop loop;
  FakeHttp http{loop};
  FakeEnvironment env;
  RegistryClient client{
      loop, http, RegistrySetup{Policy{}, env.environment(), Platform{"linux", "amd64", ""}, 1}};
  serve(http, "https://reg.io/v2/app", "v1", FakeImage("a"));
  auto store = std::make_unique<ManifestStore>(loop, client, [] {});
  bool called = false;
  store->fetch("reg.io/app:v1", [&called](const std::optional<Error>&) { called = true; });
  store->fetch("reg.io/app:v2", [&called](const std::optional<Error>&) { called = true; });
  store.reset();
  loop.run_ready();
  CHECK(!called);
}

}  // namespace imagefs_guard::manifest_store_test
