#include "agent/io/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace imagefs_guard {

namespace {

Error file_error(const std::string& path, int error_number) {
  ErrorKind kind = ErrorKind::Internal;
  if (error_number == ENOENT || error_number == ENOTDIR) {
    kind = ErrorKind::NotFound;
  } else if (error_number == EACCES || error_number == EPERM) {
    kind = ErrorKind::PermissionDenied;
  }
  return Error{kind, path + ": " + std::strerror(error_number)};
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  // Not blocking, so that a FIFO in place of a file can't stop the loop.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return file_error(path, errno);
  }
  std::string content;
  std::array<char, 4096> chunk{};
  std::optional<Error> error;
  while (!error) {
    const ssize_t got = read(fd, chunk.data(), chunk.size());
    if (got == 0) {
      break;
    }
    if (got < 0 && errno != EINTR) {
      error = file_error(path, errno);
    } else if (got > 0 && static_cast<std::size_t>(got) > limit - content.size()) {
      error = Error{ErrorKind::ResourceExhausted,
                    path + ": longer than " + std::to_string(limit) + " bytes"};
    } else if (got > 0) {
      content.append(chunk.data(), static_cast<std::size_t>(got));
    }
  }
  close(fd);
  if (error) {
    return *std::move(error);
  }
  return content;
}

}  // namespace imagefs_guard
