#include "agent/io/ring_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace imagefs_guard::ring_file_test {
namespace {

/// A directory in memory.
class Folder {
 public:
  Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }

  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  ~Folder() {
    for (const char* name : {kRingNewer, kRingOlder}) {
      unlink((path + "/" + name).c_str());
    }
    rmdir(path.c_str());
  }

  [[nodiscard]] std::string read(const char* name) const {
    std::ostringstream text;
    text << std::ifstream(path + "/" + name).rdbuf();
    return text.str();
  }

  std::string path = "/dev/shm/ring-file-XXXXXX";
};

TEST_CASE("the older file goes when the newer one is full") {
  const Folder folder;
  auto ring = RingFile::open(folder.path, 40);
  REQUIRE(ring);
  CHECK(ring->is_empty());
  REQUIRE(ring->append("line 1..\n"));
  CHECK_FALSE(ring->is_empty());
  CHECK(ring->has_room(9));
  REQUIRE(ring->append("line 2..\n"));
  CHECK_FALSE(ring->has_room(9));
  REQUIRE(ring->turn());
  CHECK(ring->is_empty());
  REQUIRE(ring->append("line 3..\n"));
  CHECK(folder.read(kRingNewer) == "line 3..\n");
  CHECK(folder.read(kRingOlder) == "line 1..\nline 2..\n");
  REQUIRE(ring->turn());
  CHECK(folder.read(kRingOlder) == "line 3..\n");
  const auto refused = ring->append(std::string(21, 'x'));
  REQUIRE(!refused.has_value());
  CHECK(refused.error().kind == ErrorKind::ResourceExhausted);

  struct stat info {};

  REQUIRE(stat((folder.path + "/" + kRingNewer).c_str(), &info) == 0);
  CHECK((info.st_mode & 0777U) == 0600);
}

TEST_CASE("what the process before has written is kept as the older file") {
  const Folder folder;
  {
    auto ring = RingFile::open(folder.path, 100);
    REQUIRE(ring);
    REQUIRE(ring->append("before\n"));
  }
  const auto ring = RingFile::open(folder.path, 100);
  REQUIRE(ring);
  CHECK(folder.read(kRingOlder) == "before\n");
  CHECK(folder.read(kRingNewer).empty());
}

TEST_CASE("a disk is refused, and what isn't there") {
  const auto disk = RingFile::open("/proc", 100);
  REQUIRE(!disk.has_value());
  CHECK(disk.error().kind == ErrorKind::InvalidArgument);
  CHECK(disk.error().message.find("is not in memory") != std::string::npos);
  const auto absent = RingFile::open("/dev/shm/there-is-none", 100);
  REQUIRE(!absent.has_value());
  CHECK(absent.error().kind == ErrorKind::NotFound);
}

}  // namespace
}  // namespace imagefs_guard::ring_file_test
