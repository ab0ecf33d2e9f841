#include "agent/wire/grpc_frame.h"

#include <algorithm>
#include <cstdint>

namespace imagefs_guard::wire {

namespace {

std::size_t frame_message_bytes(std::string_view header) {
  std::size_t length = 0;
  for (std::size_t i = 1; i < kGrpcFrameHeaderBytes; ++i) {
    length = (length << 8) | static_cast<std::uint8_t>(header[i]);
  }
  return length;
}

Result<void> check_header(std::string_view header, std::size_t message_limit) {
  if (header[0] != 0) {
    return Error{ErrorKind::Internal, "reply with a compressed gRPC frame"};
  }
  if (frame_message_bytes(header) > message_limit) {
    return Error{ErrorKind::ResourceExhausted,
                 "reply message of " + std::to_string(frame_message_bytes(header)) +
                     " bytes, limit " + std::to_string(message_limit)};
  }
  return {};
}

}  // namespace

std::string encode_grpc_frame(std::string_view message) {
  VERIFY(message.size() <= UINT32_MAX);
  std::string frame;
  frame.reserve(kGrpcFrameHeaderBytes + message.size());
  frame.push_back('\0');
  for (int shift = 24; shift >= 0; shift -= 8) {
    frame.push_back(static_cast<char>((message.size() >> shift) & 0xff));
  }
  frame.append(message);
  return frame;
}

Result<void> GrpcFrameDecoder::feed(std::string_view bytes,
                                    const std::function<bool(std::string_view)>& on_message) {
  while (!bytes.empty()) {
    if (buffer_.empty() && bytes.size() >= kGrpcFrameHeaderBytes) {
      TRY(check_header(bytes, message_limit_));
      const std::size_t length = frame_message_bytes(bytes);
      if (bytes.size() - kGrpcFrameHeaderBytes >= length) {
        const std::string_view message = bytes.substr(kGrpcFrameHeaderBytes, length);
        bytes.remove_prefix(kGrpcFrameHeaderBytes + length);
        if (!on_message(message)) {
          return {};
        }
        continue;
      }
    }
    std::size_t wanted = kGrpcFrameHeaderBytes;
    if (buffer_.size() >= kGrpcFrameHeaderBytes) {
      wanted += frame_message_bytes(buffer_);
    }
    const std::size_t taken = std::min(wanted - buffer_.size(), bytes.size());
    buffer_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (buffer_.size() == kGrpcFrameHeaderBytes) {
      TRY(check_header(buffer_, message_limit_));
    }
    if (buffer_.size() >= kGrpcFrameHeaderBytes &&
        buffer_.size() == kGrpcFrameHeaderBytes + frame_message_bytes(buffer_)) {
      const std::string frame = std::move(buffer_);
      buffer_.clear();
      if (!on_message(std::string_view(frame).substr(kGrpcFrameHeaderBytes))) {
        return {};
      }
    }
  }
  return {};
}

}  // namespace imagefs_guard::wire
