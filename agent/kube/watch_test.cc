#include "agent/kube/watch.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::watch_test {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr const char* kPods = "/api/v1/namespaces/ns/pods/";

struct World final : WatchHandler {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 7}};
  Watch watch{api, {"pods", "/api/v1/pods", "spec.nodeName=n1"}, *this};
  std::map<std::string, std::string> seen;  // name → resource version
  std::map<std::string, std::string> staged;
  int lists = 0;

  void list_begins() override { staged.clear(); }

  Result<ListMetadata> list_page(std::string_view body) override {
    PodList page = TRY(parse_pod_list(body));
    for (const Pod& pod : page.pods) {
      staged[pod.name] = pod.resource_version;
    }
    return page.metadata;
  }

  void list_ends() override {
    seen = staged;
    ++lists;
  }

  Result<WatchLine> watch_line(std::string_view line) override {
    PodWatchEvent event = TRY(parse_pod_watch_event(line));
    if (event.type == WatchEventType::Added || event.type == WatchEventType::Modified) {
      seen[event.pod.name] = event.pod.resource_version;
    } else if (event.type == WatchEventType::Deleted) {
      seen.erase(event.pod.name);
    }
    return WatchLine{event.type, event.resource_version, event.status};
  }

  void put(const std::string& name, const std::string& node = "n1") {
    server.put(kPods + name,
               R"({"kind":"Pod","metadata":{"namespace":"ns","name":")" + name +
                   R"("},"spec":{"nodeName":")" + node + R"("}})");
  }

  void start() {
    watch.start();
    loop.run_ready();
  }

  std::string names() const {
    std::string text;
    for (const auto& [name, version] : seen) {
      text += (text.empty() ? "" : " ") + name;
    }
    return text;
  }
};

}  // namespace

TEST_CASE("lists in pages, then follows the changes of its selection") {
  World world;
  world.server.set_page_size(2);
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    world.put(name);
  }
  world.put("elsewhere", "n2");
  world.start();
  CHECK(world.watch.synced());
  CHECK(world.names() == "a b c d e");
  CHECK(world.server.watch_count() == 1);
  world.put("f");
  world.server.remove(std::string(kPods) + "a");
  CHECK(world.names() == "b c d e f");
  CHECK_FALSE(world.watch.failing_since().has_value());
}

TEST_CASE("a watch that the server ends goes on from where it was") {
  World world;
  world.put("a");
  world.start();
  world.loop.advance(minutes(5));
  world.put("b");
  world.server.end_watches();
  world.put("c");  // while nobody watches
  world.loop.run_ready();
  CHECK(world.names() == "a b c");
  CHECK(world.lists == 1);
  CHECK(world.watch.restarts().at("closed") == 1);
}

TEST_CASE("a watch that ends at once is a failure: no busy loop") {
  World world;
  world.start();
  const int before = world.server.request_count();
  world.server.end_watches();
  world.loop.run_ready();
  CHECK(world.server.request_count() == before);
  CHECK(world.watch.failing_since().has_value());
  world.loop.advance(seconds(2));
  CHECK(world.server.watch_count() == 1);
}

TEST_CASE("too old a version is listed again, in all three forms") {
  const char* const kLine =
      R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}})"
      "\n";
  for (const int form : {0, 1, 2}) {
    CAPTURE(form);
    World world;
    world.put("a");
    world.put("b");
    world.start();
    world.loop.advance(seconds(10));
    if (form == 0) {  // an ERROR line
      world.server.send_to_watches(kLine);
      world.server.end_watches();
    } else if (form == 1) {  // an ERROR line, and the connection stays
      world.server.send_to_watches(kLine);
    } else {  // HTTP 410 when it watches again
      world.server.end_watches();
    }
    world.server.remove(std::string(kPods) + "a");
    world.put("c");
    world.server.compact();
    world.loop.advance(seconds(5));
    CHECK(world.names() == "b c");
    CHECK(world.lists == 2);
    CHECK(world.server.watch_count() == 1);
    CHECK(world.watch.restarts().at("expired") == 1);
    CHECK_FALSE(world.watch.failing_since().has_value());
    world.put("d");
    CHECK(world.names() == "b c d");
  }
}

