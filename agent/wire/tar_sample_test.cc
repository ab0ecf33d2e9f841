#include "agent/wire/tar_sample.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/unit/fake_blobs.h"

namespace imagefs_guard::tar_sample_test {
namespace {

using testing::gzip;

std::string header(const std::string& name, char type, std::int64_t size) {
  return testing::tar_header(name, type, size);
}

std::string file(const std::string& name, std::size_t size) {
  return testing::tar_file(name, std::string(size, 'x'));
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
  TarSample whole = want;
  whole.first_member_bytes = static_cast<std::int64_t>(gzip(tar).size());
  CHECK(sample_gzip_tar(gzip(tar)).value() == whole);
}

TEST_CASE("a member that ends within the head is told from one that goes on") {
  const std::string first = gzip(file("a", 3000));
  const auto sample = sample_gzip_tar(first + gzip(file("b", 3000)));
  REQUIRE(sample.has_value());
  CHECK(sample->first_member_bytes == static_cast<std::int64_t>(first.size()));
  CHECK(sample->inodes == 1);
  CHECK(sample_gzip_tar(first.substr(0, first.size() - 1)).value().first_member_bytes == 0);
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

TEST_CASE("the beginning of a zstd blob, cut anywhere") {
  std::string tar;
  for (int i = 0; i < 2000; ++i) {
    tar += file("f" + std::to_string(i), 1000);
  }
  const std::string blob = testing::zstd(tar);
  const auto whole = sample_zstd_tar(blob);
  REQUIRE(whole.has_value());
  CHECK(whole->inodes > 1000);  // 2 MiB are looked at
  for (std::size_t size = 0; size < blob.size(); size += 97) {
    const auto cut = sample_zstd_tar(blob.substr(0, size));
    CHECK((!cut.has_value() || cut->inodes <= whole->inodes));
  }
  CHECK(!sample_zstd_tar("no zstd").has_value());
  CHECK(!sample_zstd_tar("").has_value());
}

}  // namespace
}  // namespace imagefs_guard::tar_sample_test
