#include "agent/core/reclaim.h"

#include <doctest/doctest.h>

#include "tests/unit/builders.h"

namespace imagefs_guard::reclaim_test {
namespace {

using testing::digest;
using testing::gib;
using testing::layer;
using testing::TestNode;

/// A node with images of known layers. Layer n has chain ID 1,000,000 + n.
class Node : public TestNode {
 public:
  Node() : TestNode(gib(10000), gib(3000), gib(1000)) {}

  Node& layer_here(unsigned number, unsigned parent, std::int64_t bytes) {
    unpacked(number);
    const auto at =
        std::ranges::find(snapshot_.runtime->snapshots, chain(number), &LayerSnapshot::chain_id);
    at->unpacked_bytes = bytes;
    at->parent = parent == 0 ? Digest{} : chain(parent);
    return *this;
  }

  /// Pulled `hours` ago by tag, as containerd's CRI plugin notes it.
  Node& image_here(const std::string& name, unsigned number, unsigned top, int hours) {
    for (const std::string& record : {name + ":v1",
                                      name + "@" + to_string(digest(3'000'000 + number)),
                                      to_string(digest(4'000'000 + number))}) {
      snapshot_.runtime->images.push_back(
          {.name = record,
           .target = digest(3'000'000 + number),
           .created_at = snapshot_.wall_time - std::chrono::hours(hours),
           .image_id = digest(4'000'000 + number),
           .top_chain = chain(top)});
    }
    std::ranges::sort(snapshot_.runtime->images, {}, &LocalImage::name);
    return *this;
  }

  Node& used(unsigned layer_number) {
    snapshot_.runtime->used_chains.push_back(chain(layer_number));
    std::ranges::sort(snapshot_.runtime->used_chains);
    return *this;
  }

  LocalImage& record(const std::string& name) {
    return *std::ranges::find(snapshot_.runtime->images, name, &LocalImage::name);
  }

  [[nodiscard]] Reclaimable reclaimable(const Memory& memory = {}) const {
    return Reclaimable(snapshot_, memory, {});
  }

