#pragma once
/// gRPC calls over a unix socket (containerd, CRI): unary, server stream, and the stream whose
/// request side stays open for as long as its object lives: that is what a hold is made of.
/// Each call has a connection of its own (libcurl 7.88 can't reuse one for HTTP/2 prior
/// knowledge). A status other than 0, or none at all, is an Error of that kind.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "agent/core/result.h"
#include "agent/core/time.h"

namespace imagefs_guard {

class EventLoop;

/// A call under way. Destroying it cancels it (closes the connection); no callback afterwards.
class GrpcCall {
 public:
  virtual ~GrpcCall() = default;
};

/// Wire-format message, without the 5-byte frame header.
using GrpcMessageHandler = std::function<void(std::string_view message)>;

class GrpcClient {
 public:
  virtual ~GrpcClient() = default;

  /// `method` is "/containerd.services.leases.v1.Leases/List". Callbacks come from the loop,
  /// never from inside the call, `done` exactly once; both may destroy the call.
  [[nodiscard]] virtual std::unique_ptr<GrpcCall> unary(
      const std::string& method,
      std::string request,
      Duration deadline,
      std::function<void(Result<std::string>)> done) = 0;

  /// One request, many replies. `deadline` zero = none (event subscriptions).
  [[nodiscard]] virtual std::unique_ptr<GrpcCall> server_stream(
      const std::string& method,
      std::string request,
      Duration deadline,
      GrpcMessageHandler on_message,
      std::function<void(Result<void>)> done) = 0;

  /// Sends one message and then keeps the request side open until the call is destroyed or the
  /// server ends it (`done`). No deadline. The message must be harmless to repeat: where libcurl
  /// loses the status of a refused stream, it is asked for once more.
  [[nodiscard]] virtual std::unique_ptr<GrpcCall> open_stream(
      const std::string& method,
      std::string first_message,
      GrpcMessageHandler on_message,
      std::function<void(Result<void>)> done) = 0;
};

/// `containerd_namespace` is sent as metadata ("k8s.io"); empty for CRI services.
[[nodiscard]] Result<std::unique_ptr<GrpcClient>> make_grpc_client(
    EventLoop& loop, std::string socket_path, std::string containerd_namespace);

}  // namespace imagefs_guard
