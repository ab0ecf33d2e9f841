#pragma once
/// A small Kubernetes API server as an HttpTransport: keeps objects, applies the three kinds of
/// patches, lists in pages, watches with history, and fails on demand. Tests give it a state and
/// assert on the state, not on the calls.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/io/http.h"
#include "tests/unit/fake_loop.h"

namespace imagefs_guard {

class FakeKubeApi final : public HttpTransport {
 public:
  explicit FakeKubeApi(FakeLoop& loop);
  ~FakeKubeApi() override;
  FakeKubeApi(const FakeKubeApi&) = delete;
  FakeKubeApi& operator=(const FakeKubeApi&) = delete;

  [[nodiscard]] std::unique_ptr<HttpCall> start(HttpRequest request, HttpDone done) override;

  // ---- state; paths as in URLs: "/api/v1/nodes/n1", "/api/v1/namespaces/ns/pods/p"

  /// Creates or replaces; resourceVersion, and uid if it has none, are the server's.
  void put(const std::string& path, const std::string& json);
  void remove(const std::string& path);
  /// Empty if there is none.
  [[nodiscard]] std::string get(const std::string& path) const;
  /// Paths of what lies under this prefix.
  [[nodiscard]] std::vector<std::string> paths(const std::string& prefix) const;

  // ---- faults

  /// The next `times` requests get this status instead.
  void fail_next(int times, int status, std::string retry_after = "");
  /// The next `times` requests get no answer.
  void break_next(int times, ErrorKind kind);
  /// Somebody else is faster: runs just before the next write is carried out.
  void before_next_write(std::function<void()> change);
  /// Anything else than this bearer token is a 401.
  void require_token(std::string token);
  void set_page_size(std::size_t page_size);
  /// Forgets history: watches and lists from before are too old.
  void compact();
  void end_watches(Result<void> how = {});
  void send_to_watches(std::string_view text);

  [[nodiscard]] std::size_t watch_count() const;

  [[nodiscard]] int request_count() const { return request_count_; }

  /// Body of the last delete that was carried out.
  [[nodiscard]] const std::string& last_delete() const { return last_delete_; }

  /// Full URLs, latest last.
  [[nodiscard]] const std::vector<std::string>& urls() const { return urls_; }

 private:
  struct State;
  struct Call;

  void deliver(std::uint64_t id);
  HttpResponse answer(const HttpRequest& request);
  HttpResponse write(const HttpRequest& request, const std::string& path);
  HttpResponse update(const HttpRequest& request, const std::string& path);
  HttpResponse remove_pinned(const HttpRequest& request, const std::string& path);
  HttpResponse list(const std::map<std::string, std::string>& query, const std::string& path);
  HttpResponse create(const HttpRequest& request, const std::string& path);
  HttpResponse patch(const HttpRequest& request, const std::string& path);
  void open_watch(std::uint64_t id, const std::map<std::string, std::string>& query);
  void publish(const std::string& type, const std::string& path);
  void cancel(std::uint64_t id);

  FakeLoop& loop_;
  std::unique_ptr<State> state_;
  int request_count_ = 0;
  std::vector<std::string> urls_;
  std::string last_delete_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace imagefs_guard
