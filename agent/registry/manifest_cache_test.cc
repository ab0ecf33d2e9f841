#include "agent/registry/manifest_cache.h"

#include <doctest/doctest.h>

#include <string>

#include "agent/core/sha256.h"

namespace imagefs_guard::manifest_cache_test {

namespace {

ParsedManifest manifest(int number, std::size_t layers = 1) {
  ParsedManifest parsed;
  parsed.image.manifest_digest = sha256(std::to_string(number));
  parsed.image.layers.resize(layers);
  parsed.hints.resize(layers);
  return parsed;
}

MonotonicTime at(int seconds) {
  return MonotonicTime(std::chrono::seconds(seconds));
}

}  // namespace

TEST_CASE("cache: a complete manifest stays complete, its index is remembered") {
  ManifestCache cache;
  ParsedManifest complete = manifest(1);
  complete.image.layers[0].chain_id = sha256("chain");
  cache.add(complete, true, at(1));
  cache.set_index(complete.image.manifest_digest, sha256("index"));
  const std::size_t version = cache.version();
  cache.add(manifest(1), false, at(2));
  CHECK(cache.version() == version);
  cache.add(complete, true, at(3));  // from the content store, which knows no index
  const CachedManifest* found = cache.find(complete.image.manifest_digest);
  REQUIRE(found != nullptr);
  CHECK(found->complete);
  CHECK(found->parsed.image.layers[0].chain_id == sha256("chain"));
  CHECK(found->parsed.image.index_digest == sha256("index"));
  CHECK(cache.version() == version);
}

TEST_CASE("cache: bounded by manifests and by layers, least recently used first") {
  ManifestCache cache;
  for (int i = 0; i < 600; ++i) {
    cache.add(manifest(i), true, at(i));
    cache.touch(sha256("0"), at(i));
  }
  CHECK(cache.manifests().size() == 512);
  CHECK(cache.find(sha256("0")) != nullptr);
  CHECK(cache.find(sha256("1")) == nullptr);
  CHECK(cache.find(sha256("599")) != nullptr);
  for (int i = 1000; i < 1020; ++i) {
    cache.add(manifest(i, 10'000), true, at(i));
  }
  CHECK(cache.manifests().size() <= 10);
  CHECK(cache.find(sha256("1019")) != nullptr);
  cache.drop_unused_since(at(1019));
  CHECK(cache.manifests().size() == 1);
}

TEST_CASE("cache: touching never makes older") {
  ManifestCache cache;
  cache.add(manifest(1), true, at(10));
  cache.touch(sha256("1"), at(5));
  cache.drop_unused_since(at(10));
  CHECK(cache.manifests().size() == 1);
}

}  // namespace imagefs_guard::manifest_cache_test
