#pragma once
/// One GET from a registry, with everything that stands between request and body: login, one
/// re-login, redirects, pauses that the registry asks for, and its errors in words. Makes no other
/// retries: those are the planner's.
/// Used by registry_client.h alone.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/policy.h"
#include "agent/io/http.h"
#include "agent/io/loop.h"
#include "agent/registry/auth.h"
#include "agent/registry/target.h"
#include "agent/registry/waiters.h"

namespace imagefs_guard {

struct RegistryRequest {
  RegistryTarget target;
  std::string path;                  // "/v2/library/nginx/manifests/latest"
  std::vector<std::string> headers;  // Accept, Range
  std::size_t body_limit = 0;
};

class RegistryHttp {
 public:
  RegistryHttp(EventLoop& loop, HttpTransport& http, AuthSetup setup);
  ~RegistryHttp();
  RegistryHttp(const RegistryHttp&) = delete;
  RegistryHttp& operator=(const RegistryHttp&) = delete;

  /// The reply if its status is 2xx, else an Error: NotFound, Unauthenticated, PermissionDenied,
  /// ResourceExhausted (429, and while the host's pause lasts), Unavailable, InvalidArgument (also
  /// for a reply larger than `body_limit`), …
  void get(RegistryRequest request, Done<HttpResponse> done);

  void set_policy(const Policy& policy);

 private:
  class Operation;

  void finish(std::uint64_t id);
  void pause(const std::string& host, const HttpResponse& response);
  [[nodiscard]] std::optional<Error> paused(const std::string& host);

  EventLoop& loop_;
  HttpTransport& http_;
  Policy policy_;
  std::mt19937_64& random_;
  RegistryAuth auth_;
  std::map<std::string, MonotonicTime> pauses_;  // by host; at most kPauseLimit
  std::map<std::uint64_t, std::unique_ptr<Operation>> operations_;
  std::uint64_t last_id_ = 0;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace imagefs_guard
