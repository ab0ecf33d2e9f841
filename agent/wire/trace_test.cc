#include "agent/wire/trace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <type_traits>

#include "agent/core/decide.h"
#include "agent/wire/trace_fields.h"
#include "tests/unit/builders.h"

namespace imagefs_guard::trace_test {
namespace {

using testing::gib;
using testing::layer;
using testing::TestNode;

/// Sets every member that a trace has to something random.
class Filler {
 public:
  explicit Filler(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  template <typename T>
  void operator()(std::string_view, T& v) {
    fill(v);
  }

  void fill(std::string& v) {
    constexpr const char* kTexts[] = {"", "a", "flows/etl:v1", "\"\\\n\x01", "ä→", "x y"};
    v = kTexts[below(std::size(kTexts))] + std::to_string(below(1000));
  }

  void fill(Digest& v) {
    for (std::uint8_t& byte : v.bytes) {
      byte = static_cast<std::uint8_t>(random_());
    }
  }

  void fill(bool& v) { v = below(2) == 0; }

  template <typename T>
  void fill(std::vector<T>& v) {
    v.resize(below(4));
    for (T& element : v) {
      fill(element);
    }
  }

  template <typename T>
  void fill(std::optional<T>& v) {
    v.reset();
    if (below(3) > 0) {
      fill(v.emplace());
    }
  }

  template <typename K, typename V>
  void fill(std::map<K, V>& v) {
    v.clear();
    for (std::size_t i = below(4); i > 0; --i) {
      K key{};
      fill(key);
      fill(v[key]);
    }
  }

  template <typename R, typename P>
  void fill(std::chrono::duration<R, P>& v) {
    v = std::chrono::duration<R, P>(static_cast<R>(below(1'000'000)));
  }

  template <typename C, typename D>
  void fill(std::chrono::time_point<C, D>& v) {
    D since{};
    fill(since);
    v = std::chrono::time_point<C, D>(since);
  }

  template <typename T>
  requires std::is_enum_v<T>

  void fill(T& v) { v = static_cast<T>(below(std::size(trace::EnumNames<T>::kNames))); }

  template <typename T>
  requires std::is_integral_v<T>

  void fill(T& v) {
    v = static_cast<T>(random_());
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8) {
      v &= T{0x7fffffffffffffff};  // JSON's integers are read as signed
    }
  }

  template <typename T>
  requires std::is_class_v<T>

  void fill(T& v) { trace::fields(*this, v); }

  NodeSnapshot snapshot() {
    NodeSnapshot s;
    fill(s.taken_at);
    fill(s.wall_time);
    fill(s.runtime_observed_at);
    for (int i = 0; i < 30; ++i) {
      change(s);
    }
    return s;
  }

  /// One part of it.
  void change(NodeSnapshot& s) {
    fill(s.taken_at);
    if (below(10) == 0) {
      s.runtime.reset();
    } else if (!s.runtime.has_value()) {
      s.runtime.emplace();
    }
    switch (below(16)) {
      case 0:
        return fill(s.kubelet);
      case 1:
        return fill(s.filesystems);
      case 2:
        return fill(s.pods);
      case 3:
        return fill(s.node);
      case 4:
        return fill(s.resolved);
      case 5:
        return edit(s.manifests);
      case 6:
        return fill(s.holds);
      case 7:
        return fill(s.rates);
      case 8:
        return fill(s.jobs);
      case 9:
        return fill(s.rival_agent);
      case 10:
        return fill(s.pod_checks);
      case 11:
        return fill(s.running);
      case 12:
        return fill(s.outcomes);
      case 13:
        return fill(s.probe_errors);
      default:
        break;
    }
    if (s.runtime.has_value()) {
      fill(s.runtime->version);
      edit(s.runtime->images);
      edit(s.runtime->snapshots);
      edit(s.runtime->blobs);
      fill(s.runtime->leases);
      fill(s.runtime->ingests);
      fill(s.runtime->extracts);
      fill(s.runtime->used_chains);
    }
  }

