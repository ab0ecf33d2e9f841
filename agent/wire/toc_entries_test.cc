#include "agent/wire/toc_entries.h"

#include <doctest/doctest.h>

#include <random>

#include "tests/unit/fake_blobs.h"

namespace imagefs_guard::toc_entries_test {
namespace {

using testing::small_toc;

Result<SizeFact> read(const std::string& json, std::size_t piece = 1'000'000) {
  TocEntries entries(4096);
  for (std::size_t at = 0; at < json.size(); at += piece) {
    if (Result<void> fed = entries.feed(std::string_view(json).substr(at, piece)); !fed) {
      return fed.error();
    }
  }
  return entries.finish();
}

TEST_CASE("toc entries: what each kind of entry takes on a disk") {
  const auto fact = read(small_toc());
  REQUIRE(fact.has_value());
  CHECK(fact->source == SizeSource::Toc);
  CHECK(fact->bytes == 8192 + 4096);
  // Root, usr, opt, opt/deep; a, b, soft, the whiteout, dev.
  CHECK(fact->inodes == 4 + 5);
  CHECK(fact->ext4_directory_bytes == 4 * 4096);
  CHECK(fact->xfs_directory_bytes == 0);
  // usr and 6 more headers, 5000 and 1 bytes in blocks; the opaque mark has its header too.
  CHECK(fact->toc_tar_bytes == 8 * 512 + 5120 + 512);
}

TEST_CASE("toc entries: pieces of every size read the same") {
  const auto whole = read(small_toc());
  REQUIRE(whole.has_value());
  for (std::size_t piece = 1; piece < 40; ++piece) {
    const auto cut = read(small_toc(), piece);
    REQUIRE(cut.has_value());
    CHECK(*cut == *whole);
  }
}

TEST_CASE("toc entries: cut at each byte, it is no table") {
  const std::string json = small_toc();
  for (std::size_t size = 0; size < json.size(); ++size) {
    CHECK(!read(json.substr(0, size)).has_value());
  }
}

TEST_CASE("toc entries: damage at any byte is an error or a number, never a crash") {
  const std::string json = small_toc();
  std::mt19937_64 random(7);
  for (int i = 0; i < 6'000; ++i) {
    std::string damaged = json;
    for (int k = 0; k < 1 + i % 3; ++k) {
      damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
    }
    if (const auto fact = read(damaged, 1 + random() % 64)) {
      CHECK(fact->bytes >= 0);
      CHECK(fact->inodes > 0);
    }
  }
}

TEST_CASE("toc entries: nonsense is refused") {
  const auto entry = [](const std::string& inner) {
    return read(R"({"entries":[{"name":"a",)" + inner + "}]}");
  };
  CHECK(entry(R"("type":"reg","size":7)").has_value());
  CHECK(!entry(R"("type":"reg","size":-1)").has_value());
  CHECK(!entry(R"("type":"reg","size":1.5)").has_value());
  CHECK(!entry(R"("type":"reg","size":1e3)").has_value());
  CHECK(!entry(R"("type":"reg","size":99999999999999999999)").has_value());
  CHECK(!entry(R"("type":"reg","size":9000000000000000000)").has_value());
  CHECK(!entry(R"("type":"socket")").has_value());
  CHECK(!entry(R"("size":1)").has_value());
  CHECK(!read("[]").has_value());
  CHECK(!read("{}").has_value());
  CHECK(!read("7").has_value());
  CHECK(!read(R"({"entries":{}})").has_value());
  CHECK(!read(R"({"entries":[],"entries":[]})").has_value());
  CHECK(!read(R"({"entries":[]}x)").has_value());
  CHECK(!read(R"({"entries":[],})").has_value());
  CHECK(!read(R"({"entries" []})").has_value());
  CHECK(!read(std::string(1000, '[')).has_value());
  CHECK(!read(R"({"entries":[{"type":)" + std::string(100, '1') + "}]}").has_value());
  CHECK(read(R"({"entries":[]})")->inodes == 1);
  CHECK(read(" {\"x\" : [ 1 , {\"entries\":[{\"type\":3}]} ] ,\n\"entries\" :\t[ ] } ")->inodes ==
        1);
}

TEST_CASE("toc entries: escapes, long names, and names that mean the same directory") {
  CHECK(read(R"({"entries":[{"type":"dir","name":"a\u003cb"},{"type":"reg","name":"./a<b/c"}]})")
            ->inodes == 3);
  CHECK(read(R"({"entries":[{"type":"dir","name":"\u00e4"},{"type":"reg","name":"/ä/c"}]})")
            ->inodes == 3);
  CHECK(read(R"({"entries":[{"type":"reg","name":"a\\\"b\/c"}]})")->inodes == 3);
  CHECK(
      read(R"({"entries":[{"type":"reg","name":")" + std::string(100'000, 'n') + "\"}]}")->inodes ==
      2);
  const std::string link(60, 'l');
  const auto linked =
      read(R"({"entries":[{"type":"symlink","name":"a","linkName":")" + link + "\"}]}");
  CHECK(linked->ext4_directory_bytes == 2 * 4096);
  CHECK(linked->bytes == 0);
}

TEST_CASE("toc entries: directories grow with what they hold") {
  std::string json = R"({"entries":[)";
  for (int i = 0; i < 1000; ++i) {
    json += R"({"type":"reg","name":"d/file-)" + std::to_string(100'000 + i) + R"(","size":1},)";
  }
  json += R"({"type":"dir","name":"d"}]})";
  const auto fact = read(json);
  REQUIRE(fact.has_value());
  CHECK(fact->inodes == 1002);
  CHECK(fact->bytes == 1000 * 4096);
  // 1000 entries of 20 bytes on ext4, of 32 on XFS.
  CHECK(fact->ext4_directory_bytes == 4096 + 32'768);
  CHECK(fact->xfs_directory_bytes == 45'056 + 4096);
}

TEST_CASE("toc entries: a filesystem with other blocks") {
  TocEntries entries(1024);
  REQUIRE(entries.feed(small_toc()).has_value());
  CHECK(entries.finish()->bytes == 5120 + 1024);
}

}  // namespace
}  // namespace imagefs_guard::toc_entries_test
