// What one decide() costs: time and allocations by pods, images and layers. `decide` prints the
// table, `decide --check` counts allocations against budgets, never time.

#include "agent/core/decide.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "tests/unit/builders.h"

namespace {

std::int64_t allocations = 0;

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* place = std::malloc(bytes == 0 ? 1 : bytes)) {
    return place;
  }
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}

void* operator new[](std::size_t bytes) {
  return counted(bytes);
}

void operator delete(void* place) noexcept {
  std::free(place);
}

void operator delete[](void* place) noexcept {
  std::free(place);
}

void operator delete(void* place, std::size_t) noexcept {
  std::free(place);
}

void operator delete[](void* place, std::size_t) noexcept {
  std::free(place);
}

namespace imagefs_guard::decide_bench {

using testing::digest;
using testing::gib;
using testing::layer;
using testing::TestNode;

/// Storm: no image is here, a third of the layers' blobs are, a tenth of the images is being
/// pulled, the disk takes some of them. Quiet: every image is here and its pods run.
struct Size {
  unsigned pods;
  unsigned images;
  unsigned layers;  // of all images together
  bool storm;
};

NodeSnapshot make_snapshot(const Size& size) {
  TestNode node(gib(100'000), gib(60'000), gib(10'000));
  const unsigned each = size.layers / size.images;
  for (unsigned i = 0; i < size.images; ++i) {
    std::vector<Layer> layers;
    for (unsigned j = 0; j < each; ++j) {
      const unsigned number = i * each + j;
      layers.push_back(layer(number, gib(10), gib(30)));
      if (!size.storm) {
        node.snapshot_.runtime->snapshots.push_back(
            {.chain_id = layers.back().chain_id,
             .unpacked_bytes = gib(30),
             .inodes = 100,
             .parent = j == 0 ? Digest{} : layers[j - 1].chain_id});
      } else if (number % 3 == 0) {
        node.snapshot_.runtime->blobs.push_back({.digest = digest(number), .bytes = gib(10)});
      }
    }
    const std::string name = "registry.example/team/image-" + std::to_string(1000 + i) + ":1";
    if (size.storm && i % 10 == 0) {
      node.lease("lease-" + std::to_string(1000 + i), i);
      node.ingest(i * each + 1, gib(2), gib(10));
    } else if (!size.storm) {
      node.snapshot_.runtime->images.push_back({.name = name,
                                                .target = digest(3'000'000 + i),
                                                .image_id = digest(4'000'000 + i),
                                                .top_chain = layers.back().chain_id});
    }
    node.image(name, i, std::move(layers));
  }
  for (unsigned i = 0; i < size.pods; ++i) {
    node.pod({.name = "pod-" + std::to_string(1000 + i),
              .image = node.snapshot_.resolved[i % size.images].image});
    node.snapshot_.pods->back().containers[0].started = !size.storm;
  }
  return std::move(node.snapshot_);
}

struct Cost {
  double p50_microseconds = 0;
  double p99_microseconds = 0;
  std::int64_t allocations = 0;
};

Decision steady(NodeSnapshot& snapshot, const Policy& policy) {
  // The second tick is what an agent does all day: it knows the pulls, its holds stand.
  const Decision first = decide(snapshot, {}, policy);
  for (const Action& action : first.actions) {
    if (const auto* hold = std::get_if<HoldPull>(&action)) {
      snapshot.holds.push_back(
          {.manifest_digest = hold->manifest_digest, .state = HoldState::Held});
    }
  }
  std::ranges::sort(snapshot.holds, {}, &Hold::manifest_digest);
  return first;
}

std::int64_t count(const Size& size) {
  NodeSnapshot snapshot = make_snapshot(size);
  const Policy policy = default_policy();
  const Memory memory = steady(snapshot, policy).memory;
  const std::int64_t before = allocations;
  const Decision decision = decide(snapshot, memory, policy);
  return allocations - before;
}

Cost measure(const Size& size) {
  constexpr std::size_t kRounds = 500;
  NodeSnapshot snapshot = make_snapshot(size);
  const Policy policy = default_policy();
  const Memory memory = steady(snapshot, policy).memory;
  std::vector<double> times;
  for (std::size_t i = 0; i < kRounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Decision decision = decide(snapshot, memory, policy);
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - start;
    times.push_back(taken.count());
  }
  std::ranges::sort(times);
  return {.p50_microseconds = times[kRounds / 2],
          .p99_microseconds = times[kRounds * 99 / 100],
          .allocations = count(size)};
}

constexpr Size kSizes[] = {
    {10, 20, 200, true},
    {110, 20, 400, true},
    {110, 200, 2'000, true},
    {250, 20, 400, true},
    {250, 200, 2'000, true},
    {250, 200, 4'000, true},
    {10, 20, 200, false},
    {110, 200, 2'000, false},
    {250, 200, 4'000, false},
};

int print_table() {
  std::printf("| node | pods | images | layers | p50 | p99 | allocations |\n");
  std::printf("| --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Size& size : kSizes) {
    const Cost cost = measure(size);
    std::printf("| %s | %u | %u | %u | %.0f µs | %.0f µs | %lld |\n",
                size.storm ? "storm" : "quiet",
                size.pods,
                size.images,
                size.layers,
                cost.p50_microseconds,
                cost.p99_microseconds,
                static_cast<long long>(cost.allocations));
  }
  return 0;
}

struct Budget {
  Size size;
  std::int64_t allocations;
};

constexpr Budget kBudgets[] = {
    {{250, 200, 4'000, true}, 20'000},
    {{250, 200, 4'000, false}, 4'000},
};

int check() {
  int failed = 0;
  for (const Budget& budget : kBudgets) {
    const std::int64_t made = count(budget.size);
    const bool fits = made <= budget.allocations;
    std::printf("%s node: %lld allocations, budget %lld%s\n",
                budget.size.storm ? "storm" : "quiet",
                static_cast<long long>(made),
                static_cast<long long>(budget.allocations),
                fits ? "" : ": over the budget");
    failed += fits ? 0 : 1;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace imagefs_guard::decide_bench

int main(int argument_count, char** arguments) {
  using namespace imagefs_guard::decide_bench;
  return argument_count > 1 && std::strcmp(arguments[1], "--check") == 0 ? check() : print_table();
}
