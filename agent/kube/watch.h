#pragma once
/// Keeps one list of API objects in step with the server: list once, then watch, for ever.
/// Used by probes/pods and probes/node. Re-watches from the last resource version, lists again
/// when that is too old, backs off when the server fails. While it fails, what its handler has
/// stays as it was: the handler asks failing_since() for its age.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/core/result.h"
#include "agent/core/time.h"
#include "agent/io/loop.h"
#include "agent/kube/api_client.h"
#include "agent/kube/line_decoder.h"
#include "agent/wire/kube_json.h"

namespace imagefs_guard {

struct WatchSpec {
  std::string resource;        // for counters: "pods"
  std::string path;            // "/api/v1/pods"
  std::string field_selector;  // "spec.nodeName=n1"
};

/// What a line of the watch was, as far as the watch itself needs it.
struct WatchLine {
  WatchEventType type = WatchEventType::Bookmark;
  std::string resource_version;
  ApiStatus status;  // of an Error
};

/// Owner of the objects. Called from the loop; must not destroy the watch from inside.
class WatchHandler {
 public:
  virtual ~WatchHandler() = default;
  /// A list begins: collect its pages beside what is there; an earlier unfinished one is void.
  virtual void list_begins() = 0;
  [[nodiscard]] virtual Result<ListMetadata> list_page(std::string_view body) = 0;
  /// The list is complete: it replaces what was there.
  virtual void list_ends() = 0;
  /// One event; it applies it.
  [[nodiscard]] virtual Result<WatchLine> watch_line(std::string_view line) = 0;
};

class Watch {
 public:
  /// All three outlive it.
  Watch(KubeApi& api, WatchSpec spec, WatchHandler& handler);

  void start();

  /// A list has been complete at least once.
  [[nodiscard]] bool synced() const { return synced_; }

  /// Since when the server has not answered as it should; nullopt while all is well.
  [[nodiscard]] std::optional<MonotonicTime> failing_since() const { return failing_since_; }

  /// Why it fails; empty before the first failure.
  [[nodiscard]] const std::string& error() const { return error_; }

  /// reason → count: "closed", "expired", "idle", "error", "list".
  [[nodiscard]] const std::map<std::string, std::uint64_t>& restarts() const { return restarts_; }

 private:
  enum class Step { List, Watch };
  enum class ListFrom { Cache, NotOlderThanSeen, Quorum };

  void on_timer();
  void run(Step step);
  void begin_list();
  void request_page();
  void on_page(Result<std::string> body);
  void list_failed(Error error);
  void begin_watch();
  void on_chunk(std::string_view chunk);
  Result<void> on_line(std::string_view line);
  void on_watch_end(Result<std::string> end);
  void fail(const char* reason, Error error, Step next);
  void answered();

  KubeApi& api_;
  WatchSpec spec_;
  WatchHandler& handler_;
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<KubeCall> call_;
  LineDecoder lines_;

  Step next_ = Step::List;
  ListFrom list_from_ = ListFrom::Cache;
  std::string resource_version_;
  std::string continue_token_;
  int page_size_;
  int pages_ = 0;
  bool draining_ = false;  // this watch is over, what still comes is dropped
  bool got_line_ = false;
  MonotonicTime watch_began_{};

  bool synced_ = false;
  std::optional<MonotonicTime> failing_since_;
  std::string error_;
  std::map<std::string, std::uint64_t> restarts_;
  Duration backoff_{};
  Duration wait_{};
  MonotonicTime last_failure_{};
};

}  // namespace imagefs_guard
