#include "agent/io/ring_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace imagefs_guard {

namespace {

constexpr mode_t kOwnerOnly = 0600;

Error system_error(const std::string& what, int reason) {
  ErrorKind kind = ErrorKind::Internal;
  switch (reason) {
    case ENOENT:
      kind = ErrorKind::NotFound;
      break;
    case EACCES:
    case EROFS:
      kind = ErrorKind::PermissionDenied;
      break;
    case ENOSPC:
      kind = ErrorKind::ResourceExhausted;
      break;
    default:
      break;
  }
  return Error{kind, what + ": " + std::strerror(reason)};
}

}  // namespace

RingFile::RingFile(std::string directory, std::size_t bytes)
    : directory_(std::move(directory)), bytes_(bytes) {}

RingFile::RingFile(RingFile&& other) noexcept
    : directory_(std::move(other.directory_)),
      bytes_(other.bytes_),
      written_(other.written_),
      fd_(std::exchange(other.fd_, -1)) {}

RingFile::~RingFile() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

Result<RingFile> RingFile::open(const std::string& directory, std::size_t bytes) {
  struct statfs filesystem {};

  if (statfs(directory.c_str(), &filesystem) != 0) {
    return system_error(directory, errno);
  }
  if (filesystem.f_type != TMPFS_MAGIC) {
    return Error{ErrorKind::InvalidArgument,
                 directory +
                     " is not in memory: traces go to a tmpfs, such as an emptyDir of "
                     "medium Memory"};
  }
  RingFile ring(directory, bytes);
  const auto turned = ring.turn();
  if (!turned) {
    return turned.error();
  }
  return ring;
}

Result<void> RingFile::turn() {
  const std::string newer = directory_ + "/" + kRingNewer;
  const std::string older = directory_ + "/" + kRingOlder;
  if (fd_ >= 0) {
    close(fd_);
    fd_ = -1;
  }
  if (std::rename(newer.c_str(), older.c_str()) != 0 && errno != ENOENT) {
    return system_error(newer, errno);
  }
  fd_ = ::open(newer.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kOwnerOnly);
  written_ = 0;
  if (fd_ < 0) {
    return system_error(newer, errno);
  }
  return {};
}

Result<void> RingFile::append(std::string_view line) {
  if (line.size() > bytes_ / 2) {
    return Error{
        ErrorKind::ResourceExhausted,
        "a line of " + std::to_string(line.size()) + " bytes is more than a file may have"};
  }
  if (fd_ < 0) {
    return Error{ErrorKind::FailedPrecondition, directory_ + ": no file is open"};
  }
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      const int reason = errno;
      // Half a line would spoil the file for whoever reads it.
      if (ftruncate(fd_, static_cast<off_t>(written_)) == 0) {
        lseek(fd_, 0, SEEK_END);
      }
      return system_error(directory_, reason);
    }
    done += static_cast<std::size_t>(n);
  }
  written_ += line.size();
  return {};
}

}  // namespace imagefs_guard
