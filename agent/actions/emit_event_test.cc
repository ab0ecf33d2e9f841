#include "agent/actions/emit_event.h"

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/wire/json.h"
#include "tests/unit/fake_kube_api.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard::emit_event_test {
namespace {

using std::chrono::minutes;

constexpr const char* kEvents = "/apis/events.k8s.io/v1/namespaces/ns/events/";

EmitEvent held(const std::string& note) {
  EmitEvent event;
  event.regarding = {"v1", "Pod", "ns", "p", "uid-p"};
  event.warning = true;
  event.event_reason = "PullHeld";
  event.event_action = "Hold";
  event.note = note;
  return event;
}

struct World {
  FakeLoop loop;
  FakeKubeApi server{loop};
  KubeApi api{loop, server, {"https://api", "", "", 1}};
  std::unique_ptr<EmitEventRunner> runner = std::make_unique<EmitEventRunner>(api, "n1");
  int done = 0;
  std::optional<Error> error;

  void begin(const EmitEvent& event) {
    runner->start(event, [this](std::optional<Error> outcome) {
      ++done;
      error = std::move(outcome);
    });
  }

  void emit(const EmitEvent& event) {
    begin(event);
    loop.run_ready();
  }

  std::vector<std::string> events() const { return server.paths(kEvents); }

  /// How often the Event at `path` happened, by its series.
  std::int64_t count(const std::string& path) const {
    const Result<JsonDocument> document = parse_json(server.get(path));
    REQUIRE(document);
    return document->root()["series"]["count"].integer().value_or(1);
  }
};

}  // namespace

TEST_CASE("an Event is created with its origin and object") {
  World world;
  world.emit(held("needs 12.9 GiB"));
  CHECK_FALSE(world.error.has_value());
  REQUIRE(world.events().size() == 1);
  const Result<JsonDocument> document = parse_json(world.server.get(world.events()[0]));
  REQUIRE(document);
  const JsonView event = document->root();
  CHECK(event["note"].text() == "needs 12.9 GiB");
  CHECK(event["regarding"]["uid"].text() == "uid-p");
  CHECK(event["reportingInstance"].text() == "n1");
  CHECK(event["metadata"]["name"].text().starts_with("p.18"));
}

TEST_CASE("the same again counts up, anything else is an Event of its own") {
  World world;
  world.emit(held("one"));
  const std::string first = world.events().at(0);
  world.emit(held("one"));
  world.emit(held("one"));
  CHECK(world.events().size() == 1);
  CHECK(world.count(first) == 3);
  world.emit(held("two"));
  EmitEvent other = held("one");
  other.regarding.uid = "uid-q";
  world.emit(other);
  CHECK(world.events().size() == 3);
  CHECK(world.count(first) == 3);
  CHECK(world.done == 5);
}

TEST_CASE("a series ends after six quiet minutes") {
  World world;
  world.emit(held("one"));
  world.loop.advance(minutes(5));
  world.emit(held("one"));
  world.loop.advance(minutes(6));
  world.emit(held("one"));
  CHECK(world.events().size() == 1);
  world.loop.advance(minutes(7));
  world.emit(held("one"));
  CHECK(world.events().size() == 2);
}

TEST_CASE("an Event that has expired is created anew") {
  World world;
  world.emit(held("one"));
  world.server.remove(world.events().at(0));
  world.emit(held("one"));
  CHECK_FALSE(world.error.has_value());
  REQUIRE(world.events().size() == 1);
  CHECK(world.count(world.events()[0]) == 1);
}

TEST_CASE("names stay unique when the clock stands still, and are taken again when in use") {
  World world;
  world.begin(held("one"));
  world.begin(held("two"));
  world.loop.run_ready();
  CHECK(world.events().size() == 2);

  World taken;
  taken.emit(held("one"));
  const std::string name = taken.events().at(0);
  World second;
  second.server.put(name, "{}");
  second.emit(held("one"));
  CHECK_FALSE(second.error.has_value());
  CHECK(second.events().size() == 2);
}

TEST_CASE("failures are outcomes; a namespace that is gone is none") {
  World world;
  world.server.fail_next(1, 404);
  world.emit(held("one"));
  CHECK_FALSE(world.error.has_value());
  world.server.fail_next(1, 403);
  world.emit(held("one"));
  REQUIRE(world.error.has_value());
  CHECK(world.error->kind == ErrorKind::PermissionDenied);
  world.server.break_next(1, ErrorKind::DeadlineExceeded);
  world.emit(held("one"));
  REQUIRE(world.error.has_value());
  CHECK(world.error->kind == ErrorKind::DeadlineExceeded);
  CHECK(world.done == 3);
  CHECK(world.events().empty());
}

TEST_CASE("what is remembered and what runs is bounded; a destroyed runner says nothing") {
  World world;
  for (int i = 0; i < 300; ++i) {
    world.loop.advance(std::chrono::milliseconds(1));
    world.emit(held(std::to_string(i)));
  }
  CHECK(world.events().size() == 300);
  world.emit(held("299"));
  CHECK(world.events().size() == 300);  // remembered
  world.emit(held("0"));
  CHECK(world.events().size() == 301);  // forgotten

  world.done = 0;
  for (int i = 0; i < 65; ++i) {
    world.begin(held("burst " + std::to_string(i)));
  }
  CHECK(world.done == 1);
  REQUIRE(world.error.has_value());
  CHECK(world.error->kind == ErrorKind::ResourceExhausted);
  world.runner.reset();
  world.loop.run_ready();
  CHECK(world.done == 1);
}

}  // namespace imagefs_guard::emit_event_test
