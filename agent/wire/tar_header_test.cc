#include "agent/wire/tar_header.h"

#include <doctest/doctest.h>

#include "tests/unit/fake_blobs.h"

namespace imagefs_guard::tar_header_test {
namespace {

TEST_CASE("tar header: name, size and type, or nothing") {
  const std::string block = testing::tar_header("usr/bin/x", '5', 8'589'934'591);
  const auto header = parse_tar_header(block);
  REQUIRE(header.has_value());
  CHECK(*header == TarHeader{.name = "usr/bin/x", .bytes = 8'589'934'591, .type = '5'});
  for (std::size_t size = 0; size < block.size(); size += 31) {
    CHECK(!parse_tar_header(block.substr(0, size)).has_value());
  }
  for (std::size_t i = 0; i < 154; ++i) {  // then come the checksum's terminators
    std::string damaged = block;
    damaged[i] = static_cast<char>(damaged[i] + 1);
    CHECK(!parse_tar_header(damaged).has_value());
  }
  CHECK(is_tar_end(std::string(512, '\0')));
  CHECK(!is_tar_end(block));
  CHECK(!parse_tar_header(std::string(512, '\0')).has_value());
}

TEST_CASE("tar header: blocks are rounded up") {
  CHECK(round_up(0, 512) == 0);
  CHECK(round_up(1, 512) == 512);
  CHECK(round_up(512, 512) == 512);
}

}  // namespace
}  // namespace imagefs_guard::tar_header_test
