#include "agent/core/findings.h"

#include <doctest/doctest.h>

#include <functional>

#include "agent/core/decide.h"
#include "tests/unit/builders.h"

namespace imagefs_guard::findings_test {
namespace {

using testing::digest;
using testing::gib;
using testing::layer;
using testing::TestNode;

constexpr std::uint32_t kTenPercent = 0x3dcccccd;
constexpr std::uint32_t kFifteenPercent = 0x3e19999a;

/// A node that nothing is to be said about: 100 GiB, half free, hub with all that it needs.
TestNode well_kept() {
  TestNode node(gib(10000), gib(5000), 0);
  node.snapshot_.kubelet->eviction_hard = {
      {.signal = EvictionSignal::NodefsAvailable, .value = {.fraction_bits = kTenPercent}}};
  node.pod({.name = "hub", .image = "quay.io/hub:v1", .namespace_name = "kube-system"});
  Pod& hub = node.snapshot_.pods->front();
  hub.ephemeral_storage_request_bytes = gib(100);
  hub.tolerations = {{.key = Policy{}.taint_key, .exists = true}};
  hub.containers[0].started = true;
  RuntimeState& runtime = *node.snapshot_.runtime;
  node.unpacked(1).unpacked(2);
  runtime.snapshots[0].unpacked_bytes = gib(100);
  runtime.snapshots[1].unpacked_bytes = gib(1500);
  runtime.snapshots[1].parent = runtime.snapshots[0].chain_id;
  runtime.images = {{.name = "quay.io/hub:v1",
                     .target = digest(3'000'001),
                     .image_id = digest(4'000'001),
                     .top_chain = digest(1'000'002)},
                    {.name = "registry.k8s.io/pause:3.10",
                     .target = digest(3'000'002),
                     .pinned = true,
                     .image_id = digest(4'000'002),
                     .top_chain = digest(1'000'001)}};
  return node;
}

/// An agent that looks again and again, ten seconds apart.
class Watcher {
 public:
  explicit Watcher(TestNode& node) : node_(node) {}

  Decision tick() {
    Decision decision = decide(node_.snapshot_, memory_, policy);
    memory_ = decision.memory;
    for (const Action& action : decision.actions) {
      if (const auto* event = std::get_if<EmitEvent>(&action)) {
        if (event->regarding.kind == "Node") {
          told.push_back(event->event_reason);
        }
      }
    }
    return decision;
  }

  Decision pass(Duration time) {
    Decision decision = tick();
    for (Duration at{}; at < time; at += std::chrono::seconds(10)) {
      node_.snapshot_.taken_at += std::chrono::seconds(10);
      node_.snapshot_.runtime_observed_at = node_.snapshot_.taken_at;
      decision = tick();
    }
    return decision;
  }

  Policy policy;
  std::vector<std::string> told;