TEST_CASE("what is no event ends the watch and lists again") {
  World world;
  world.put("a");
  world.start();
  world.loop.advance(seconds(10));
  world.server.send_to_watches("not json\n");
  world.put("b");  // dropped: the stream can't be trusted any more
  CHECK(world.names() == "a");
  world.loop.advance(seconds(2));
  CHECK(world.names() == "a b");
  CHECK(world.server.watch_count() == 1);
}

TEST_CASE("bookmarks move the version on, so that a quiet watch does not expire") {
  World world;
  world.put("a");
  world.start();
  world.loop.advance(minutes(5));
  world.server.compact();
  world.put("elsewhere", "n2");
  world.server.send_to_watches(
      R"({"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"103"}}})"
      "\n");
  world.server.end_watches();
  world.loop.run_ready();
  CHECK(world.lists == 1);
  CHECK(world.server.watch_count() == 1);
  CHECK(world.server.urls().back().find("resourceVersion=103") != std::string::npos);
}

TEST_CASE("while the server is away, the last answer stays and the attempts get rarer") {
  World world;
  world.put("a");
  world.start();
  const MonotonicTime down = world.loop.now() + seconds(10);
  world.loop.advance(seconds(10));
  world.server.break_next(1000, ErrorKind::Unavailable);
  world.server.end_watches(Error{ErrorKind::Unavailable, "reset"});
  const int before = world.server.request_count();
  world.loop.advance(minutes(10));
  const int attempts = world.server.request_count() - before;
  CHECK(attempts >= 10);
  CHECK(attempts <= 30);
  CHECK(world.names() == "a");
  CHECK(world.watch.synced());
  CHECK(world.watch.failing_since() == down);
  CHECK(world.watch.error().find("no answer") != std::string::npos);

  world.server.break_next(0, ErrorKind::Unavailable);
  world.put("b");
  world.loop.advance(minutes(1));
  CHECK(world.names() == "a b");
  CHECK_FALSE(world.watch.failing_since().has_value());
}

TEST_CASE("silence is a dead connection: the watch starts over") {
  World world;
  world.put("a");
  world.start();
  world.loop.advance(seconds(150));
  world.server.end_watches(Error{ErrorKind::DeadlineExceeded, "idle"});
  world.loop.advance(seconds(2));
  CHECK(world.server.watch_count() == 1);
  CHECK(world.watch.restarts().at("idle") == 1);
  CHECK(world.lists == 1);
}

TEST_CASE("a list that is refused is tried again, from etcd where the cache can't answer") {
  World world;
  world.put("a");
  world.server.fail_next(3, 403);
  world.start();
  CHECK_FALSE(world.watch.synced());
  CHECK(world.watch.error().find("403") != std::string::npos);
  world.loop.advance(seconds(20));
  CHECK(world.watch.synced());
  CHECK(world.server.urls().front().find("resourceVersion=0") != std::string::npos);

  World expired;
  expired.put("a");
  expired.server.fail_next(1, 410);
  expired.start();
  expired.loop.advance(seconds(5));
  CHECK(expired.watch.synced());
  CHECK(expired.server.urls().at(1).find("resourceVersion") == std::string::npos);
}

TEST_CASE("a continue token that expires begins the list again") {
  World world;
  world.server.set_page_size(1);
  for (const char* name : {"a", "b", "c"}) {
    world.put(name);
  }
  world.watch.start();
  world.loop.defer([&] { world.server.compact(); });  // behind the first page
  world.loop.run_ready();
  CHECK_FALSE(world.watch.synced());
  world.loop.advance(seconds(5));
  CHECK(world.names() == "a b c");
}

TEST_CASE("the server's wish to wait is longer than the back-off") {
  World world;
  world.server.fail_next(1, 429, "20");
  world.start();
  const int before = world.server.request_count();
  world.loop.advance(seconds(19));
  CHECK(world.server.request_count() == before);
  world.loop.advance(seconds(2));
  CHECK(world.watch.synced());
}

}  // namespace imagefs_guard::watch_test
