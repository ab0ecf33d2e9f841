#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "agent/core/sha256.h"
#include "agent/io/run_until.h"
#include "agent/runtime/containerd_process.h"
#include "agent/runtime/hold.h"
#include "agent/wire/cri.h"

namespace imagefs_guard::containerd_hold_test {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A containerd, a registry, and what the agent has of both.
struct World {
  World() {
    process.start();
    wait_for_containerd();
  }

  void wait_for_containerd() {
    for (int round = 0; round < 400; ++round) {
      const auto answer = wait<std::vector<Ingest>>(
          [this](auto done) { return containerd.list_ingests(std::move(done)); });
      if (answer) {
        return;
      }
      run_for(*loop, milliseconds(50));
    }
    FAIL(process.log());
  }

  template <typename T>
  Result<T> wait(const std::function<Containerd::Call(Containerd::Done<T>)>& start) {
    std::optional<Result<T>> answer;
    const auto running = start([&](Result<T> result) { answer = std::move(result); });
    REQUIRE(run_until(*loop, [&] { return answer.has_value(); }));
    return *std::move(answer);
  }

  /// PullImage, as the kubelet calls it.
  void pull(const std::string& name) {
    pull_result.reset();
    pull_call = cri->unary("/runtime.v1.ImageService/PullImage",
                           wire::encode_image_spec_request(registry.reference(name)),
                           seconds(60),
                           [this](Result<std::string> result) { pull_result = std::move(result); });
  }

  [[nodiscard]] bool pull_ends_within(Duration limit) {
    return run_until(
        *loop, [this] { return pull_result.has_value(); }, limit);
  }

  [[nodiscard]] HoldState state() const {
    const std::vector<Hold> holds = keeper.holds();
    return holds.empty() ? HoldState::Failed : holds[0].state;
  }

  [[nodiscard]] bool becomes(HoldState wanted, Duration limit = seconds(20)) {
    return run_until(
        *loop, [this, wanted] { return state() == wanted; }, limit);
  }

  [[nodiscard]] int layer_fetches(const TestImage& image) const {
    int fetches = 0;
    for (const Digest& digest : image.layer_digests) {
      fetches += registry.fetches(digest);
    }
    return fetches;
  }

  std::vector<Ingest> ingests() {
    return wait<std::vector<Ingest>>(
               [this](auto done) { return containerd.list_ingests(std::move(done)); })
        .value();
  }

  std::unique_ptr<EventLoop> loop = EventLoop::create().value();
  ContainerdProcess process{containerd_binary()};
  TestRegistry registry{*loop};
  std::unique_ptr<GrpcClient> client = make_grpc_client(*loop, process.socket(), "k8s.io").value();
  std::unique_ptr<GrpcClient> cri = make_grpc_client(*loop, process.socket(), "").value();
  Containerd containerd{*client, "overlayfs"};
  HoldKeeper keeper{*loop, containerd, {}};
  std::unique_ptr<GrpcCall> call;
  std::unique_ptr<GrpcCall> pull_call;
  std::optional<Result<std::string>> pull_result;
};

}  // namespace

TEST_CASE("calls: one after the other, many at once, and those that fail") {
  World world;
  const auto version =
      world.wait<std::string>([&](auto done) { return world.containerd.version(std::move(done)); });
  REQUIRE(version);
  MESSAGE("containerd " << *version);
  for (int i = 0; i < 100; ++i) {
    REQUIRE(world.wait<std::vector<PullLease>>(
        [&](auto done) { return world.containerd.list_leases(std::move(done)); }));
  }
  std::vector<Containerd::Call> calls;
  int answers = 0;
  for (int i = 0; i < 40; ++i) {
    calls.push_back(world.containerd.list_snapshots([&](Result<wire::SnapshotList> result) {
      CHECK(result);
      ++answers;
    }));
  }
  CHECK(run_until(*world.loop, [&] { return answers == 40; }));

  const Digest unknown = sha256("unknown");
  CHECK(world
            .wait<LocalBlob>(
                [&](auto done) { return world.containerd.blob_info(unknown, std::move(done)); })
            .error()
            .kind == ErrorKind::NotFound);
  CHECK(world.wait<void>(
      [&](auto done) { return world.containerd.delete_lease("none", std::move(done)); }));
  CHECK(world.wait<void>(
      [&](auto done) { return world.containerd.drop_orphan_directories(std::move(done)); }));
  std::optional<Result<std::string>> nothing;
  world.call = world.cri->unary(
      "/no.Service/Method", "", seconds(5), [&](Result<std::string> r) { nothing = std::move(r); });
  REQUIRE(run_until(*world.loop, [&] { return nothing.has_value(); }));
  CHECK_FALSE(nothing->has_value());

  std::optional<Result<std::string>> fs_info;
  world.call = world.cri->unary(
      "/runtime.v1.ImageService/ImageFsInfo", "", seconds(5), [&](Result<std::string> r) {
        fs_info = std::move(r);
      });
  REQUIRE(run_until(*world.loop, [&] { return fs_info.has_value(); }));
  REQUIRE(*fs_info);
  CHECK(wire::decode_image_fs_info(**fs_info)->size() == 1);
}

