#include "agent/actions/emit_event.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "agent/wire/kube_patch.h"

namespace imagefs_guard {
namespace {

constexpr Duration kSeriesIdle = std::chrono::minutes(6);  // as client-go
constexpr std::size_t kSeriesLimit = 256;                  // two per pod of a full node
constexpr std::size_t kRunningLimit = 64;
constexpr int kAttemptLimit = 3;         // names, when somebody has ours already
constexpr std::size_t kNameLimit = 200;  // of the object, so that ours stays below 253

std::string hex(std::uint64_t number) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
  return {digits.data(), end};
}

std::string events_path(const EmitEvent& action) {
  return "/apis/events.k8s.io/v1/namespaces/" + percent_encode(event_namespace(action.regarding)) +
         "/events";
}

}  // namespace

EmitEventRunner::EmitEventRunner(KubeApi& api,
                                 std::string reporting_instance,
                                 std::string reporting_controller)
    : api_(api),
      reporting_instance_(std::move(reporting_instance)),
      reporting_controller_(std::move(reporting_controller)) {}

void EmitEventRunner::start(const EmitEvent& action, ActionDone done) {
  const std::uint64_t id = next_id_++;
  if (running_.size() >= kRunningLimit) {
    done(Error{ErrorKind::ResourceExhausted,
               "emit Event: " + std::to_string(kRunningLimit) + " are under way"});
    return;
  }
  running_[id] = Running{action, std::move(done), 0, nullptr};
  const auto known = series_.find(key_of(action));
  if (known == series_.end()) {
    create(id);
    return;
  }
  if (api_.loop().now() - known->second.last > kSeriesIdle) {
    series_.erase(known);
    create(id);
    return;
  }
  count_up(id, known->second);
}

void EmitEventRunner::create(std::uint64_t id) {
  Running& running = running_.at(id);
  ++running.attempts;
  EventOrigin origin;
  origin.name = next_name(running.action);
  origin.reporting_instance = reporting_instance_;
  origin.reporting_controller = reporting_controller_;
  origin.time = api_.loop().wall_now();
  KubeRequest request;
  request.verb = KubeVerb::Create;
  request.resource = "events";
  request.path = events_path(running.action);
  request.body = event_body(running.action, origin);
  std::string path = request.path + "/" + percent_encode(origin.name);
  running.call =
      api_.start(std::move(request), [this, id, path = std::move(path)](Result<std::string> reply) {
        on_created(id, path, std::move(reply));
      });
}

void EmitEventRunner::on_created(std::uint64_t id,
                                 const std::string& path,
                                 Result<std::string> reply) {
  const Running& running = running_.at(id);
  if (reply) {
    remember(key_of(running.action), path);
    finish(id, std::nullopt);
    return;
  }
  const ErrorKind kind = reply.error().kind;
  if (kind == ErrorKind::AlreadyExists && running.attempts < kAttemptLimit) {
    create(id);
    return;
  }
  if (kind == ErrorKind::NotFound) {
    finish(id, std::nullopt);  // the namespace is gone, and what the Event was about with it
    return;
  }
  finish(id, std::move(reply).error());
}

void EmitEventRunner::count_up(std::uint64_t id, const Series& series) {
  KubeRequest request;
  request.verb = KubeVerb::MergePatch;
  request.resource = "events";
  request.path = series.path;
  request.body = event_series_patch(series.count + 1, api_.loop().wall_now());
  running_.at(id).call = api_.start(std::move(request), [this, id](Result<std::string> reply) {
    on_counted(id, std::move(reply));
  });
}

void EmitEventRunner::on_counted(std::uint64_t id, Result<std::string> reply) {
  const auto known = series_.find(key_of(running_.at(id).action));
  if (reply) {
    if (known != series_.end()) {
      ++known->second.count;
      known->second.last = api_.loop().now();
    }
    finish(id, std::nullopt);
    return;
  }
  if (reply.error().kind == ErrorKind::NotFound) {
    // Events expire after an hour, and people delete them.
    if (known != series_.end()) {
      series_.erase(known);
    }
    create(id);
    return;
  }
  finish(id, std::move(reply).error());
}

void EmitEventRunner::finish(std::uint64_t id, std::optional<Error> error) {
  auto node = running_.extract(id);
  node.mapped().call.reset();
  node.mapped().done(std::move(error));  // may start others, or destroy this
}

void EmitEventRunner::remember(const Key& key, std::string path) {
  if (series_.size() >= kSeriesLimit && !series_.contains(key)) {
    const auto oldest =
        std::min_element(series_.begin(), series_.end(), [](const auto& a, const auto& b) {
          return a.second.last < b.second.last;
        });
    series_.erase(oldest);
  }
  series_[key] = Series{std::move(path), 1, api_.loop().now()};
}

std::string EmitEventRunner::next_name(const EmitEvent& action) {
  const auto micros = static_cast<std::uint64_t>(
      std::max<Duration::rep>(api_.loop().wall_now().time_since_epoch().count(), 0));
  // In nanoseconds, as everybody's; counts on when the clock stands still or goes back.
  last_name_number_ = std::max(micros * 1000, last_name_number_ + 1);
  std::string name = action.regarding.name.substr(0, kNameLimit);
  while (!name.empty() && (name.back() == '.' || name.back() == '-')) {
    name.pop_back();  // cut in the middle: not a DNS name any more
  }
  return name + "." + hex(last_name_number_);
}

EmitEventRunner::Key EmitEventRunner::key_of(const EmitEvent& action) {
  const ObjectReference& about = action.regarding;
  return {
      about.namespace_name, about.kind, about.name, about.uid, action.event_reason, action.note};
}

}  // namespace imagefs_guard