  /// Something is put in, taken out or changed somewhere.
  template <typename T>
  void edit(std::vector<T>& list) {
    const std::size_t at = below(list.size() + 1);
    if (below(3) == 0 && at < list.size()) {
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), T{});
      fill(list[at]);
    }
  }

 private:
  std::mt19937_64 random_;
};

/// Of what a policy has, a trace has what decide() looks at.
Policy recorded(Policy policy) {
  const Policy plain;
  policy.plain_http_registries = plain.plain_http_registries;
  policy.private_registries = plain.private_registries;
  return policy;
}

std::string line_of(TraceEncoder& encoder, const NodeSnapshot& snapshot, const Memory& memory) {
  const Policy policy = default_policy();
  const Decision decision = decide(snapshot, memory, policy);
  return encoder.encode({.number = 7,
                         .snapshot = snapshot,
                         .memory = memory,
                         .policy = policy,
                         .decision = decision});
}

TEST_CASE("what is written comes back, whatever has changed between the lines") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Filler filler(seed);
    NodeSnapshot snapshot = filler.snapshot();
    TraceEncoder encoder;
    TraceDecoder decoder;
    for (int i = 0; i < 40; ++i) {
      CAPTURE(i);
      filler.change(snapshot);
      Memory memory;
      filler.fill(memory);
      Policy policy;
      filler.fill(policy);
      Decision decision;
      filler.fill(decision.node);
      filler.fill(decision.pulls);
      filler.fill(decision.drains);
      const std::string line = encoder.encode({.number = static_cast<std::uint64_t>(i),
                                               .snapshot = snapshot,
                                               .memory = memory,
                                               .policy = policy,
                                               .decision = decision});
      const auto read = decoder.decode(line);
      REQUIRE(read);
      REQUIRE((*read)->snapshot == snapshot);
      REQUIRE((*read)->memory == memory);
      REQUIRE((*read)->policy == recorded(policy));
      REQUIRE((*read)->decision == encode_decision(decision));
      REQUIRE((*read)->number == static_cast<std::uint64_t>(i));
    }
  }
}

/// 250 pods, 200 images, 4,000 layers, as decide() is measured with.
NodeSnapshot busy_node() {
  TestNode node(gib(20000), gib(9000), gib(2000));
  for (unsigned image = 0; image < 200; ++image) {
    std::vector<Layer> layers;
    for (unsigned i = 0; i < 20; ++i) {
      layers.push_back(layer(image * 20 + i, gib(10), gib(25)));
    }
    node.image("quay.io/team/image-" + std::to_string(image), image, layers);
  }
  for (unsigned i = 0; i < 4000; ++i) {
    node.unpacked(i);
  }
  for (int i = 0; i < 250; ++i) {
    node.pod({.name = "pod-" + std::to_string(i),
              .image = "quay.io/team/image-" + std::to_string(i % 200)});
  }
  return node.snapshot_;
}

TEST_CASE("a busy node's first line is bounded, and the next ones are short") {
  NodeSnapshot snapshot = busy_node();
  Memory memory;
  TraceEncoder encoder;
  TraceDecoder decoder;
  const std::string first = line_of(encoder, snapshot, memory);
  CAPTURE(first.size());
  CHECK(first.size() < 2 << 20);
  snapshot.taken_at += std::chrono::seconds(1);
  snapshot.filesystems->front().available_bytes -= 4096;
  snapshot.runtime->snapshots[2000].unpacked_bytes = 77;
  const std::string second = line_of(encoder, snapshot, memory);
  CAPTURE(second.size());
  CHECK(second.size() < 8 << 10);
  REQUIRE(decoder.decode(first));
  const auto read = decoder.decode(second);
  REQUIRE(read);
  CHECK((*read)->snapshot == snapshot);
  // Decided again, byte for byte.
  const Decision again = decide((*read)->snapshot, (*read)->memory, (*read)->policy);
  CHECK(encode_decision(again) == (*read)->decision);
  encoder.begin_file();
  CHECK(line_of(encoder, snapshot, memory).size() > first.size() / 2);
}

