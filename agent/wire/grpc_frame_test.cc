#include "agent/wire/grpc_frame.h"

#include <doctest/doctest.h>

#include <vector>

namespace imagefs_guard::wire::grpc_frame_test {

namespace {

std::vector<std::string> decode_in_pieces(std::string_view bytes, std::size_t piece) {
  GrpcFrameDecoder decoder(1 << 20);
  std::vector<std::string> messages;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const Result<void> fed = decoder.feed(bytes.substr(at, piece), [&](std::string_view message) {
      messages.emplace_back(message);
      return true;
    });
    REQUIRE(fed);
  }
  CHECK(decoder.at_frame_boundary());
  return messages;
}

}  // namespace

TEST_CASE("frames survive every way of being cut") {
  const std::vector<std::string> want = {
      std::string("a\0b", 3), "", std::string(300, 'x'), std::string(70'000, 'y')};
  std::string stream;
  for (const std::string& message : want) {
    stream += encode_grpc_frame(message);
  }
  for (const std::size_t piece :
       std::initializer_list<std::size_t>{1, 2, 4, 5, 6, 7, 299, 16'384, 1'000'000}) {
    CHECK(decode_in_pieces(stream, piece) == want);
  }
}

TEST_CASE("a frame says its length in big-endian order") {
  CHECK(encode_grpc_frame(std::string(0x0102, 'x')).substr(0, 5) == std::string("\0\0\0\1\2", 5));
}

TEST_CASE("compressed and oversized frames are refused as soon as their header is there") {
  const auto ignore = [](std::string_view) { return true; };
  CHECK(GrpcFrameDecoder(10).feed(std::string("\1\0\0\0\0", 5), ignore).error().kind ==
        ErrorKind::Internal);
  CHECK(GrpcFrameDecoder(10).feed(std::string("\0\0\0\0\xb", 5), ignore).error().kind ==
        ErrorKind::ResourceExhausted);
  GrpcFrameDecoder split(10);
  REQUIRE(split.feed(std::string("\0\0", 2), ignore));
  CHECK(split.feed(std::string("\0\0\xb", 3), ignore).error().kind == ErrorKind::ResourceExhausted);
}

TEST_CASE("a stream that ends inside a frame is noticed, and a handler can stop") {
  GrpcFrameDecoder decoder(10);
  int messages = 0;
  REQUIRE(decoder.feed(std::string("\0\0\0\0\2x", 6), [&](std::string_view) {
    ++messages;
    return true;
  }));
  CHECK_FALSE(decoder.at_frame_boundary());
  CHECK(messages == 0);

  GrpcFrameDecoder stopped(10);
  REQUIRE(stopped.feed(encode_grpc_frame("a") + encode_grpc_frame("b"), [&](std::string_view) {
    ++messages;
    return false;
  }));
  CHECK(messages == 1);
}

}  // namespace imagefs_guard::wire::grpc_frame_test
