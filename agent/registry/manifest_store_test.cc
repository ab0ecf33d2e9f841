#include "agent/registry/manifest_store.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

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

namespace {

constexpr const char* kEcrHost = "123456789012.dkr.ecr.us-west-2.amazonaws.com";
constexpr const char* kEcrApi = "POST https://api.ecr.us-west-2.amazonaws.com/";
constexpr const char* kLogin = "Basic QVdTOnB3";

/// What a service lets through each second, over all nodes together.
class Limit {
 public:
  Limit(const FakeLoop& loop, int per_second) : loop_(loop), per_second_(per_second) {}

  bool lets_through() {
    const auto second = std::chrono::floor<std::chrono::seconds>(loop_.now());
    taken_ = second == second_ ? taken_ + 1 : 1;
    second_ = second;
    return taken_ <= per_second_;
  }

 private:
  const FakeLoop& loop_;
  int per_second_;
  int taken_ = 0;
  std::chrono::time_point<MonotonicTime::clock, std::chrono::seconds> second_{};
};

/// One agent: asks again each second for what it has not got, as ticks do.
struct FleetNode {
  FleetNode(FakeLoop& the_loop, FakeEnvironment& env, std::uint64_t seed)
      : loop(the_loop),
        client(loop,
               http,
               RegistrySetup{Policy{}, env.environment(), Platform{"linux", "amd64", ""}, seed}) {}

  void ask(const std::vector<std::string>& images) {
    for (const std::string& image : images) {
      if (!complete.contains(image) && in_flight.insert(image).second) {
        store.fetch(image, [this, image](const std::optional<Error>& error) {
          in_flight.erase(image);
          if (!error) {
            complete.insert(image);
          }
        });
      }
    }
  }

  FakeLoop& loop;
  FakeHttp http{loop};
  RegistryClient client;
  ManifestStore store{loop, client, [] {}};
  std::set<std::string> in_flight;
  std::set<std::string> complete;
  int logins = 0;
  std::map<std::string, int> served;  // by URL
};

HttpResponse busy() {
  return {.status = 429, .headers = {}, .body = R"({"errors":[{"code":"TOOMANYREQUESTS"}]})"};
}

}  // namespace

TEST_CASE("store: 25 images on 40 nodes at once, at services that are soon busy") {
  FakeLoop loop;
  FakeEnvironment env{{{"AWS_ACCESS_KEY_ID", "A"}, {"AWS_SECRET_ACCESS_KEY", "S"}}, {}};
  Limit api(loop, 10);
  Limit registry(loop, 100);
  const std::string repository = std::string(kEcrHost) + "/flows";
  std::map<std::string, HttpResponse> pages;
  std::vector<std::string> images;
  for (int i = 0; i < 20; ++i) {
    const FakeImage image("image " + std::to_string(i));
    const std::string tag = "v" + std::to_string(i);
    const std::string base = "https://" + std::string(kEcrHost) + "/v2/flows/";
    pages[base + "manifests/" + tag] = ok(image.manifest, kOciManifestType);
    pages[base + image.manifest_path()] = ok(image.manifest, kOciManifestType);
    pages[base + image.config_path()] = ok(image.config, "application/octet-stream");
    images.push_back(repository + ":" + tag);
    if (i < 5) {
      images.push_back(repository + "@" + to_string(image.digest()));  // the same one, once more
    }
  }
  std::vector<std::unique_ptr<FleetNode>> nodes;
  int throttled = 0;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    nodes.push_back(std::make_unique<FleetNode>(loop, env, seed));
    FleetNode& node = *nodes.back();
    node.http.on(kEcrApi, [&](const HttpRequest&) {
      if (!api.lets_through()) {
        ++throttled;
        return status(400, R"({"__type":"ThrottlingException","message":"Rate exceeded"})");
      }
      ++node.logins;
      return ok(R"({"authorizationData":[{"authorizationToken":"QVdTOnB3",)"
                R"("expiresAt":1767366245}]})");
    });
    node.http.on("GET https://", [&](const HttpRequest& request) {
      if (sent_header(request, "Authorization") != kLogin) {
        return status(401);
      }
      if (!registry.lets_through()) {
        ++refused;
        return busy();
      }
      ++node.served[request.url];
      const auto page = pages.find(request.url);
      return page == pages.end() ? status(404) : page->second;
    });
  }
  std::vector<int> done_after(nodes.size(), -1);
  for (int second = 0; second < 300; ++second) {
    for (const auto& node : nodes) {
      node->ask(images);
    }
    loop.advance(std::chrono::seconds(1));
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (done_after[i] < 0 && nodes[i]->complete.size() == images.size()) {
        done_after[i] = second;
      }
    }
  }
  CHECK(throttled > 0);  // else the test would say nothing
  CHECK(refused > 0);
  CHECK(throttled < 40 * 12);
  CHECK(refused < 40 * 8 * 12);
  for (const auto& node : nodes) {
    CHECK(node->complete.size() == images.size());
    CHECK(node->logins == 1);
    CHECK(node->served.size() >= 40);  // 20 manifests, 20 configs
    for (const auto& [url, times] : node->served) {
      // Two names of one image that are asked for at once may both fetch its config.
      const bool is_manifest = url.find("/manifests/") != std::string::npos;
      CHECK(times <= (is_manifest ? 1 : 2));
    }
  }
  std::ranges::sort(done_after);
  CHECK(done_after.front() >= 0);
  CHECK(done_after.front() < done_after.back());  // not in step
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