  static Digest chain(unsigned number) { return digest(1'000'000 + number); }
};

std::vector<std::string> names(const ReclaimChoice& choice) {
  std::vector<std::string> result;
  for (const ReclaimableImage* image : choice.images) {
    result.push_back(image->name.substr(0, image->name.find('@')));
  }
  return result;
}

using Names = std::vector<std::string>;

TEST_CASE("an unused image gives back the layers that nothing else needs") {
  Node node;
  node.layer_here(1, 0, gib(100)).layer_here(2, 1, gib(30)).layer_here(3, 1, gib(50));
  node.image_here("quay.io/a", 1, 2, 10).image_here("quay.io/b", 2, 3, 20);
  node.pod({.name = "web", .image = "quay.io/b:v1"});
  CHECK(node.reclaimable().bytes() == gib(30));
  // Nobody needs the base any more: it goes with both.
  node.snapshot_.pods->clear();
  CHECK(node.reclaimable().bytes() == gib(100) + gib(30) + gib(50));
  CHECK(node.reclaimable().bytes_of(node.reclaimable().images()[0]) == gib(50));
}

TEST_CASE("what stays, whatever it would give back") {
  struct Case {
    const char* name;
    void (*spoil)(Node&);
  };

  const Case cases[] = {
      {"named by a bound pod", [](Node& n) { n.pod({.name = "web", .image = "quay.io/a:v1"}); }},
      {"named by its ID",
       [](Node& n) { n.pod({.name = "web", .image = to_string(digest(4'000'001))}); }},
      {"named by another name of the same manifest",
       [](Node& n) { n.image("mirror/a:v1", 1, {}).pod({.name = "web", .image = "mirror/a:v1"}); }},
      {"a container stands on it", [](Node& n) { n.used(1); }},
      {"pinned", [](Node& n) { n.record("quay.io/a:v1").pinned = true; }},
      {"the sandbox image", [](Node& n) { n.record("quay.io/a:v1").name = "k8s.io/pause:3.10"; }},
      {"just pulled",
       [](Node& n) {
         n.record("quay.io/a:v1").created_at = n.snapshot_.wall_time - std::chrono::seconds(119);
       }},
      {"younger than the kubelet would take",
       [](Node& n) { n.snapshot_.kubelet->image_minimum_gc_age = std::chrono::hours(11); }},
      {"imported, not pulled: it can't be had again",
       [](Node& n) {
         std::erase_if(n.snapshot_.runtime->images, [](const LocalImage& image) {
           return image.name.find("@sha256:") != std::string::npos;
         });
       }},
      {"a local name",
       [](Node& n) {
         for (LocalImage& image : n.snapshot_.runtime->images) {
           if (image.name.starts_with("quay.io")) {
             image.name.replace(0, 7, "localhost");
           }
         }
       }},
      {"nobody knows its layers",
       [](Node& n) {
         for (LocalImage& image : n.snapshot_.runtime->images) {
           image.top_chain = Digest{};
         }
       }},
      {"nobody knows its ID",
       [](Node& n) {
         for (LocalImage& image : n.snapshot_.runtime->images) {
           image.image_id = Digest{};
         }
       }},
      {"a stranger has just come, who may stand on it",
       [](Node& n) {
         n.snapshot_.runtime->images.push_back(
             {.name = "zzz:1", .target = digest(9), .created_at = n.snapshot_.wall_time});
       }},
      {"its size is not measured",
       [](Node& n) { n.snapshot_.runtime->snapshots[0].unpacked_bytes = -1; }},
      {"nobody knows what is unused", [](Node& n) { n.snapshot_.pods.reset(); }},
      {"nobody knows what is here", [](Node& n) { n.snapshot_.runtime.reset(); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Node node;
    node.layer_here(1, 0, gib(100)).image_here("quay.io/a", 1, 1, 10);
    REQUIRE(node.reclaimable().bytes() == gib(100));
    c.spoil(node);
    CHECK(node.reclaimable().bytes() == 0);
    CHECK(node.reclaimable().choose(1).images.empty());
  }
}

TEST_CASE("what a waiting pull shares with an unused image stays") {
  Node node;
  node.layer_here(1, 0, gib(100)).layer_here(2, 1, gib(30)).image_here("quay.io/a", 1, 2, 10);
  node.image("etl", 7, {layer(1, gib(40), gib(100)), layer(9, gib(40), gib(100))});
  const Reclaimable shared(node.snapshot_, {}, {&node.snapshot_.manifests.front()});
  CHECK(shared.bytes() == gib(30));
}

TEST_CASE("an image that would not go, or was used a moment ago, is left alone") {
  Node node;
  node.layer_here(1, 0, gib(100)).image_here("quay.io/a", 1, 1, 10);
  Memory memory;
  memory.image_used_at[digest(4'000'001)] = node.snapshot_.taken_at - std::chrono::minutes(1);
  CHECK(node.reclaimable(memory).bytes() == 0);
  memory.image_used_at[digest(4'000'001)] = node.snapshot_.taken_at - std::chrono::minutes(3);
  CHECK(node.reclaimable(memory).bytes() == gib(100));
  memory.backoff["reclaim:" + to_string(digest(4'000'001))] = {
      .failures = 1, .not_before = node.snapshot_.taken_at + std::chrono::seconds(1)};
  CHECK(node.reclaimable(memory).bytes() == 0);
}

TEST_CASE("the least recently used go first, and no more than it takes") {
  Node node;
  node.layer_here(1, 0, gib(10)).layer_here(2, 0, gib(20)).layer_here(3, 0, gib(50));
  node.image_here("quay.io/oldest", 1, 1, 30)
      .image_here("quay.io/older", 2, 2, 20)
      .image_here("quay.io/old", 3, 3, 10);
  const Reclaimable all = node.reclaimable();
  CHECK(names(all.choose(1)) == Names{"quay.io/oldest"});
  CHECK(names(all.choose(gib(10))) == Names{"quay.io/oldest"});
  CHECK(names(all.choose(gib(25))) == Names{"quay.io/oldest", "quay.io/older"});
  // The big one alone is enough: the others need not go.
  CHECK(names(all.choose(gib(45))) == Names{"quay.io/old"});
  CHECK(all.choose(gib(45)).bytes == gib(50));
  CHECK(all.choose(all.bytes()).images.size() == 3);
  CHECK(all.choose(all.bytes() + 1).images.empty());
  CHECK(all.choose(0).images.empty());

  // Seen in use later than the others: the last to go.
  Memory memory;
  memory.image_used_at[digest(4'000'001)] = node.snapshot_.taken_at - std::chrono::minutes(30);
  CHECK(names(node.reclaimable(memory).choose(1)) == Names{"quay.io/older"});
}

TEST_CASE("a layer comes back with the last image that needs it") {
  Node node;
  node.layer_here(1, 0, gib(100)).layer_here(2, 1, gib(1)).layer_here(3, 1, gib(1));
  node.image_here("quay.io/a", 1, 2, 20).image_here("quay.io/b", 2, 3, 10);
  const Reclaimable both = node.reclaimable();
  CHECK(both.choose(gib(1)).bytes == gib(1));
  CHECK(both.choose(gib(2)).images.size() == 2);
  CHECK(both.choose(gib(2)).bytes == gib(100) + 2 * gib(1));
}

TEST_CASE("parents in a circle end") {
  Node node;
  node.layer_here(1, 2, gib(10)).layer_here(2, 1, gib(10)).image_here("quay.io/a", 1, 1, 10);
  CHECK(node.reclaimable().bytes() == 2 * gib(10));
}

TEST_CASE("layers whose size nobody has asked for") {
  Node node;
  node.layer_here(1, 0, -1).layer_here(2, 0, 5).layer_here(3, 0, -1);
  CHECK(unmeasured_layers(*node.snapshot_.runtime, 8) ==
        std::vector{Node::chain(1), Node::chain(3)});
  CHECK(unmeasured_layers(*node.snapshot_.runtime, 1).size() == 1);
}

}  // namespace
}  // namespace imagefs_guard::reclaim_test