TEST_CASE("what is no trace is one sentence") {
  TraceEncoder encoder;
  const TestNode node(gib(2000), gib(900), gib(200));
  const std::string line = line_of(encoder, node.snapshot_, {});
  const std::string later = line_of(encoder, node.snapshot_, {});

  struct Case {
    std::string line;
    const char* want;
  };

  std::string unknown = line;
  unknown.replace(unknown.find("\"kubelet\""), 9, "\"kubelot\"");
  std::string wrong = line;
  const std::string before = "\"serialize_image_pulls\":false";
  wrong.replace(wrong.find(before), before.size(), "\"serialize_image_pulls\":\"no\"");
  std::string newer = line;
  newer.replace(newer.find("\"v\":1"), 5, "\"v\":2");
  for (const Case& c :
       {Case{"", "it is cut off or no trace"},
        Case{line.substr(0, line.size() / 2), "it is cut off or no trace"},
        Case{"{}", "it is no line of a trace"},
        Case{"[1]", "it is no line of a trace"},
        Case{newer, "it has version 2, this program reads version 1"},
        Case{later, "it is not the beginning of a trace"},
        Case{unknown, "snapshot.kubelot can't be read"},
        Case{wrong, "snapshot.kubelet.serialize_image_pulls can't be read"},
        Case{"{\"v\":1,\"tick\":1,\"policy\":{\"mode\":\"x\"}}", "policy.mode can't be read"},
        Case{"{\"v\":1,\"tick\":1,\"policy\":{\"mode\":\"enforce\"}}",
             "its tick or decision can't be read"}}) {
    CAPTURE(c.want);
    TraceDecoder decoder;
    const auto read = decoder.decode(c.line);
    REQUIRE(!read.has_value());
    CHECK(read.error().message.starts_with(c.want));
  }
  TraceDecoder decoder;
  REQUIRE(decoder.decode(line));
  const auto spliced = decoder.decode(
      "{\"v\":1,\"tick\":1,\"snapshot\":{\"resolved\":{\"head\":9,\"tail\":0,\"items\":[]}}}");
  REQUIRE(!spliced.has_value());
  CHECK(spliced.error().message == "snapshot.resolved can't be read");
}

TEST_CASE("differences are shown where they are") {
  TestNode node(gib(2000), gib(950), gib(200));
  node.image("etl", 1, {layer(1, gib(200), gib(450))}).pod({.name = "flow", .image = "etl"});
  const Decision before = decide(node.snapshot_, {}, default_policy());
  CHECK(decision_differences(encode_decision(before), encode_decision(before), 10).empty());
  node.snapshot_.filesystems->front().available_bytes = gib(700);
  const Decision after = decide(node.snapshot_, {}, default_policy());
  const auto found = decision_differences(encode_decision(before), encode_decision(after), 50);
  CHECK(std::ranges::find(found, "pulls[0].verdict: Fits → DoesNotFit") != found.end());
  const auto few = decision_differences(encode_decision(before), encode_decision(after), 2);
  REQUIRE(few.size() == 3);
  CHECK(few.back().starts_with("and "));
}

TEST_CASE("bytes are no news, pulls are") {
  TestNode node(gib(2000), gib(950), gib(200));
  const auto shape = [&] {
    return decision_shape(node.snapshot_, decide(node.snapshot_, {}, default_policy()));
  };
  const std::uint64_t quiet = shape();
  node.snapshot_.filesystems->front().available_bytes -= 4096;
  CHECK(shape() == quiet);
  node.image("etl", 1, {layer(1, gib(200), gib(450))}).pod({.name = "flow", .image = "etl"});
  CHECK(shape() != quiet);
}

}  // namespace
}  // namespace imagefs_guard::trace_test
