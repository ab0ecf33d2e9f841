#pragma once
/// Carries out EmitEvent: creates an events.k8s.io/v1 Event, or counts up the one that said the
/// same about the same object a few minutes ago.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "agent/actions/action_runner.h"
#include "agent/kube/api_client.h"
#include "agent/wire/kube_patch.h"

namespace imagefs_guard {

class EmitEventRunner {
 public:
  /// `reporting_instance` is the agent's pod or node name. `api` outlives it.
  EmitEventRunner(KubeApi& api,
                  std::string reporting_instance,
                  std::string reporting_controller = kReportingController);

  /// Several may run at once; beyond their limit `done` comes from inside. Destroying the runner
  /// cancels all without a callback.
  void start(const EmitEvent& action, ActionDone done);

 private:
  /// namespace, kind, name, uid, reason, note
  using Key =
      std::tuple<std::string, std::string, std::string, std::string, std::string, std::string>;

  struct Series {
    std::string path;
    std::int64_t count = 1;
    MonotonicTime last{};
  };

  struct Running {
    EmitEvent action;
    ActionDone done;
    int attempts = 0;
    std::unique_ptr<KubeCall> call;
  };

  void create(std::uint64_t id);
  void on_created(std::uint64_t id, const std::string& path, Result<std::string> reply);
  void count_up(std::uint64_t id, const Series& series);
  void on_counted(std::uint64_t id, Result<std::string> reply);
  void finish(std::uint64_t id, std::optional<Error> error);
  void remember(const Key& key, std::string path);
  [[nodiscard]] std::string next_name(const EmitEvent& action);
  [[nodiscard]] static Key key_of(const EmitEvent& action);

  KubeApi& api_;
  std::string reporting_instance_;
  std::string reporting_controller_;
  std::map<Key, Series> series_;
  std::map<std::uint64_t, Running> running_;
  std::uint64_t next_id_ = 1;
  std::uint64_t last_name_number_ = 0;
};

}  // namespace imagefs_guard