TEST_CASE("no socket: the error says so") {
  const std::unique_ptr<EventLoop> loop = EventLoop::create().value();
  const auto client = make_grpc_client(*loop, "/nonexistent/c.sock", "k8s.io").value();
  Containerd containerd(*client, "overlayfs");
  std::optional<Result<std::string>> answer;
  const auto call = containerd.version([&](Result<std::string> r) { answer = std::move(r); });
  REQUIRE(run_until(*loop, [&] { return answer.has_value(); }));
  CHECK(answer->error().kind == ErrorKind::Unavailable);
  CHECK(answer->error().message.find("No such file") != std::string::npos);
  CHECK(make_grpc_client(*loop, std::string(108, 'x'), "").error().kind ==
        ErrorKind::InvalidArgument);
}

TEST_CASE("a held pull waits at 0 layer bytes and goes on when it is released") {
  World world;
  const TestImage image = make_image('a', {300'000, 200'000});
  world.registry.add("x", image);
  const std::vector<HoldPull> wanted = {image.hold()};
  const MonotonicTime named = world.loop->now();
  world.keeper.set_desired(wanted);
  REQUIRE(world.becomes(HoldState::Held));
  MESSAGE("held after " << (world.loop->now() - named).count() << " us");

  world.pull("x");
  CHECK_FALSE(world.pull_ends_within(seconds(4)));
  CHECK(world.layer_fetches(image) == 0);
  const std::vector<Ingest> waiting = world.ingests();
  REQUIRE(waiting.size() == 1);
  CHECK(waiting[0].ref == image.hold().config.ref);
  CHECK(waiting[0].offset_bytes == 0);

  const MonotonicTime released = world.loop->now();
  world.keeper.set_desired({});
  REQUIRE(world.pull_ends_within(seconds(20)));
  MESSAGE("went on and ended after " << (world.loop->now() - released).count() << " us");
  REQUIRE_MESSAGE(*world.pull_result, world.process.log());

  const auto images = world.wait<std::vector<LocalImage>>(
      [&](auto done) { return world.containerd.list_images(std::move(done)); });
  REQUIRE(images);
  CHECK(std::ranges::any_of(*images, [&](const LocalImage& local) {
    return local.name == world.registry.reference("x") && local.target == image.manifest_digest &&
           local.created_at > WallTime{};
  }));
  const auto snapshots = world.wait<wire::SnapshotList>(
      [&](auto done) { return world.containerd.list_snapshots(std::move(done)); });
  CHECK(snapshots->layers.size() == 2);
  CHECK(snapshots->extracts.empty());
  const auto usage = world.wait<wire::SnapshotUsage>([&](auto done) {
    return world.containerd.snapshot_usage(to_string(image.layer_digests[0]), std::move(done));
  });
  CHECK(usage->bytes >= 300'000);
  CHECK(world
            .wait<std::string>([&](auto done) {
              return world.containerd.read_blob(image.config_digest, std::move(done));
            })
            .value() == image.config);

  // It is all here now: a hold has nothing to do, and does no harm.
  HoldPull again = image.hold();
  again.layers.clear();
  world.keeper.set_desired({again});
  const bool present = world.becomes(HoldState::NothingToHold);
  CHECK_MESSAGE(present, world.keeper.holds()[0].error);
}

TEST_CASE("a held pull fails fast when its lease is deleted") {
  World world;
  const TestImage image = make_image('c', {100'000});
  world.registry.add("x", image);
  world.keeper.set_desired({image.hold()});
  REQUIRE(world.becomes(HoldState::Held));
  world.pull("x");
  std::string lease_id;
  REQUIRE(run_until(*world.loop, [&] {
    const auto leases = world.wait<std::vector<PullLease>>(
        [&](auto done) { return world.containerd.list_leases(std::move(done)); });
    for (const PullLease& lease : *leases) {
      const auto resources = world.wait<wire::LeaseResources>([&](auto done) {
        return world.containerd.list_lease_resources(lease.id, std::move(done));
      });
      if (resources && std::ranges::find(resources->content, image.manifest_digest) !=
                           resources->content.end()) {
        lease_id = lease.id;
      }
    }
    return !lease_id.empty();
  }));
  run_for(*world.loop, milliseconds(500));
  REQUIRE(world.wait<void>(
      [&](auto done) { return world.containerd.delete_lease(lease_id, std::move(done)); }));
  const MonotonicTime deleted = world.loop->now();
  REQUIRE(world.pull_ends_within(seconds(20)));
  MESSAGE("failed after " << (world.loop->now() - deleted).count() << " us");
  CHECK_FALSE(world.pull_result->has_value());
  CHECK(world.layer_fetches(image) == 0);
  CHECK(world.state() == HoldState::Held);
}

TEST_CASE("a hold comes back after a restart of containerd") {
  World world;
  const TestImage image = make_image('e', {100'000});
  world.registry.add("x", image);
  world.keeper.set_desired({image.hold()});
  REQUIRE(world.becomes(HoldState::Held));
  world.process.stop();
  REQUIRE(run_until(*world.loop, [&] { return world.state() != HoldState::Held; }));
  world.process.start();
  REQUIRE(world.becomes(HoldState::Held));
  world.wait_for_containerd();
  world.pull("x");
  CHECK_FALSE(world.pull_ends_within(seconds(3)));
  CHECK(world.layer_fetches(image) == 0);
  world.keeper.release_all();
  REQUIRE(world.pull_ends_within(seconds(20)));
  CHECK(*world.pull_result);
}

TEST_CASE("too late for the config: told, or its layers are held") {
  World world;
  const TestImage image = make_image('g', {400'000, 100'000});
  world.registry.add("x", image);
  world.registry.config_piece_bytes = 20;  // some 0.2 s
  world.pull("x");
  REQUIRE(run_until(*world.loop, [&] { return world.registry.fetches(image.config_digest) > 0; }));
  world.keeper.set_desired({image.hold()});
  // Which one is a race: our try keeps containerd 1.6's metadata locked, so the pull can't commit
  // its config until the try has failed, and the next one may be there before its layers. 2.2 may
  // even be done by then.
  REQUIRE(run_until(*world.loop, [&] {
    return world.state() != HoldState::Opening && world.state() != HoldState::Failed;
  }));
  run_for(*world.loop, seconds(2));
  if (world.state() == HoldState::Held) {
    CHECK(world.layer_fetches(image) == 0);
    CHECK_FALSE(world.pull_result.has_value());
  }
  world.keeper.set_desired({});
  REQUIRE(world.pull_ends_within(seconds(20)));
  CHECK(*world.pull_result);
}

TEST_CASE("a running download is too late, and is left alone") {
  World world;
  const TestImage image = make_image('k', {400'000, 100'000});
  world.registry.add("x", image);
  world.registry.layer_piece_bytes = 2'000;  // some two seconds
  world.pull("x");
  const auto downloads = [&] { return world.layer_fetches(image) > 0; };
  const bool running = run_until(*world.loop, downloads, seconds(20));
  REQUIRE_MESSAGE(running, world.process.log());
  world.keeper.set_desired({image.hold()});
  REQUIRE(run_until(*world.loop, [&] { return world.state() == HoldState::TooLate; }));
  REQUIRE(world.pull_ends_within(seconds(20)));
  CHECK(*world.pull_result);
}

TEST_CASE("a release without a pull leaves nothing") {
  World world;
  const TestImage image = make_image('i', {1000});
  world.keeper.set_desired({image.hold()});
  REQUIRE(world.becomes(HoldState::Held));
  CHECK(world.ingests().size() == 1);
  world.keeper.set_desired({});
  run_for(*world.loop, seconds(8));
  CHECK(world.ingests().empty());

  // And the ref is as good as new.
  world.registry.add("x", image);
  world.pull("x");
  REQUIRE(world.pull_ends_within(seconds(20)));
  CHECK(*world.pull_result);
}

}  // namespace imagefs_guard::containerd_hold_test

int main(int argc, char** argv) {
  if (imagefs_guard::containerd_binary().empty()) {
    std::puts("skipped: needs root and containerd (Debian package containerd)");
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
