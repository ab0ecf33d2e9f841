#include "probes/kubelet_config.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::kubelet_config_test {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://kubelet:10250", "", "", 5}};
  NodeSnapshot snapshot;
  int changes = 0;

  void serialize(bool value) {
    server.put("/configz",
               std::string(R"({"kubeletconfig":{"evictionHard":{
      "nodefs.available":"10%"},"serializeImagePulls":)") +
                   (value ? "true" : "false") + "}}");
  }

  void start(KubeletConfigProbe& probe) {
    probe.start([this] { ++changes; });
    loop.run_ready();
  }
};

}  // namespace

TEST_CASE("kubelet config: asked at once, tried again, refreshed every five minutes") {
  World world;
  KubeletConfigProbe probe(world.api, "");
  probe.contribute(world.snapshot);
  CHECK(world.snapshot.probe_errors.at("kubelet") == "not asked yet");
  world.server.break_next(2, ErrorKind::Unavailable);
  world.serialize(true);
  world.start(probe);
  probe.contribute(world.snapshot);
  CHECK_FALSE(world.snapshot.kubelet.has_value());
  CHECK(world.snapshot.probe_errors.at("kubelet") == "kubelet: GET /configz: no answer");

  world.loop.advance(seconds(3));
  probe.contribute(world.snapshot);
  REQUIRE(world.snapshot.kubelet.has_value());
  CHECK(world.snapshot.probe_errors.empty());
  CHECK(world.snapshot.kubelet->serialize_image_pulls);
  CHECK(world.changes == 1);

  world.serialize(false);
  world.loop.advance(minutes(5));
  probe.contribute(world.snapshot);
  REQUIRE(world.snapshot.kubelet.has_value());
  CHECK_FALSE(world.snapshot.kubelet->serialize_image_pulls);
  CHECK(world.changes == 2);
  world.loop.advance(minutes(20));
  CHECK(world.changes == 2);
}

TEST_CASE("kubelet config: the last answer holds for half an hour") {
  World world;
  KubeletConfigProbe probe(world.api, "");
  world.serialize(true);
  world.start(probe);
  world.server.break_next(100'000, ErrorKind::Unavailable);
  world.loop.advance(minutes(30));
  probe.contribute(world.snapshot);
  CHECK(world.snapshot.kubelet.has_value());
  world.loop.advance(minutes(1));
  probe.contribute(world.snapshot);
  CHECK_FALSE(world.snapshot.kubelet.has_value());
  CHECK(world.snapshot.probe_errors.contains("kubelet"));
}

TEST_CASE("kubelet config: what is no configuration is a reason, not an empty one") {
  World world;
  KubeletConfigProbe probe(world.api, "");
  world.server.put("/configz", R"({"kubeletconfig":"nothing"})");
  world.start(probe);
  probe.contribute(world.snapshot);
  CHECK_FALSE(world.snapshot.kubelet.has_value());
  CHECK(world.snapshot.probe_errors.contains("kubelet"));
}

TEST_CASE("kubelet config: from a file when the policy names one") {
  World world;
  const std::string path = "imagefs-guard-kubelet-" + std::to_string(getpid()) + ".yaml";
  KubeletConfigProbe probe(world.api, path);
  world.start(probe);
  probe.contribute(world.snapshot);
  CHECK_FALSE(world.snapshot.kubelet.has_value());
  CHECK(world.snapshot.probe_errors.contains("kubelet"));
  std::ofstream(path) << "apiVersion: kubelet.config.k8s.io/v1beta1\n"
                         "kind: KubeletConfiguration\n"
                         "serializeImagePulls: false\n";
  world.loop.advance(seconds(2));
  std::remove(path.c_str());
  probe.contribute(world.snapshot);
  REQUIRE(world.snapshot.kubelet.has_value());
  CHECK_FALSE(world.snapshot.kubelet->serialize_image_pulls);
  CHECK(world.server.request_count() == 0);
}

}  // namespace imagefs_guard::kubelet_config_test
