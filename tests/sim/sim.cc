// Random worlds against the real decide(): the promises of the design after every step, liveness
// at the end. `sim --seed=N` replays one world and prints its timeline; `sim --worlds=N` plays N
// of them from a first seed, `--jobs=N` on so many cores. Deterministic: the same seed is the same
// world everywhere.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/commands/world.h"
#include "agent/core/decide.h"
#include "agent/core/threshold.h"
#include "agent/core/words.h"
#include "tests/unit/builders.h"

namespace imagefs_guard {
namespace {

constexpr Duration kStep = std::chrono::milliseconds(250);
/// While nothing changes by itself and the agent orders nothing new.
constexpr Duration kQuietStep = std::chrono::seconds(5);
constexpr std::int64_t kMib = std::int64_t{1} << 20;
constexpr std::int64_t kGib = std::int64_t{1} << 30;

struct Faults {
  bool agent_restarts = false;
  bool absent_parts = false;
};

/// One world in eight is large: what the small ones find, they find sooner.
struct Scale {
  std::uint64_t images;
  std::uint64_t pods;
  std::uint64_t layers;
  std::uint64_t layer_mib;
};

constexpr Scale kSmall{.images = 3, .pods = 4, .layers = 2, .layer_mib = 500};
constexpr Scale kLarge{.images = 6, .pods = 10, .layers = 4, .layer_mib = 900};

struct Scenario {
  WorldConfig world;
  Policy policy;
  Faults faults;
  Duration length{};
  bool disk_is_still = true;  // nobody but pulls writes: the floor must hold
};

WorldImage make_image(unsigned number,
                      Prng& prng,
                      const Scale& scale,
                      const std::vector<Layer>& bases,
                      const std::vector<std::int64_t>& base_bytes) {
  WorldImage image{.name = "image-" + std::to_string(number),
                   .manifest = {.manifest_digest = testing::digest(3'000'000 + number),
                                .config_digest = testing::digest(4'000'000 + number),
                                .config_ref = {},
                                .layers = {}},
                   .true_unpacked_bytes = {}};
  image.manifest.config_ref = "config-" + to_string(image.manifest.config_digest);
  if (!bases.empty() && prng.one_in(2)) {
    const std::size_t base = prng.below(bases.size());
    image.manifest.layers.push_back(bases[base]);
    image.true_unpacked_bytes.push_back(base_bytes[base]);
  }
  const std::uint64_t count = 1 + prng.below(scale.layers);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto compressed = static_cast<std::int64_t>(1 + prng.below(scale.layer_mib)) * kMib;
    const std::int64_t unpacked =
        compressed + compressed * static_cast<std::int64_t>(prng.below(300)) / 100;
    image.manifest.layers.push_back(
        testing::layer(number * 100 + static_cast<unsigned>(i), compressed, unpacked));
    image.true_unpacked_bytes.push_back(unpacked);
  }
  return image;
}

Scenario make_scenario(std::uint64_t seed) {
  Prng prng(seed);
  Scenario scenario;
  WorldConfig& world = scenario.world;
  world.seed = seed;
  const Scale& scale = prng.one_in(8) ? kLarge : kSmall;
  const std::uint64_t gib = (&scale == &kLarge ? 8 : 2) + prng.below(5 * scale.images);
  world.capacity_bytes = static_cast<std::int64_t>(gib) * kGib;
  const auto used = world.capacity_bytes / 100 * static_cast<std::int64_t>(prng.below(80));
  world.fillers = {{.at = {}, .bytes = used}};
  world.kubelet.eviction_hard = {
      {.signal = EvictionSignal::NodefsAvailable,
       .value = {.quantity = 0, .fraction_bits = prng.one_in(2) ? 0x3dcccccdU : 0x3e19999aU}}};
  world.kubelet.serialize_image_pulls = prng.one_in(5);
  if (!world.kubelet.serialize_image_pulls && prng.one_in(4)) {
    world.kubelet.max_parallel_image_pulls = 2 + static_cast<int>(prng.below(3));
  }
  std::vector<Layer> bases;
  std::vector<std::int64_t> base_bytes;
  for (unsigned i = 0; i < prng.below(3); ++i) {
    base_bytes.push_back(static_cast<std::int64_t>(100 + prng.below(900)) * kMib);
    bases.push_back(testing::layer(90'000 + i, base_bytes.back() / 3, base_bytes.back()));
  }
  const std::uint64_t images = 1 + prng.below(scale.images);
  for (unsigned i = 0; i < images; ++i) {
    world.images.push_back(make_image(i + 1, prng, scale, bases, base_bytes));
  }
  const std::uint64_t pods = 1 + prng.below(scale.pods);
  for (std::uint64_t i = 0; i < pods; ++i) {
    WorldPod pod{.name = "pod-" + std::to_string(100 + i),
                 .image = world.images[prng.below(images)].name,
                 .priority = static_cast<std::int32_t>(prng.below(3) * 100),
                 .is_protected = prng.one_in(5),
                 .arrives = std::chrono::milliseconds(prng.below(120'000))};
    if (prng.one_in(6)) {
      pod.deleted = pod.arrives + std::chrono::milliseconds(500 + prng.below(60'000));
    }
    world.pods.push_back(std::move(pod));
  }
  if (prng.one_in(3)) {
    scenario.disk_is_still = false;
    world.fillers.push_back(
        {.at = std::chrono::seconds(30 + prng.below(120)),
         .bytes = world.capacity_bytes / 100 * static_cast<std::int64_t>(prng.below(95))});
  }
  scenario.faults = {.agent_restarts = prng.one_in(3), .absent_parts = prng.one_in(4)};
  scenario.policy = default_policy();
  scenario.policy.clear_after = std::chrono::seconds(20);
  scenario.length = std::chrono::minutes(15);
  return scenario;
}

class Run {
 public:
  Run(std::uint64_t seed, bool verbose)
      : verbose_(verbose),
        scenario_(make_scenario(seed)),
        world_(scenario_.world, scenario_.policy),
        prng_(seed ^ 0x5eedULL) {}

  /// The first broken promise, in words.
  std::optional<std::string> play() {
    std::int64_t floor = 0;
    for (const EvictionThreshold& threshold : scenario_.world.kubelet.eviction_hard) {
      floor = threshold_quantity(threshold.value, scenario_.world.capacity_bytes);
    }
    const bool starts_above = world_.available_bytes() >= floor;
    while (world_.now() < scenario_.length && !broken_.has_value()) {
      const Duration step = next_step();
      world_.advance(step);
      maybe_fail_agent();
      if (agent_down_ > Duration{}) {
        agent_down_ -= step;
      } else {
        tick();
      }
      if (world_.bytes_written_while_held() > 0) {
        broken("a held pull wrote bytes");
      }
      const bool blind = scenario_.faults.absent_parts || scenario_.faults.agent_restarts;
      if (scenario_.disk_is_still && starts_above && !blind &&
          world_.lowest_available_bytes() < floor) {
        broken("free space fell to " + gib_text(world_.lowest_available_bytes()) +
               " GiB, under the floor of " + gib_text(floor));
      }
    }
    if (!broken_.has_value()) {
      check_liveness();
    }
    return broken_;
  }

 private:
  void broken(const std::string& what) {
    if (!broken_.has_value()) {
      broken_ = what + " at " + std::to_string(world_.now().count() / 1000) + " ms";
    }
  }

  [[nodiscard]] Duration next_step() const {
    if (!is_steady_ || agent_down_ > Duration{}) {
      return kStep;
    }
    return std::clamp(world_.quiet_until() - world_.now(), kStep, kQuietStep);
  }

  void maybe_fail_agent() {
    const bool late = world_.now() > std::chrono::minutes(5);  // then faults stop
    if (scenario_.faults.agent_restarts && !late && prng_.one_in(200)) {
      world_.drop_agent();
      memory_ = {};
      is_steady_ = false;
      agent_down_ = std::chrono::milliseconds(prng_.below(20'000));
    }
  }

  void blind(NodeSnapshot& snapshot) {
    if (!scenario_.faults.absent_parts || world_.now() > std::chrono::minutes(5)) {
      return;
    }
    if (prng_.one_in(20)) {
      snapshot.filesystems.reset();
    }
    if (prng_.one_in(20)) {
      snapshot.runtime.reset();
    }
    if (prng_.one_in(20)) {
      snapshot.pods.reset();
    }
    if (prng_.one_in(20)) {
      snapshot.node.reset();
    }
    if (prng_.one_in(20)) {
      snapshot.kubelet.reset();
    }
  }

  void tick() {
    NodeSnapshot snapshot = world_.observe();
    blind(snapshot);
    Decision decision = decide(snapshot, memory_, scenario_.policy);
    if (prng_.one_in(16) && !(decide(snapshot, memory_, scenario_.policy) == decision)) {
      broken("the same arguments gave another decision");
    }
    check(snapshot, decision);
    if (verbose_) {
      print(decision);
    }
    is_steady_ = decision.actions == last_.actions;
    world_.apply(decision);
    memory_ = decision.memory;
    last_ = std::move(decision);
  }

  void check(const NodeSnapshot& snapshot, const Decision& decision) {
    bool protected_waits = false;
    for (const PullReport& pull : decision.pulls) {
      protected_waits |= pull.is_protected && pull.held && pull.verdict != Verdict::NeverFits &&
                         !pull.pods.empty();
    }
    for (const Action& action : decision.actions) {
      if (describe(action).empty() || action_key(action).empty()) {
        broken("an action without words");
      }
      const auto* release = std::get_if<ReleasePull>(&action);
      if (release != nullptr && protected_waits) {
        const auto pull = std::ranges::find(
            decision.pulls, release->manifest_digest, &PullReport::manifest_digest);
        if (pull != decision.pulls.end() && !pull->is_protected) {
          broken("an unprotected pull was released while a protected one waits");
        }
      }
      if (const auto* hold = std::get_if<HoldPull>(&action)) {
        check_hold(snapshot, *hold);
      }
    }
    constexpr std::size_t kActionsMaximum = 100;
    if (decision.actions.size() > kActionsMaximum) {
      broken("more actions than pods and pulls can need");
    }
    const bool sees = snapshot.filesystems && snapshot.runtime && snapshot.pods;
    const bool acts = std::ranges::any_of(decision.actions, [&](const Action& action) {
      const auto* hold = std::get_if<HoldPull>(&action);
      const bool is_new =
          hold != nullptr &&
          std::ranges::find(snapshot.holds, hold->manifest_digest, &Hold::manifest_digest) ==
              snapshot.holds.end();
      return is_new || std::holds_alternative<CancelPull>(action);
    });
    if (!sees && acts) {
      broken("acted on what was not observed");
    }
  }

  void check_hold(const NodeSnapshot& snapshot, const HoldPull& hold) {
    if (!snapshot.pods || !snapshot.runtime || !snapshot.filesystems) {
      return;
    }
    const bool wanted = std::ranges::any_of(*snapshot.pods, [&](const Pod& pod) {
      return !pod.containers[0].started && pod.containers[0].image == hold.image;
    });
    const bool had = std::ranges::any_of(snapshot.holds, [&](const Hold& known) {
      return known.manifest_digest == hold.manifest_digest;
    });
    if (!wanted && !had) {
      broken("held a pull that no unstarted pod waits for");
    }
  }

  void check_liveness() {
    for (const PullReport& pull : last_.pulls) {
      if (pull.held && (pull.verdict == Verdict::Fits || pull.verdict == Verdict::FitsLater)) {
        const bool behind_protected = std::ranges::any_of(
            last_.pulls, [](const PullReport& other) { return other.is_protected && other.held; });
        if (!behind_protected) {
          broken(pull.image + " is still held although it " + to_string(pull.verdict));
        }
      }
    }
    for (const WorldPod& pod : scenario_.world.pods) {
      if (world_.is_running(pod.name) || pod.deleted.has_value()) {
        continue;
      }
      const bool waits = std::ranges::any_of(last_.pulls, [&](const PullReport& pull) {
        return pull.image == pod.image && pull.held;
      });
      const bool evicted = std::ranges::any_of(
          world_.evictions(), [&](const WorldEviction& one) { return one.pod == pod.name; });
      if (!waits && !evicted && scenario_.disk_is_still && !still_backing_off(pod)) {
        broken(pod.name + " neither runs nor waits");
      }
    }
  }

  /// After failed tries the kubelet's own back-off may outlast the scenario.
  [[nodiscard]] bool still_backing_off(const WorldPod& pod) const {
    return std::ranges::any_of(last_.pulls,
                               [&](const PullReport& pull) { return pull.image == pod.image; });
  }

  void print(const Decision& decision) const {
    std::printf("%8.2f s  free %s  %s\n",
                static_cast<double>(world_.now().count()) / 1e6,
                gib_text(world_.available_bytes()).c_str(),
                to_string(decision.node.stage));
    for (const PullReport& pull : decision.pulls) {
      std::printf("            %s %s%s: %s\n",
                  pull.image.c_str(),
                  to_string(pull.state),
                  pull.held ? ", held" : "",
                  pull.sentence.c_str());
    }
    for (const Action& action : decision.actions) {
      if (!std::holds_alternative<HoldPull>(action)) {
        std::printf("          > %s\n", describe(action).c_str());
      }
    }
  }

  bool verbose_;
  Scenario scenario_;
  World world_;
  Prng prng_;
  Memory memory_;
  Decision last_;
  Duration agent_down_{};
  bool is_steady_ = false;  // the agent has ordered the same again
  std::optional<std::string> broken_;
};

std::optional<std::uint64_t> flag(int count, char** arguments, const char* name) {
  const std::string prefix = std::string("--") + name + "=";
  for (int i = 1; i < count; ++i) {
    if (std::strncmp(arguments[i], prefix.c_str(), prefix.size()) == 0) {
      return std::strtoull(arguments[i] + prefix.size(), nullptr, 10);
    }
  }
  return std::nullopt;
}

constexpr std::uint64_t kFailuresMaximum = 10;

/// Every `stride`th world; how many have failed.
std::uint64_t play_some(std::uint64_t first, std::uint64_t end, std::uint64_t stride) {
  std::uint64_t failed = 0;
  for (std::uint64_t seed = first; seed < end && failed < kFailuresMaximum; seed += stride) {
    if (const auto broken = Run(seed, false).play()) {
      std::printf(
          "sim --seed=%llu   # %s\n", static_cast<unsigned long long>(seed), broken->c_str());
      ++failed;
    }
  }
  std::fflush(stdout);
  return failed;
}

int play_worlds(std::uint64_t first, std::uint64_t worlds, std::uint64_t jobs) {
  std::vector<pid_t> children;
  for (std::uint64_t i = 1; i < jobs; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      _exit(static_cast<int>(play_some(first + i, first + worlds, jobs)));
    }
    children.push_back(child);
  }
  std::uint64_t failed = play_some(first, first + worlds, jobs);
  for (const pid_t child : children) {
    int status = 0;
    const bool ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
    failed += ended ? static_cast<std::uint64_t>(WEXITSTATUS(status)) : 1;  // died: one at least
  }
  if (failed == 0) {
    std::printf("%llu worlds passed\n", static_cast<unsigned long long>(worlds));
  } else {
    std::printf("%llu worlds failed; each job ends after %llu\n",
                static_cast<unsigned long long>(failed),
                static_cast<unsigned long long>(kFailuresMaximum));
  }
  return failed == 0 ? 0 : 1;
}

int play_one(std::uint64_t seed) {
  const auto broken = Run(seed, true).play();
  std::printf("seed %llu: %s\n",
              static_cast<unsigned long long>(seed),
              broken ? broken->c_str() : "no promise broken");
  return broken ? 1 : 0;
}

}  // namespace
}  // namespace imagefs_guard

int main(int count, char** arguments) {
  using namespace imagefs_guard;
  if (const auto seed = flag(count, arguments, "seed")) {
    return play_one(*seed);
  }
  return play_worlds(flag(count, arguments, "first").value_or(1),
                     flag(count, arguments, "worlds").value_or(300),
                     flag(count, arguments, "jobs").value_or(1));
}
