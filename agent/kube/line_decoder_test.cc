#include "agent/kube/line_decoder.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace imagefs_guard::line_decoder_test {
namespace {

struct Sink {
  std::vector<std::string> lines;

  Result<void> feed(LineDecoder& decoder, std::string_view chunk) {
    return decoder.feed(chunk, [this](std::string_view line) -> Result<void> {
      lines.emplace_back(line);
      return {};
    });
  }
};

}  // namespace

TEST_CASE("lines come out whole, wherever the chunks end") {
  const std::string stream = "one\n\ntwo\r\nthree\n";
  const std::vector<std::string> want = {"one", "two\r", "three"};
  for (std::size_t size = 1; size <= stream.size(); ++size) {
    CAPTURE(size);
    LineDecoder decoder(100);
    Sink sink;
    for (std::size_t at = 0; at < stream.size(); at += size) {
      CHECK(sink.feed(decoder, std::string_view(stream).substr(at, size)));
    }
    CHECK(sink.lines == want);
  }
}

TEST_CASE("a line may be as long as the limit, and no longer") {
  LineDecoder decoder(4);
  Sink sink;
  CHECK(sink.feed(decoder, "abcd\n"));
  CHECK(sink.feed(decoder, "ab"));
  CHECK(sink.feed(decoder, "cd"));
  const Result<void> over = sink.feed(decoder, "e");
  REQUIRE_FALSE(over);
  CHECK(over.error().kind == ErrorKind::ResourceExhausted);
  CHECK_FALSE(sink.feed(decoder, "abcde\n"));
  CHECK(sink.lines == std::vector<std::string>{"abcd"});
}

TEST_CASE("an error of the reader ends the feed, reset forgets half a line") {
  LineDecoder decoder(100);
  int calls = 0;
  const Result<void> fed = decoder.feed("a\nb\nc", [&](std::string_view) -> Result<void> {
    ++calls;
    return Error{ErrorKind::Internal, "no"};
  });
  CHECK_FALSE(fed);
  CHECK(calls == 1);
  Sink sink;
  CHECK(sink.feed(decoder, "half"));
  decoder.reset();
  CHECK(sink.feed(decoder, "whole\n"));
  CHECK(sink.lines == std::vector<std::string>{"whole"});
}

}  // namespace imagefs_guard::line_decoder_test