 private:
  TestNode& node_;
  Memory memory_;
};

std::vector<FindingKind> kinds(const Decision& decision) {
  std::vector<FindingKind> result;
  for (const Finding& finding : decision.memory.audit.findings) {
    result.push_back(finding.kind);
  }
  return result;
}

using Kinds = std::vector<FindingKind>;

TEST_CASE("each finding and what it is about") {
  struct Case {
    const char* name;
    std::function<void(TestNode&)> change;
    Kinds want;
    const char* words;  // of the sentence or the advice
  };

  const std::vector<Case> cases = {
      {"well kept", [](TestNode&) {}, {}, ""},
      {"no threshold for the device",
       [](TestNode& node) { node.snapshot_.kubelet->eviction_hard.clear(); },
       {FindingKind::ThresholdUnset},
       "set evictionHard nodefs.available"},
      {"the images have a device of their own and nodefs.available does not count there",
       [](TestNode& node) { node.snapshot_.filesystems->front().holds_kubelet = false; },
       {FindingKind::ThresholdUnset},
       "set evictionHard imagefs.available"},
      {"the kubelet's own defaults on an own volume: 15 % free and 85 % used are the same",
       [](TestNode& node) {
         node.snapshot_.filesystems->front().holds_kubelet = false;
         node.snapshot_.kubelet->eviction_hard = {{.signal = EvictionSignal::ImagefsAvailable,
                                                   .value = {.fraction_bits = kFifteenPercent}}};
       },
       {FindingKind::GcTooLate},
       "imageGCHighThresholdPercent to 80 or less"},
      {"garbage collection begins where pods are evicted",
       [](TestNode& node) { node.snapshot_.kubelet->image_gc_high_percent = 90; },
       {FindingKind::GcTooLate},
       "evicts pods below 10.0 GiB free"},
      {"garbage collection is off",
       [](TestNode& node) { node.snapshot_.kubelet->image_gc_high_percent = 100; },
       {FindingKind::GcTooLate},
       "from 100 % of the disk"},
      {"no room for the next version of an image",
       [](TestNode& node) { node.snapshot_.filesystems->front().available_bytes = gib(2500); },
       {FindingKind::VolumeTooSmall},
       "the next version of quay.io/hub:v1 may have no room: it takes 16.0 GiB unpacked, and above "
       "the floor 15.0 GiB can be had"},
      {"an image that never fits",
       [](TestNode& node) {
         node.image("huge", 9, {layer(9, gib(5000), gib(9000))});
         node.pod({.name = "flow", .image = "huge"});
       },
       {FindingKind::VolumeTooSmall},
       "image huge needs 140.0 GiB"},
      {"a sandbox image that may be collected",
       [](TestNode& node) { node.snapshot_.runtime->images[1].pinned = false; },
       {FindingKind::SandboxUnpinned},
       "registry.k8s.io/pause:3.10 is not pinned"},
      {"a protected pod without a request",
       [](TestNode& node) { node.snapshot_.pods->front().ephemeral_storage_request_bytes = 0; },
       {FindingKind::ProtectedNoRequest},
       "kube-system/hub"},
      {"one that the kubelet never evicts needs none",
       [](TestNode& node) {
         node.snapshot_.pods->front().ephemeral_storage_request_bytes = 0;
         node.snapshot_.pods->front().priority = 2'000'000'000;
       },
       {},
       ""},
      {"a protected pod that can't come back",
       [](TestNode& node) {
         node.snapshot_.pods->front().tolerations = {
             {.key = "node.kubernetes.io/disk-pressure", .exists = true},
             {.key = Policy{}.taint_key, .value = "guard"},
             {.key = Policy{}.taint_key, .effect = "NoExecute", .exists = true}};
       },
       {FindingKind::ProtectedIntolerant},
       "operator: Exists"},
      {"a toleration of everything",
       [](TestNode& node) { node.snapshot_.pods->front().tolerations = {{.exists = true}}; },
       {},
       ""},
      {"pods that are over, leave or are the kubelet's own don't count",
       [](TestNode& node) {
         Pod pod = node.snapshot_.pods->front();
         pod.tolerations.clear();
         pod.ephemeral_storage_request_bytes = 0;
         node.snapshot_.pods->clear();
         for (int i = 0; i < 3; ++i) {
           pod.name = "hub-" + std::to_string(i);
           pod.phase = i == 0 ? PodPhase::Succeeded : PodPhase::Running;
           pod.deleting = i == 1;
           pod.mirror = i == 2;
           node.snapshot_.pods->push_back(pod);
         }
       },
       {},
       ""},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    TestNode node = well_kept();
    c.change(node);
    const Decision decision = Watcher(node).tick();
    CHECK(kinds(decision) == c.want);
    std::string words;
    for (const Finding& finding : decision.memory.audit.findings) {
      words += finding.sentence + "; " + finding.advice;
      CHECK_FALSE(finding.sentence.empty());
      CHECK_FALSE(finding.advice.empty());
    }
    CAPTURE(words);
    CHECK(words.find(c.words) != std::string::npos);
  }
}

TEST_CASE("what may pass by itself has to last") {
  struct Case {
    const char* name;
    std::function<void(TestNode&)> change;
    FindingKind want;
    Duration after;
  };

  const std::vector<Case> cases = {
      {"compressed layers stay",
       [](TestNode& node) { node.blob(1, gib(400)); },
       FindingKind::BlobsKept,
       std::chrono::minutes(10)},
      {"what failed pulls have left",
       [](TestNode& node) { node.ingest(8, gib(200), gib(400)); },
       FindingKind::Leftovers,
       std::chrono::minutes(10)},
      {"a layer of no image",
       [](TestNode& node) {
         node.unpacked(8);
         node.snapshot_.runtime->snapshots.back().unpacked_bytes = gib(200);
       },
       FindingKind::Leftovers,
       std::chrono::minutes(10)},
      {"images elsewhere",
       [](TestNode& node) { node.snapshot_.filesystems->front().available_bytes = gib(9000); },
       FindingKind::VolumeWrong,
       std::chrono::minutes(1)},
      {"no filesystem under the path",
       [](TestNode& node) { node.snapshot_.filesystems->clear(); },
       FindingKind::VolumeMissing,
       std::chrono::minutes(1)},
      {"a filesystem without a size",
       [](TestNode& node) { node.snapshot_.filesystems->front().capacity_bytes = 0; },
       FindingKind::VolumeMissing,
       std::chrono::minutes(1)},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    TestNode node = well_kept();
    c.change(node);
    Watcher watcher(node);
    CHECK(kinds(watcher.pass(c.after - std::chrono::seconds(20))).empty());
    CHECK(kinds(watcher.pass(std::chrono::seconds(80))) == Kinds{c.want});
    CHECK(watcher.told.size() == 1);
  }
}

TEST_CASE("a passing suspicion begins anew") {
  TestNode node = well_kept();
  Watcher watcher(node);
  node.ingest(8, gib(200), gib(400));
  watcher.pass(std::chrono::minutes(8));
  node.snapshot_.runtime->ingests.clear();
  watcher.pass(std::chrono::minutes(2));
  node.ingest(8, gib(200), gib(400));
  CHECK(kinds(watcher.pass(std::chrono::minutes(8))).empty());
}

TEST_CASE("growth that no image explains") {
  TestNode node = well_kept();
  Watcher watcher(node);
  Filesystem& device = node.snapshot_.filesystems->front();
  CHECK(kinds(watcher.pass(std::chrono::minutes(30))).empty());
  SUBCASE("somebody writes") {
    device.available_bytes -= gib(600);
    const Decision decision = watcher.pass(std::chrono::minutes(2));
    CHECK(kinds(decision) == Kinds{FindingKind::UnexplainedGrowth});
    CHECK(decision.memory.audit.findings[0].sentence.starts_with("6.0 GiB more are in use than "));
    CHECK(decision.memory.audit.growth.size() <= 13);
    // An hour later it is how things are.
    CHECK(kinds(watcher.pass(std::chrono::minutes(70))).empty());
  }
  SUBCASE("an image has come") {
    device.available_bytes -= gib(600);
    node.unpacked(5);
    node.snapshot_.runtime->snapshots.back().unpacked_bytes = gib(600);
    node.snapshot_.runtime->images[1].top_chain = digest(1'000'005);
    CHECK(kinds(watcher.pass(std::chrono::minutes(2))).empty());
  }
  SUBCASE("nobody can tell while a layer is not measured or is being unpacked") {
    device.available_bytes -= gib(600);
    node.snapshot_.runtime->extracts = {{.chain_id = digest(7)}};
    CHECK(kinds(watcher.pass(std::chrono::minutes(2))).empty());
    node.snapshot_.runtime->extracts.clear();
    node.snapshot_.runtime->snapshots[0].unpacked_bytes = -1;
    CHECK(kinds(watcher.pass(std::chrono::minutes(2))).empty());
  }
}

TEST_CASE("a finding is told once, and again only when it comes back much later") {
  TestNode node = well_kept();
  Watcher watcher(node);
  LocalImage& pause = node.snapshot_.runtime->images[1];
  pause.pinned = false;
  watcher.pass(std::chrono::hours(3));
  CHECK(watcher.told == std::vector<std::string>{"SandboxImageUnpinned"});
  pause.pinned = true;
  watcher.pass(std::chrono::minutes(30));
  pause.pinned = false;
  watcher.pass(std::chrono::minutes(30));
  CHECK(watcher.told.size() == 1);
  pause.pinned = true;
  CHECK(kinds(watcher.pass(std::chrono::minutes(70))).empty());
  pause.pinned = false;
  watcher.pass(std::chrono::minutes(2));
  CHECK(watcher.told.size() == 2);
}

TEST_CASE("not observed is no finding, and takes none away") {
  TestNode blind = well_kept();
  blind.snapshot_.kubelet.reset();
  blind.snapshot_.runtime.reset();
  blind.snapshot_.pods.reset();
  blind.snapshot_.filesystems.reset();
  CHECK(kinds(Watcher(blind).pass(std::chrono::minutes(15))).empty());

  TestNode node = well_kept();
  Watcher watcher(node);
  node.snapshot_.runtime->images[1].pinned = false;
  node.snapshot_.kubelet->image_gc_high_percent = 95;
  node.snapshot_.pods->front().tolerations.clear();
  const Kinds all = {
      FindingKind::GcTooLate, FindingKind::SandboxUnpinned, FindingKind::ProtectedIntolerant};
  CHECK(kinds(watcher.tick()) == all);
  node.snapshot_.kubelet.reset();
  node.snapshot_.runtime.reset();
  node.snapshot_.pods.reset();
  CHECK(kinds(watcher.pass(std::chrono::minutes(5))) == all);
}

TEST_CASE("a part that was missing is looked at soon") {
  TestNode node = well_kept();
  node.snapshot_.runtime->images[1].pinned = false;
  const auto runtime = node.snapshot_.runtime;
  node.snapshot_.runtime.reset();
  Watcher watcher(node);
  CHECK(kinds(watcher.tick()).empty());
  node.snapshot_.runtime = runtime;
  CHECK(kinds(watcher.pass(std::chrono::seconds(10))) == Kinds{FindingKind::SandboxUnpinned});
}

}  // namespace
}  // namespace imagefs_guard::findings_test
