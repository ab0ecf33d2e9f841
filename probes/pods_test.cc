#include "probes/pods.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::pods_test {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 3}};
  PodsProbe probe{api, "n1"};
  NodeSnapshot snapshot;
  int changes = 0;

  static std::string path(const std::string& name) { return "/api/v1/namespaces/ns/pods/" + name; }

  void put(const std::string& name, const std::string& uid, const std::string& phase = "Pending") {
    server.put(path(name),
               R"({"kind":"Pod","metadata":{"namespace":"ns","name":")" + name + R"(","uid":")" +
                   uid + R"("},"spec":{"nodeName":"n1","containers":[
      {"name":"c","image":"registry.example/i:1"}]},"status":{"phase":")" +
                   phase + R"("}})");
  }

  void start() {
    probe.start([this] { ++changes; });
    loop.run_ready();
  }

  /// "a b", or "-" for an absent part.
  std::string pods() {
    probe.contribute(snapshot);
    if (!snapshot.pods.has_value()) {
      return "-";
    }
    std::string text;
    for (const Pod& pod : *snapshot.pods) {
      text += (text.empty() ? "" : " ") + pod.name;
    }
    return text;
  }

  Pod pod(std::size_t index) {
    probe.contribute(snapshot);
    REQUIRE(snapshot.pods.has_value());
    return snapshot.pods->at(index);
  }
};

}  // namespace

TEST_CASE("pods: absent with a reason until they are listed") {
  World world;
  CHECK(world.pods() == "-");
  CHECK(world.snapshot.probe_errors.at("pods") == "not listed yet");
  world.server.fail_next(1, 403);
  world.start();
  CHECK(world.pods() == "-");
  CHECK(world.snapshot.probe_errors.at("pods").find("403") != std::string::npos);
  world.loop.advance(seconds(5));
  CHECK(world.pods().empty());
  CHECK(world.snapshot.probe_errors.empty());
  CHECK(world.changes == 1);
}

TEST_CASE("pods: a bound pod asks for a tick at once, with the time when it was first seen") {
  World world;
  world.put("b", "u1");
  world.start();
  const MonotonicTime listed = world.loop.now();
  world.loop.advance(seconds(3));
  world.changes = 0;
  world.put("a", "u2");
  CHECK(world.changes == 1);
  CHECK(world.pods() == "a b");
  CHECK(world.pod(0).observed_at == listed + seconds(3));
  CHECK(world.pod(1).observed_at == listed);

  world.loop.advance(seconds(3));
  world.put("a", "u2", "Running");
  CHECK(world.changes == 2);
  CHECK(world.pod(0).observed_at == listed + seconds(3));
  CHECK(world.pod(0).phase == PodPhase::Running);
  world.put("a", "u3");  // deleted and created again, seen as one change
  CHECK(world.pod(0).observed_at == listed + seconds(6));
  world.server.remove(World::path("a"));
  CHECK(world.changes == 4);
  CHECK(world.pods() == "b");
}

TEST_CASE("pods: a new version without news asks for no tick, but is in the snapshot") {
  World world;
  world.put("a", "u1");
  world.start();
  const std::string before = world.pod(0).resource_version;
  world.changes = 0;
  world.put("a", "u1");
  CHECK(world.changes == 0);
  CHECK(world.pod(0).resource_version != before);
}

TEST_CASE("pods: a new list keeps the times and drops who is gone") {
  World world;
  world.put("a", "u1");
  world.put("b", "u2");
  world.start();
  const MonotonicTime listed = world.loop.now();
  world.loop.advance(seconds(10));
  world.server.end_watches();
  world.server.remove(World::path("b"));
  world.server.remove(World::path("a"));
  world.put("a", "u1");
  world.put("c", "u3");
  world.server.compact();
  world.changes = 0;
  world.loop.advance(seconds(5));
  CHECK(world.pods() == "a c");
  CHECK(world.pod(0).observed_at == listed);
  CHECK(world.pod(1).observed_at > listed + seconds(10));
  CHECK(world.changes == 1);
}

TEST_CASE("pods: the last answer holds for five minutes without a server") {
  World world;
  world.put("a", "u1");
  world.start();
  world.loop.advance(seconds(10));
  world.server.break_next(1000, ErrorKind::Unavailable);
  world.server.end_watches(Error{ErrorKind::Unavailable, "reset"});
  world.loop.advance(minutes(5));
  CHECK(world.pods() == "a");
  world.loop.advance(seconds(1));
  CHECK(world.pods() == "-");
  CHECK(world.snapshot.probe_errors.at("pods").starts_with("no answer for 5 min: "));
  world.server.break_next(0, ErrorKind::Unavailable);
  world.loop.advance(minutes(1));
  CHECK(world.pods() == "a");
  CHECK(world.snapshot.probe_errors.empty());
}

}  // namespace imagefs_guard::pods_test
