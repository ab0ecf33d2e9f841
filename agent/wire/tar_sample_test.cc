#include "agent/wire/tar_sample.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <string>

namespace imagefs_guard {
namespace {

std::string octal(std::int64_t value, int digits) {
  std::string text(static_cast<std::size_t>(digits), '0');
  for (int i = digits - 1; i >= 0; --i) {
    text[static_cast<std::size_t>(i)] = static_cast<char>('0' + value % 8);
    value /= 8;
  }
  return text;
}

/// A ustar header, with the checksum as tar computes it.
std::string header(const std::string& name, char type, std::int64_t size) {
  std::string block(512, '\0');
  block.replace(0, name.size(), name);
  block.replace(124, 11, octal(size, 11));
  block.replace(148, 8, "        ");
  block[156] = type;
  block.replace(257, 5, "ustar");
  std::int64_t sum = 0;
  for (const char c : block) {
    sum += static_cast<unsigned char>(c);
  }
  block.replace(148, 6, octal(sum, 6));
  block[154] = '\0';
  return block;
}

std::string file(const std::string& name, std::size_t size) {
  return header(name, '0', static_cast<std::int64_t>(size)) +
         std::string((size + 511) / 512 * 512, 'x');
}

std::string gzip(const std::string& data) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(data.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

TEST_CASE("headers speak for the data behind them, seen or not") {
  // One header of a file of 200 MiB: the sample knows it all from 512 bytes.
  const auto big = sample_tar(header("big", '0', 209'715'200));
  REQUIRE(big.has_value());
  CHECK(*big == TarSample{.tar_bytes = 209'715'712, .disk_bytes = 209'715'200, .inodes = 1});

  const std::string tar = header("dir/", '5', 0) + file("dir/a", 100) + file("dir/b", 5000) +
                          header("dir/link", '2', 0) + header("dir/hard", '1', 0) +
                          std::string(1024, '\0');
  const TarSample want{
      .tar_bytes = 5 * 512 + 512 + 5120, .disk_bytes = 4096 + 4096 + 8192, .inodes = 4};
  CHECK(sample_tar(tar).value() == want);
  CHECK(sample_gzip_tar(gzip(tar)).value() == want);
}

TEST_CASE("a beginning may be cut anywhere") {
  const std::string tar = file("a", 3000) + file("b", 70'000) + file("c", 10);
  const std::string blob = gzip(tar);
  for (std::size_t cut = 20; cut <= blob.size(); cut += 7) {
    const auto sample = sample_gzip_tar(blob.substr(0, cut));
    REQUIRE(sample.has_value());
    CHECK(sample->tar_bytes <= static_cast<std::int64_t>(tar.size()));
  }
}

TEST_CASE("what is no tar is refused") {
  CHECK(!sample_gzip_tar("plain text, no gzip").has_value());
  CHECK(!sample_gzip_tar(gzip(std::string(2000, 'z'))).has_value());
  CHECK(!sample_tar(header("x", '0', -1).replace(124, 11, "99999999999")).has_value());
  CHECK(sample_tar("").value() == TarSample{});
}

}  // namespace
}  // namespace imagefs_guard
