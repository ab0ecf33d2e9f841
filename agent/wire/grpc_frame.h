#pragma once
/// gRPC's message frame: one byte flag, four bytes big-endian length, message. Used by io/grpc for
/// every call; pure, so that it can be fuzzed.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "agent/core/result.h"

namespace imagefs_guard::wire {

constexpr std::size_t kGrpcFrameHeaderBytes = 5;

/// The message with its frame header in front, uncompressed.
[[nodiscard]] std::string encode_grpc_frame(std::string_view message);

/// Cuts a byte stream into messages as the bytes arrive. A frame that is whole in one piece of
/// input is passed on without a copy.
class GrpcFrameDecoder {
 public:
  /// A longer message is ResourceExhausted.
  explicit GrpcFrameDecoder(std::size_t message_limit) : message_limit_(message_limit) {}

  /// Calls `on_message` for each complete message; it returns false to stop (the rest of the
  /// input is dropped then). After an error the decoder is of no more use.
  [[nodiscard]] Result<void> feed(std::string_view bytes,
                                  const std::function<bool(std::string_view)>& on_message);

  /// True between two messages: a stream that ends elsewhere was cut.
  [[nodiscard]] bool at_frame_boundary() const { return buffer_.empty(); }

 private:
  std::size_t message_limit_;
  std::string buffer_;  // the frame that has begun, header included
};

}  // namespace imagefs_guard::wire
