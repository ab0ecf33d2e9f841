#pragma once
/// Requests to the Kubernetes API server and, with the same token, to the kubelet.
/// Called by the watches, the probes and the action runners. Promises: typed errors, the token
/// re-read as it rotates and in no message, no request while the server has asked to wait, a
/// count of every answer. No retries but one with a fresh token after a 401.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>

#include "agent/core/result.h"
#include "agent/core/time.h"
#include "agent/io/http.h"
#include "agent/io/loop.h"
#include "agent/wire/percent_encoding.h"

namespace imagefs_guard {

enum class KubeVerb {
  Get,
  List,
  Watch,
  Create,
  Update,  // PUT: with the resource version that was read
  Delete,
  JsonPatch,
  MergePatch,
  StrategicMergePatch,
};

struct KubeRequest {
  KubeVerb verb = KubeVerb::Get;
  std::string resource;        // for counters: "nodes", "nodes/status", "events"
  std::string path;            // "/api/v1/nodes/n1"
  std::string query;           // escaped, without "?"; writes get their fieldManager by themselves
  std::string body;            // JSON
  bool metadata_only = false;  // ask for PartialObjectMetadata
  Duration total_timeout = std::chrono::seconds(15);
  Duration idle_timeout{};
  std::size_t body_limit = std::size_t{8} << 20;
  std::function<void(std::string_view)> on_data;  // watches: the body as it comes
};

/// The body of a 2xx answer. Anything else is an Error:
///   Unauthenticated 401 · PermissionDenied 403 (policies deny so: stop) · NotFound 404 ·
///   Aborted 409 · AlreadyExists 409 of a create · FailedPrecondition 410, the resource version
///   or continue token is too old · InvalidArgument 400 and 422, a failed `test` of a JSON patch
///   among them: read again and retry · Unavailable 429, 5xx, no connection, or the server has
///   asked to wait · DeadlineExceeded no answer in time: the outcome of a write is unknown.
using KubeDone = std::function<void(Result<std::string>)>;

struct KubeApiOptions {
  std::string base_url;    // "https://10.96.0.1:443", without a slash at the end
  std::string token_file;  // empty, or absent with plain http: no token is sent
  std::string ca_file;
  std::uint64_t seed = 0;  // for jitter; nodes should differ
};

class KubeApi;

/// A request under way. Destroying it cancels it; its callback then never comes.
class KubeCall {
 public:
  KubeCall(const KubeCall&) = delete;
  KubeCall& operator=(const KubeCall&) = delete;
  ~KubeCall();

 private:
  friend class KubeApi;
  KubeCall(KubeApi& api, KubeRequest request, KubeDone done);

  void send();
  void finish_later(Error error);
  void on_reply(Result<HttpResponse> reply);
  void finish(Result<std::string> result);

  KubeApi& api_;
  KubeRequest request_;
  KubeDone done_;
  bool token_renewed_ = false;
  std::unique_ptr<HttpCall> http_;
  std::shared_ptr<bool> alive_;
};

/// (verb, resource, code) → answers; verbs as in the API server's metrics ("PATCH", "WATCH"),
/// code 0 = none came.
using KubeRequestCounts = std::map<std::tuple<std::string, std::string, int>, std::uint64_t>;

class KubeApi {
 public:
  /// Loop and transport outlive it, it outlives its calls.
  KubeApi(EventLoop& loop, HttpTransport& transport, KubeApiOptions options);
  KubeApi(const KubeApi&) = delete;
  KubeApi& operator=(const KubeApi&) = delete;

  /// `done` comes exactly once, from the loop, never from inside start(); it may destroy the call.
  [[nodiscard]] std::unique_ptr<KubeCall> start(KubeRequest request, KubeDone done);

  /// How long the server has asked us to stay away (Retry-After); zero = not at all.
  [[nodiscard]] Duration pause_left() const;

  [[nodiscard]] EventLoop& loop() { return loop_; }

  [[nodiscard]] const KubeRequestCounts& request_counts() const { return counts_; }

  /// Even enough for jitter: 0 … bound - 1.
  [[nodiscard]] std::uint64_t random_below(std::uint64_t bound);

 private:
  friend class KubeCall;

  Result<std::string> token();

  void forget_token() { token_read_at_.reset(); }

  void note_reply(const KubeRequest& request, int status);
  void note_retry_after(const HttpResponse& response);

  EventLoop& loop_;
  HttpTransport& transport_;
  KubeApiOptions options_;
  std::string token_;
  std::optional<MonotonicTime> token_read_at_;
  MonotonicTime paused_until_{};
  KubeRequestCounts counts_;
  std::mt19937_64 random_;
};

}  // namespace imagefs_guard
