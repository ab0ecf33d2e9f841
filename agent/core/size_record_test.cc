#include "agent/core/size_record.h"

#include <doctest/doctest.h>

#include "tests/unit/builders.h"

namespace imagefs_guard::size_record_test {
namespace {

using testing::digest;

SizeRecord record(unsigned number, std::int64_t bytes, FilesystemKind kind = FilesystemKind::Xfs) {
  return {.diff_id = digest(number), .bytes = bytes, .inodes = 1, .measured_on = kind};
}

TEST_CASE("size records: what is new comes first, what is known stays") {
  std::vector<SizeRecord> known = {record(1, 10), record(2, 20)};
  CHECK(merge_size_records(known, {record(3, 30), record(1, 10), record(3, 31)}, 10));
  CHECK(known == std::vector{record(3, 30), record(1, 10), record(2, 20)});
  CHECK(!merge_size_records(known, {record(3, 30), record(2, 20)}, 10));
  CHECK(!merge_size_records(known, {}, 10));
}

TEST_CASE("size records: the larger size wins, each filesystem has its own") {
  std::vector<SizeRecord> known = {record(1, 10)};
  CHECK(merge_size_records(known, {record(1, 11)}, 10));
  CHECK(!merge_size_records(known, {record(1, 10)}, 10));
  CHECK(merge_size_records(known, {record(1, 9, FilesystemKind::Ext4)}, 10));
  CHECK(known.size() == 2);
}

TEST_CASE("size records: the oldest go first, and a node alone can't push out all others") {
  std::vector<SizeRecord> known;
  std::vector<SizeRecord> first;
  for (unsigned i = 0; i < 20; ++i) {
    first.push_back(record(i, 1));
  }
  CHECK(merge_size_records(known, first, 10));
  CHECK(known.size() == 10);
  CHECK(merge_size_records(known, {record(100, 1)}, 10));
  CHECK(known.front() == record(100, 1));
  CHECK(known.back() == record(8, 1));
  std::vector<SizeRecord> flood;
  for (unsigned i = 200; i < 300; ++i) {
    flood.push_back(record(i, 1));
  }
  CHECK(merge_size_records(known, flood, 10));
  CHECK(known.size() == 10);
  CHECK(known[5] == record(100, 1));
}

TEST_CASE("size records: sixteen shards by the first digit") {
  CHECK(size_shard_of(*parse_digest("sha256:" + std::string(64, 'f'))) == 15);
  CHECK(size_shard_of(*parse_digest("sha256:0" + std::string(63, 'f'))) == 0);
}

}  // namespace
}  // namespace imagefs_guard::size_record_test
