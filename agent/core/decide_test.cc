#include "agent/core/decide.h"

#include <doctest/doctest.h>

#include "agent/core/words.h"
#include "tests/unit/builders.h"

namespace imagefs_guard::decide_test {
namespace {

using testing::digest;
using testing::gib;
using testing::layer;
using testing::TestNode;

template <typename T>
std::vector<T> actions_of(const Decision& decision) {
  std::vector<T> found;
  for (const Action& action : decision.actions) {
    if (const T* one = std::get_if<T>(&action)) {
      found.push_back(*one);
    }
  }
  return found;
}

const PullReport& report_of(const Decision& decision, const std::string& image) {
  for (const PullReport& report : decision.pulls) {
    if (report.image == image) {
      return report;
    }
  }
  FAIL("no report of " << image);
  return decision.pulls.front();
}

std::string verdict_of(const Decision& decision, const std::string& image) {
  return to_string(report_of(decision, image).verdict);
}

/// Case 1 without its Job: 20 GiB, 9.5 free, floor 2.0, an image of 3.9 + 9.0.
TestNode storm() {
  TestNode node(gib(2000), gib(950), gib(200));
  node.snapshot_.kubelet->eviction_hard[0].value = {.quantity = 0, .fraction_bits = 0x3dcccccd};
  node.image("etl", 1, {layer(1, gib(200), gib(450)), layer(2, gib(190), gib(450))})
      .pod({.name = "flow-etl", .image = "etl"});
  return node;
}

TEST_CASE("case 1, the storm: held at 0 bytes, told on pod and Job, nobody is drained") {
  TestNode node = storm();
  node.snapshot_.pods->front().controller =
      OwnerReference{.api_version = "batch/v1", .kind = "Job", .name = "flow", .uid = "job-uid"};
  const Decision decision = decide(node.snapshot_, {}, default_policy());

  CHECK(verdict_of(decision, "etl") == "NeverFits");
  const auto holds = actions_of<HoldPull>(decision);
  REQUIRE(holds.size() == 1);
  CHECK(holds[0].config.ref == "config-" + to_string(digest(4'000'001)));
  CHECK(holds[0].config.expected == digest(4'000'001));
  CHECK(holds[0].layers.size() == 2);
  CHECK(actions_of<CancelPull>(decision).empty());

  const auto events = actions_of<EmitEvent>(decision);
  REQUIRE(events.size() == 3);
  CHECK(events[0].regarding.kind == "Pod");
  CHECK(events[1].regarding.kind == "Job");
  CHECK(events[2].regarding.kind == "Node");
  CHECK(events[2].event_reason == "VolumeTooSmall");
  CHECK(events[0].note.starts_with(
      "image etl needs 12.9 GiB at its peak (3.9 compressed + 9.0 unpacked, 2 layers, 0 here); "
      "9.5 GiB free, floor 2.0 GiB; never fits this volume, "));

  const auto taints = actions_of<SetTaint>(decision);
  REQUIRE(taints.size() == 1);
  CHECK(taints[0].effect == TaintEffect::NoSchedule);
  const auto conditions = actions_of<SetCondition>(decision);
  REQUIRE(conditions.size() == 1);
  CHECK(conditions[0].status == ConditionStatus::True);
  CHECK(conditions[0].condition_reason == "PredictedPullExceedsHeadroom");
}

/// An image that nobody uses, of one layer, pulled long ago.
void add_unused(TestNode& node, const std::string& name, unsigned number, std::int64_t bytes) {
  node.unpacked(number);
  for (LayerSnapshot& snapshot : node.snapshot_.runtime->snapshots) {
    if (snapshot.chain_id == digest(1'000'000 + number)) {
      snapshot.unpacked_bytes = bytes;
    }
  }
  for (const std::string& record : {name + ":v1", name + "@sha256:" + std::string(64, 'a')}) {
    node.snapshot_.runtime->images.push_back(
        {.name = record,
         .target = digest(3'000'000 + number),
         .created_at = node.snapshot_.wall_time - std::chrono::hours(number),
         .image_id = digest(4'000'000 + number),
         .top_chain = digest(1'000'000 + number)});
  }
  std::ranges::sort(node.snapshot_.runtime->images, {}, &LocalImage::name);
}

TEST_CASE("case 1: what could be reclaimed counts, and is not enough; 26 GiB would do") {
  TestNode node = storm();
  add_unused(node, "quay.io/old", 50, gib(40));
  Policy policy = default_policy();
  policy.reclaim = true;
  const Decision decision = decide(node.snapshot_, {}, policy);
  CHECK(decision.node.reclaimable_bytes == gib(40));
  CHECK(verdict_of(decision, "etl") == "NeverFits");
  CHECK(report_of(decision, "etl").sentence.ends_with("never fits this volume, 26 GiB would do"));
  CHECK(actions_of<ReclaimImage>(decision).empty());  // in vain: nothing goes
}

/// Case 2: fits at the end, not on the way.
TestNode dip() {
  TestNode node(gib(5000), gib(1600), gib(500));
  node.image("etl", 1, {layer(1, gib(450), gib(800))}).pod({.name = "flow", .image = "etl"});
  return node;
}

TEST_CASE("case 2: fits at the end, not on the way; with more to reclaim it will") {
  TestNode node = dip();
  add_unused(node, "quay.io/old", 50, gib(60));
  Policy policy = default_policy();
  policy.reclaim = true;
  Decision decision = decide(node.snapshot_, {}, policy);
  CHECK(verdict_of(decision, "etl") == "DoesNotFit");
  CHECK(actions_of<ReclaimImage>(decision).empty());

  add_unused(node, "quay.io/older", 60, gib(100));
  decision = decide(node.snapshot_, {}, policy);
  CHECK(verdict_of(decision, "etl") == "FitsAfterReclaim");
  CHECK(report_of(decision, "etl").reclaim_bytes == gib(1250) - gib(1600) + gib(500));
  CHECK(report_of(decision, "etl")
            .sentence.ends_with("fits once 1.5 GiB of unused images are removed"));
  CHECK(actions_of<HoldPull>(decision).size() == 1);
  CHECK(actions_of<ReclaimImage>(decision).size() == 2);
  CHECK(to_string(decision.node.stage) == std::string("warn"));

  // Ordered once; nothing more goes before the disk has been looked at.
  node.snapshot_.taken_at += std::chrono::seconds(1);
  node.snapshot_.runtime_observed_at = node.snapshot_.taken_at;
  const Decision second = decide(node.snapshot_, decision.memory, policy);
  CHECK(actions_of<ReclaimImage>(second).empty());
  CHECK(actions_of<HoldPull>(second).size() == 1);

  // Less came back than was expected: it is not believed. Enough: released.
  node.snapshot_.runtime->images.clear();
  node.snapshot_.runtime->snapshots.clear();
  node.snapshot_.filesystems->front().available_bytes = gib(1600) + gib(149);
  CHECK(verdict_of(decide(node.snapshot_, second.memory, policy), "etl") == "DoesNotFit");
  node.snapshot_.filesystems->front().available_bytes = gib(1600) + gib(150) + 1;
  CHECK(verdict_of(decide(node.snapshot_, second.memory, policy), "etl") == "Fits");
}

TEST_CASE("without the policy's leave nothing is removed, and the node is not waited for") {
  TestNode node = dip();
  add_unused(node, "quay.io/old", 50, gib(160));
  const Decision decision = decide(node.snapshot_, {}, default_policy());
  CHECK(verdict_of(decision, "etl") == "FitsAfterReclaim");
  CHECK(actions_of<ReclaimImage>(decision).empty());
  CHECK(actions_of<HoldPull>(decision).size() == 1);
  CHECK(to_string(decision.node.stage) == std::string("guard"));
}

TEST_CASE("CRI-O and Docker: observe only, and the words say so") {
  for (const char* runtime : {"cri-o://1.34.1", "docker://27.0.3"}) {
    CAPTURE(runtime);
    TestNode node = storm();
    node.hold(1);
    node.snapshot_.node->container_runtime = runtime;
    const Decision decision = decide(node.snapshot_, {}, default_policy());
    CHECK(actions_of<HoldPull>(decision).empty());
    CHECK(actions_of<CancelPull>(decision).empty());
    CHECK(actions_of<SetTaint>(decision).empty());
    CHECK(decision.pulls.empty());
    REQUIRE(actions_of<SetCondition>(decision).size() == 1);
    const SetCondition condition = actions_of<SetCondition>(decision)[0];
    CHECK(condition.condition_reason == "PredictionUnavailable");
    CHECK(condition.message == std::string("observe only: the container runtime is ") + runtime +
                                   ", pulls can be held with containerd alone; 9.5 GiB free, "
                                   "floor 2.0 GiB, headroom 7.5 GiB");
  }
  TestNode node = storm();
  node.snapshot_.node->container_runtime = "containerd://1.7.27";
  CHECK(actions_of<HoldPull>(decide(node.snapshot_, {}, default_policy())).size() == 1);
}

TEST_CASE("a pull says where its sizes come from") {
  TestNode node = storm();
  Layer unknown = layer(3, gib(10), 0);
  unknown.facts.clear();
  node.snapshot_.manifests[0].layers.push_back(unknown);
  const Ledger ledger(*node.snapshot_.runtime, FilesystemKind::Other, true);
  const Demand demand = ledger.demand_of(node.snapshot_.manifests[0]);
  CHECK(size_sources_text(demand) == "2 learned here, 1 prior");
  CHECK(size_sources_text({}).empty());
}

TEST_CASE("the same arguments give the same decision") {
  const TestNode node = storm();
  CHECK(decide(node.snapshot_, {}, default_policy()) ==
        decide(node.snapshot_, {}, default_policy()));
}

TEST_CASE("a hold lives as long as each decision names it, and Events are told once") {
  TestNode node = storm();
  const Decision first = decide(node.snapshot_, {}, default_policy());
  node.hold(1).lease("pull-1", 1);
  node.snapshot_.taken_at += std::chrono::seconds(1);
  node.snapshot_.runtime_observed_at = node.snapshot_.taken_at;
  const Decision second = decide(node.snapshot_, first.memory, default_policy());
  CHECK(actions_of<HoldPull>(second).size() == 1);
  CHECK(actions_of<EmitEvent>(second).empty());
  CHECK(to_string(report_of(second, "etl").state) == std::string("held"));
}

TEST_CASE("space comes back: the pull is released and its bytes are promised") {
  TestNode node = storm();
  node.hold(1).lease("pull-1", 1);
  node.snapshot_.filesystems->front().available_bytes = gib(1600);
  const Decision decision = decide(node.snapshot_, {}, default_policy());
  CHECK(verdict_of(decision, "etl") == "Fits");
  CHECK(actions_of<HoldPull>(decision).empty());
  REQUIRE(actions_of<ReleasePull>(decision).size() == 1);
  CHECK(decision.node.outstanding_bytes == gib(1290));

  // Before its first byte it already counts for the others.
  node.snapshot_.holds.clear();
  node.image("other", 2, {layer(9, gib(100), gib(100))}).pod({.name = "late", .image = "other"});
  const Decision next = decide(node.snapshot_, decision.memory, default_policy());
  CHECK(verdict_of(next, "other") == "FitsLater");
  CHECK(actions_of<HoldPull>(next).size() == 1);
}

TEST_CASE("case 3: two innocent pulls go one after the other") {
  TestNode node(gib(10000), gib(3000), gib(1000));
  const Layer base = layer(1, gib(150), gib(300));
  node.image("x", 1, {base, layer(2, gib(350), gib(600))})
      .image("y", 2, {base, layer(3, gib(250), gib(500))})
      .pod({.name = "first", .image = "x"})
      .pod({.name = "second", .image = "y"});
  const Decision together = decide(node.snapshot_, {}, default_policy());
  CHECK(verdict_of(together, "x") == "Fits");
  CHECK(verdict_of(together, "y") == "FitsLater");
  CHECK(report_of(together, "y").demand.peak_high_bytes() == gib(750));

  // X is unpacked, its blobs are not collected yet.
  node.unpacked(1).unpacked(2).blob(1, gib(150)).blob(2, gib(350));
  node.snapshot_.filesystems->front().available_bytes = gib(1600);
  const Decision unpacked = decide(node.snapshot_, together.memory, default_policy());
  CHECK(verdict_of(unpacked, "y") == "FitsLater");

  node.snapshot_.runtime->blobs.clear();
  node.snapshot_.filesystems->front().available_bytes = gib(2100);
  const Decision settled = decide(node.snapshot_, unpacked.memory, default_policy());
  CHECK(verdict_of(settled, "y") == "Fits");
}

TEST_CASE("case 5: what is downloaded counts for that image only, and only as downloaded") {
  TestNode node(gib(4000), gib(760), gib(400));
  node.image("etl", 1, {layer(1, gib(500), gib(900))})
      .pod({.name = "web", .image = "etl"})
      .blob(1, gib(500));
  const Decision decision = decide(node.snapshot_, {}, default_policy());
  CHECK(report_of(decision, "etl").demand.download_bytes == 0);
  CHECK(verdict_of(decision, "etl") == "NeverFits");
  CHECK(actions_of<HoldPull>(decision).size() == 1);

  // Collected: all is new, still no room.
  node.snapshot_.runtime->blobs.clear();
  node.snapshot_.filesystems->front().available_bytes = gib(1300);
  CHECK(actions_of<HoldPull>(decide(node.snapshot_, {}, default_policy())).size() == 1);
}

TEST_CASE("case 5, the sawtooth: the retry meets a hold, and the rise clears nothing") {
  // The first pull has just failed at 0 bytes free.
  TestNode node(gib(4000), gib(20), gib(400));
  node.image("etl", 1, {layer(1, gib(500), gib(900))}).pod({.name = "web", .image = "etl"});
  const Decision failed = decide(node.snapshot_, {}, default_policy());
  CHECK(to_string(failed.node.stage) == std::string("guard"));

  // What is left: all of its blobs, and a dead download.
  node.blob(1, gib(500)).ingest(77, gib(40), gib(90));
  node.snapshot_.filesystems->front().available_bytes = gib(760);
  node.snapshot_.taken_at += std::chrono::minutes(11);
  node.snapshot_.runtime_observed_at = node.snapshot_.taken_at;
  const Decision risen = decide(node.snapshot_, failed.memory, default_policy());
  CHECK(risen.node.leftover_bytes == gib(500) + gib(40));
  CHECK(risen.node.reclaimable_bytes == 0);
  CHECK(report_of(risen, "etl").demand.download_bytes == 0);
  CHECK(verdict_of(risen, "etl") == "NeverFits");
  CHECK(actions_of<HoldPull>(risen).size() == 1);
  CHECK(to_string(risen.node.stage) == std::string("guard"));

  // Every blob is here, so the retry can't be held: it is cancelled by its lease, the next is met.
  node.hold(1, HoldState::NothingToHold).lease("retry-1", 1);
  const Decision retry = decide(node.snapshot_, risen.memory, default_policy());
  REQUIRE(actions_of<CancelPull>(retry).size() == 1);
  CHECK(actions_of<CancelPull>(retry)[0].lease_ids == std::vector<std::string>{"retry-1"});
  CHECK(actions_of<HoldPull>(retry).size() == 1);
  CHECK(retry.node.leftover_bytes == gib(40));  // the blobs are a live pull's now

  // The runtime has collected the leftovers: all is new, and there is still no room.
  TestNode clean(gib(4000), gib(1300), gib(400));
  clean.image("etl", 1, {layer(1, gib(500), gib(900))}).pod({.name = "web", .image = "etl"});
  const Decision collected = decide(clean.snapshot_, retry.memory, default_policy());
  CHECK(collected.node.leftover_bytes == 0);
  CHECK(actions_of<HoldPull>(collected).size() == 1);
  CHECK(report_of(collected, "etl").demand.download_bytes == gib(500));
}

TEST_CASE("V8: the wall clock is set back, timers go on") {
  TestNode node(gib(2000), gib(1500), gib(200));
  node.snapshot_.node->taints = {{.key = default_policy().taint_key, .effect = "NoSchedule"}};
  Decision decision = decide(node.snapshot_, {}, default_policy());
  for (int minute = 1; minute <= 10; ++minute) {
    CHECK(actions_of<SetTaint>(decision).empty());
    node.snapshot_.taken_at += std::chrono::minutes(1);
    node.snapshot_.runtime_observed_at = node.snapshot_.taken_at;
    node.snapshot_.wall_time +=
        minute == 4 ? Duration(-std::chrono::hours(1)) : Duration(std::chrono::minutes(1));
    decision = decide(node.snapshot_, decision.memory, default_policy());
  }
  REQUIRE(actions_of<SetTaint>(decision).size() == 1);
  CHECK(actions_of<SetTaint>(decision)[0].effect == TaintEffect::None);
}

TEST_CASE("image garbage collection is told when it is due, and nothing is built on it") {
  TestNode node(gib(2000), gib(310), gib(200));
  const Decision due = decide(node.snapshot_, {}, default_policy());
  CHECK(due.node.image_usage_percent == 85);
  REQUIRE(actions_of<SetCondition>(due).size() == 1);
  CHECK(actions_of<SetCondition>(due)[0].message ==
        "3.1 GiB free, floor 2.0 GiB, headroom 1.1 GiB; 85 % used, the kubelet's image garbage "
        "collection is due");
}

TEST_CASE("a pull found under way that would cross the floor is cancelled and its retry held") {
  TestNode node = storm();
  node.lease("pull-1", 1).ingest(1, gib(10), gib(200)).hold(1, HoldState::TooLate);
  const Decision decision = decide(node.snapshot_, {}, default_policy());
  const auto cancels = actions_of<CancelPull>(decision);
  REQUIRE(cancels.size() == 1);
  CHECK(cancels[0].lease_ids == std::vector<std::string>{"pull-1"});
  CHECK(actions_of<HoldPull>(decision).size() == 1);
  // The same lease is not deleted twice in a row.
  CHECK(actions_of<CancelPull>(decide(node.snapshot_, decision.memory, default_policy())).empty());
}

TEST_CASE("a pull that was let go is cancelled only when it stays too large") {
  TestNode node(gib(10000), gib(3000), gib(1000));
  node.image("x", 1, {layer(1, gib(500), gib(900))})
      .pod({.name = "first", .image = "x"})
      .lease("pull-1", 1)
      .ingest(1, gib(200), gib(500));
  Decision decision = decide(node.snapshot_, {}, default_policy());
  // Free bytes have gone that nobody is yet known to have written.
  const auto free_in = [&](std::int64_t available, std::chrono::milliseconds later) {
    node.snapshot_.filesystems->front().available_bytes = available;
    node.snapshot_.taken_at += later;
    node.snapshot_.runtime_observed_at = node.snapshot_.taken_at;
    decision = decide(node.snapshot_, decision.memory, default_policy());
    return actions_of<CancelPull>(decision).size();
  };
  constexpr std::chrono::milliseconds kSoon(1900);
  CHECK(free_in(gib(2100), kSoon) == 0);
  CHECK(report_of(decision, "x").verdict == Verdict::Fits);
  CHECK(free_in(gib(2100), kSoon) == 0);
  CHECK(free_in(gib(2400), kSoon) == 0);  // its bytes have been found
  CHECK(free_in(gib(2100), kSoon) == 0);
  CHECK(free_in(gib(2100), 2 * kSoon) == 1);

  decision = decide(node.snapshot_, {}, default_policy());
  CHECK(actions_of<CancelPull>(decision).size() == 1);  // never let go by us
}

TEST_CASE("at the floor there is no time to look again") {
  TestNode node(gib(10000), gib(3000), gib(1000));
  node.image("x", 1, {layer(1, gib(500), gib(900))})
      .pod({.name = "first", .image = "x"})
      .lease("pull-1", 1)
      .ingest(1, gib(200), gib(500));
  const Decision before = decide(node.snapshot_, {}, default_policy());
  node.snapshot_.filesystems->front().available_bytes = gib(999);
  const Decision decision = decide(node.snapshot_, before.memory, default_policy());
  CHECK(actions_of<CancelPull>(decision).size() == 1);
}

TEST_CASE("what is written already is subtracted once") {
  TestNode node(gib(10000), gib(3000), gib(1000));
  node.image("x", 1, {layer(1, gib(500), gib(900))})
      .pod({.name = "first", .image = "x"})
      .lease("pull-1", 1)
      .ingest(1, gib(200), gib(500));
  const Decision decision = decide(node.snapshot_, {}, default_policy());
  CHECK(report_of(decision, "x").demand.download_bytes == gib(300));
  CHECK(decision.node.outstanding_bytes == gib(1200));
  CHECK(actions_of<HoldPull>(decision).empty());
}

TEST_CASE("an image that is here needs nothing, whatever the pull policy says") {
  TestNode node = storm();
  node.unpacked(1).unpacked(2);
  node.snapshot_.pods->front().containers[0].pull_policy = PullPolicy::Always;
  CHECK(decide(node.snapshot_, {}, default_policy()).pulls.empty());
}

TEST_CASE("unknown size: allowed, loudly; asked again later") {
  TestNode node(gib(2000), gib(950), gib(200));
  node.pod({.name = "web", .image = "secret"});
  const Decision first = decide(node.snapshot_, {}, default_policy());
  REQUIRE(actions_of<FetchManifest>(first).size() == 1);
  CHECK(actions_of<EmitEvent>(first).empty());

  node.snapshot_.resolved = {{.image = "secret",
                              .error = Error{ErrorKind::PermissionDenied, "denied"},
                              .resolved_at = node.snapshot_.taken_at,
                              .failures = 1}};
  const Decision refused = decide(node.snapshot_, first.memory, default_policy());
  CHECK(verdict_of(refused, "secret") == "Unknown");
  CHECK(actions_of<HoldPull>(refused).empty());
  CHECK(actions_of<FetchManifest>(refused).empty());
  REQUIRE(actions_of<EmitEvent>(refused).size() == 1);
  CHECK(actions_of<EmitEvent>(refused)[0].event_reason == "PullSizeUnknown");

  node.snapshot_.taken_at += std::chrono::seconds(31);
  node.snapshot_.runtime_observed_at = node.snapshot_.taken_at;
  CHECK(
      actions_of<FetchManifest>(decide(node.snapshot_, refused.memory, default_policy())).size() ==
      1);
}

TEST_CASE("not observed is not zero: nothing new is held, what is held stays so for a while") {
  struct Case {
    const char* name;
    void (*blind)(NodeSnapshot&);
  };

  const Case cases[] = {
      {"no filesystem", [](NodeSnapshot& s) { s.filesystems.reset(); }},
      {"V6: capacity 0", [](NodeSnapshot& s) { s.filesystems->front().capacity_bytes = 0; }},
      {"no runtime", [](NodeSnapshot& s) { s.runtime.reset(); }},
      {"an old picture of the runtime",
       [](NodeSnapshot& s) { s.runtime_observed_at -= std::chrono::minutes(5); }},
      {"no pods", [](NodeSnapshot& s) { s.pods.reset(); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    TestNode node = storm();
    c.blind(node.snapshot_);
    const Decision fresh = decide(node.snapshot_, {}, default_policy());
    CHECK(actions_of<HoldPull>(fresh).empty());
    CHECK(actions_of<CancelPull>(fresh).empty());
    CHECK(actions_of<SetTaint>(fresh).empty());

    node.hold(1);
    const Decision kept = decide(node.snapshot_, {}, default_policy());
    CHECK(actions_of<HoldPull>(kept).size() == 1);
    CHECK(actions_of<CancelPull>(kept).empty());
    CHECK(actions_of<SetCondition>(kept).empty());
    node.snapshot_.taken_at += std::chrono::seconds(31);
    node.snapshot_.runtime_observed_at += std::chrono::seconds(31);
    const Decision let_go = decide(node.snapshot_, kept.memory, default_policy());
    CHECK(actions_of<HoldPull>(let_go).empty());
    REQUIRE(actions_of<SetCondition>(let_go).size() == 1);
    CHECK(actions_of<SetCondition>(let_go)[0].status == ConditionStatus::Unknown);
    CHECK(actions_of<SetCondition>(let_go)[0].condition_reason == "PredictionUnavailable");
  }
}

TEST_CASE("without the kubelet's thresholds the policy's floor holds") {
  TestNode node = storm();
  node.snapshot_.kubelet.reset();
  const Decision decision = decide(node.snapshot_, {}, default_policy());
  CHECK(decision.node.floor.source == "policy");
  CHECK(decision.node.floor.bytes == 2'147'483'680);
  CHECK(actions_of<HoldPull>(decision).size() == 1);
}

TEST_CASE("a protected pull never waits behind an unprotected one") {
  TestNode node(gib(10000), gib(2600), gib(1000));
  node.image("big", 1, {layer(1, gib(300), gib(600))})
      .image("hub", 2, {layer(2, gib(300), gib(600))})
      .pod({.name = "early", .image = "big"})
      .pod({.name = "hub", .image = "hub", .priority = 2'000'000'000});
  const Decision decision = decide(node.snapshot_, {}, default_policy());
  CHECK(verdict_of(decision, "hub") == "Fits");
  CHECK(verdict_of(decision, "big") == "FitsLater");

  // The protected one does not fit: nobody takes more of the room that it waits for.
  node.snapshot_.filesystems->front().available_bytes = gib(1850);
  node.image("small", 3, {layer(3, gib(10), gib(10))}).pod({.name = "tiny", .image = "small"});
  const Decision tight = decide(node.snapshot_, decision.memory, default_policy());
  CHECK(report_of(tight, "hub").held);
  CHECK(report_of(tight, "small").held);
}

TEST_CASE("a small pull may pass a big one that this node can't take") {
  TestNode node = storm();
  node.image("small", 3, {layer(3, gib(10), gib(10))}).pod({.name = "tiny", .image = "small"});
  const Decision decision = decide(node.snapshot_, {}, default_policy());
  CHECK(verdict_of(decision, "etl") == "NeverFits");
  CHECK(verdict_of(decision, "small") == "Fits");
}

TEST_CASE("hold first, judge when the sizes are known, and make no noise about it") {
  TestNode node(gib(2000), gib(950), gib(200));
  node.image("etl", 1, {layer(1, gib(50), gib(100))}).pod({.name = "flow", .image = "etl"});
  Layer& asked = node.snapshot_.manifests[0].layers[0];
  asked.facts.clear();
  asked.size_pending = true;
  const Decision waits = decide(node.snapshot_, {}, default_policy());
  CHECK(actions_of<HoldPull>(waits).size() == 1);
  CHECK(actions_of<EmitEvent>(waits).empty());
  CHECK(actions_of<SetTaint>(waits).empty());

  // Room for whatever it may be: not held for a moment even.
  node.snapshot_.filesystems->front().available_bytes = gib(1900);
  CHECK(actions_of<HoldPull>(decide(node.snapshot_, {}, default_policy())).empty());

  node.snapshot_.filesystems->front().available_bytes = gib(950);
  node.hold(1);
  asked.size_pending = false;
  asked.facts = {{.source = SizeSource::GzipTrailer, .bytes = gib(100) / 512 * 512}};
  const Decision known = decide(node.snapshot_, waits.memory, default_policy());
  CHECK(actions_of<ReleasePull>(known).size() == 1);
  CHECK(actions_of<HoldPull>(known).empty());
}

TEST_CASE("a hold never keeps the kubelet's last pull slot") {
  TestNode node = storm();
  node.hold(1).lease("pull-1", 1);
  node.snapshot_.kubelet->serialize_image_pulls = true;
  const Decision serial = decide(node.snapshot_, {}, default_policy());
  CHECK(actions_of<CancelPull>(serial).size() == 1);
  CHECK(actions_of<HoldPull>(serial).size() == 1);

  node.snapshot_.kubelet->serialize_image_pulls = false;
  node.snapshot_.kubelet->max_parallel_image_pulls = 2;
  CHECK(actions_of<CancelPull>(decide(node.snapshot_, {}, default_policy())).empty());
}

TEST_CASE("a pull that only a leaving pod wanted is cancelled") {
  TestNode node = storm();
  node.hold(1).lease("pull-1", 1);
  node.snapshot_.pods->front().deleting = true;
  const Decision decision = decide(node.snapshot_, {}, default_policy());
  CHECK(actions_of<CancelPull>(decision).size() == 1);
  CHECK(actions_of<HoldPull>(decision).size() == 1);  // at 0 bytes until the lease is gone

  // Its lease was not seen yet, or the hold is still being opened: the pull must not run meanwhile.
  for (const HoldState state : {HoldState::Held, HoldState::Opening}) {
    TestNode early = storm();
    early.hold(1, state);
    early.snapshot_.pods->front().deleting = true;
    CHECK(actions_of<HoldPull>(decide(early.snapshot_, {}, default_policy())).size() == 1);
    early.snapshot_.pods->clear();
    CHECK(actions_of<HoldPull>(decide(early.snapshot_, {}, default_policy())).empty());
  }

  // Under way and fitting: its container must not start late either.
  TestNode running(gib(10000), gib(5000), gib(1000));
  running.image("x", 1, {layer(1, gib(500), gib(900))})
      .pod({.name = "first", .image = "x"})
      .lease("pull-1", 1)
      .ingest(1, gib(200), gib(500));
  running.snapshot_.pods->front().deleting = true;
  CHECK(actions_of<CancelPull>(decide(running.snapshot_, {}, default_policy())).size() == 1);
  // Another pod waits for the same image: it goes on.
  running.pod({.name = "second", .image = "x"});
  CHECK(actions_of<CancelPull>(decide(running.snapshot_, {}, default_policy())).empty());
}

TEST_CASE("a pod that has started is no reason to hold anything") {
  TestNode node = storm();
  node.snapshot_.pods->front().containers[0].started = true;
  CHECK(decide(node.snapshot_, {}, default_policy()).pulls.empty());
}

TEST_CASE("V7: under the kubelet's own pressure the taint stays, pulls are held") {
  TestNode node = storm();
  node.snapshot_.node->disk_pressure = true;
  node.snapshot_.node->taints = {{.key = default_policy().taint_key, .effect = "NoSchedule"}};
  const Decision decision = decide(node.snapshot_, {}, default_policy());
  CHECK(to_string(decision.node.stage) == std::string("standdown"));
  CHECK(actions_of<SetTaint>(decision).empty());
  CHECK(actions_of<HoldPull>(decision).size() == 1);
}

TEST_CASE("a restarted agent goes on from the node's own taint") {
  TestNode node(gib(2000), gib(1500), gib(200));
  node.snapshot_.node->taints = {{.key = default_policy().taint_key, .effect = "NoSchedule"}};
  const Decision decision = decide(node.snapshot_, {}, default_policy());
  CHECK(to_string(decision.node.stage) == std::string("guard"));
  CHECK(actions_of<SetTaint>(decision).empty());
  node.snapshot_.taken_at += std::chrono::minutes(11);
  node.snapshot_.runtime_observed_at = node.snapshot_.taken_at;
  const Decision later = decide(node.snapshot_, decision.memory, default_policy());
  REQUIRE(actions_of<SetTaint>(later).size() == 1);
  CHECK(actions_of<SetTaint>(later)[0].effect == TaintEffect::None);
}

TEST_CASE("a failed write backs off, a refused one for longer") {
  TestNode node = storm();
  node.snapshot_.outcomes = {{.key = "taint", .error = Error{ErrorKind::Unavailable, "503"}}};
  Decision decision = decide(node.snapshot_, {}, default_policy());
  CHECK(actions_of<SetTaint>(decision).empty());
  node.snapshot_.outcomes.clear();
  node.snapshot_.taken_at += std::chrono::seconds(2);
  node.snapshot_.runtime_observed_at = node.snapshot_.taken_at;
  CHECK(actions_of<SetTaint>(decide(node.snapshot_, decision.memory, default_policy())).size() ==
        1);

  node.snapshot_.outcomes = {{.key = "taint", .error = Error{ErrorKind::PermissionDenied, "403"}}};
  decision = decide(node.snapshot_, {}, default_policy());
  node.snapshot_.outcomes.clear();
  node.snapshot_.taken_at += std::chrono::seconds(50);
  node.snapshot_.runtime_observed_at = node.snapshot_.taken_at;
  CHECK(actions_of<SetTaint>(decide(node.snapshot_, decision.memory, default_policy())).empty());
}

}  // namespace
}  // namespace imagefs_guard::decide_test
