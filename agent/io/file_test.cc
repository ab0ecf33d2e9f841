#include "agent/io/file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace imagefs_guard::file_test {

namespace {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = std::filesystem::temp_directory_path() / "imagefs-guard-file-XXXXXX";
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }

  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }

  [[nodiscard]] std::string file(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("a file is read whole, up to the limit") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("token");
  std::ofstream(path) << std::string(5000, 'x');
  CHECK(read_file(path, 5000).value() == std::string(5000, 'x'));
  CHECK(read_file(path, 4999).error().kind == ErrorKind::ResourceExhausted);
  std::ofstream(path, std::ios::trunc) << "";
  CHECK(read_file(path, 0).value().empty());
}

TEST_CASE("the reason for a failure has its kind") {
  const TemporaryDirectory directory;
  CHECK(read_file(directory.file("none"), 10).error().kind == ErrorKind::NotFound);
  CHECK(read_file(directory.file(""), 10).error().kind == ErrorKind::Internal);
}

TEST_CASE("a FIFO does not block") {
  const TemporaryDirectory directory;
  REQUIRE(mkfifo(directory.file("fifo").c_str(), 0600) == 0);
  CHECK(read_file(directory.file("fifo"), 10).value().empty());
}

}  // namespace imagefs_guard::file_test
