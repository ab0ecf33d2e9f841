#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "agent/io/run_until.h"
#include "agent/runtime/containerd_process.h"
#include "agent/runtime/hold.h"
#include "agent/wire/cri.h"
#include "probes/runtime.h"

namespace imagefs_guard::runtime_containerd_test {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct World {
  World() {
    process.start();
    probe.start([this] { ++changes; });
  }

  /// Looks as the agent's tick does, until the condition holds.
  [[nodiscard]] bool sees(const std::function<bool(const RuntimeState&)>& condition) {
    for (int round = 0; round < 1000; ++round) {
      probe.contribute(snapshot);
      if (snapshot.runtime && condition(*snapshot.runtime)) {
        return true;
      }
      run_for(*loop, milliseconds(20));
    }
    return false;
  }

  void pull(const std::string& name) {
    pull_call = cri->unary("/runtime.v1.ImageService/PullImage",
                           wire::encode_image_spec_request(registry.reference(name)),
                           seconds(60),
                           [](Result<std::string>) {});
  }

  std::unique_ptr<EventLoop> loop = EventLoop::create().value();
  ContainerdProcess process{containerd_binary()};
  TestRegistry registry{*loop};
  std::unique_ptr<GrpcClient> client = make_grpc_client(*loop, process.socket(), "k8s.io").value();
  std::unique_ptr<GrpcClient> cri = make_grpc_client(*loop, process.socket(), "").value();
  Containerd containerd{*client, "overlayfs"};
  HoldKeeper keeper{*loop, containerd, {}};
  RuntimeProbe probe{*loop, containerd};
  std::unique_ptr<GrpcCall> pull_call;
  NodeSnapshot snapshot;
  int changes = 0;
};

bool has_blob(const RuntimeState& state, const Digest& digest) {
  return std::ranges::find(state.blobs, digest, &LocalBlob::digest) != state.blobs.end();
}

}  // namespace

TEST_CASE("a pull is seen from its lease to its image, and a restart is survived") {
  World world;
  REQUIRE(world.sees([](const RuntimeState& state) { return !state.version.empty(); }));
  MESSAGE("containerd " << world.snapshot.runtime->version);
  const TestImage image = make_image('a', {3'000'000, 100'000});
  world.registry.add("x", image);
  // Some two seconds. containerd writes downloads in pieces of 1 MiB.
  world.registry.layer_piece_bytes = 15'000;
  const HoldPull hold = image.hold();
  world.keeper.set_desired({hold});
  world.probe.set_watchful(true);

  // Held: an empty ingest, and a lease that names the manifest.
  world.pull("x");
  REQUIRE(world.sees([&](const RuntimeState& state) {
    return std::ranges::any_of(state.leases, [&](const PullLease& lease) {
      return std::ranges::find(lease.content, image.manifest_digest) != lease.content.end();
    });
  }));
  REQUIRE(world.sees([&](const RuntimeState& state) {
    return state.ingests == std::vector{Ingest{.ref = hold.config.ref}};
  }));

  // Released: downloads move, the first layer's extraction waits for it.
  world.keeper.set_desired({});
  REQUIRE(world.sees([](const RuntimeState& state) {
    return std::ranges::any_of(state.ingests, [](const Ingest& ingest) {
      return ingest.ref.starts_with("layer-") && ingest.offset_bytes > 0;
    });
  }));
  const Digest chain_id = image.layer_digests[0];
  CHECK(world.sees([&](const RuntimeState& state) {
    return std::ranges::any_of(
        state.extracts, [&](const ActiveExtract& extract) { return extract.chain_id == chain_id; });
  }));

  // Done: image and snapshots are here; the layers' blobs go with the lease (discarded).
  const MonotonicTime start = world.loop->now();
  CHECK(world.sees([&](const RuntimeState& state) {
    return state.snapshots.size() == 2 && state.extracts.empty() && state.ingests.empty() &&
           state.leases.empty() &&
           std::ranges::find(state.images, world.registry.reference("x"), &LocalImage::name) !=
               state.images.end();
  }));
  MESSAGE("all seen " << (world.loop->now() - start).count() / 1000 << " ms after the download");
  // Of the blobs those are seen that a listing finds now: with discard_unpacked_layers the layers'
  // went with the lease.
  CHECK(world.sees([&](const RuntimeState& state) {
    std::optional<std::vector<LocalBlob>> listed;
    const auto call = world.containerd.list_blobs(
        [&](Result<wire::BlobList> result) { listed = std::move(result).value().blobs; });
    CHECK(run_until(*world.loop, [&] { return listed.has_value(); }));
    return *listed == state.blobs && has_blob(state, image.manifest_digest);
  }));

  // What the image consists of, from the labels that containerd has put on its blobs.
  CHECK(world.sees([&](const RuntimeState& state) {
    const auto record =
        std::ranges::find(state.images, world.registry.reference("x"), &LocalImage::name);
    if (record == state.images.end() || record->image_id != image.config_digest) {
      return false;
    }
    const auto top =
        std::ranges::find(state.snapshots, record->top_chain, &LayerSnapshot::chain_id);
    return top != state.snapshots.end() && top->parent == chain_id;
  }));

  world.probe.measure({chain_id});
  CHECK(world.sees([&](const RuntimeState& state) {
    const auto found = std::ranges::find(state.snapshots, chain_id, &LayerSnapshot::chain_id);
    return found != state.snapshots.end() && found->unpacked_bytes >= 300'000;
  }));

  world.process.stop();
  run_for(*world.loop, seconds(7));
  world.probe.contribute(world.snapshot);
  CHECK_FALSE(world.snapshot.runtime.has_value());
  CHECK(world.snapshot.probe_errors.contains("runtime"));
  world.process.start();
  CHECK(world.sees([](const RuntimeState& state) { return state.snapshots.size() == 2; }));
  CHECK(world.snapshot.probe_errors.empty());
}

}  // namespace imagefs_guard::runtime_containerd_test

int main(int argc, char** argv) {
  if (imagefs_guard::containerd_binary().empty()) {
    std::puts("skipped: needs root and containerd (Debian package containerd)");
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
