#pragma once
/// Lines in two files of a directory in memory, the older one dropped when the newer one is full:
/// where the flight recorder writes. Refuses a directory that is on a disk: the agent writes
/// nothing to the disk that it guards.

#include <cstddef>
#include <string>
#include <string_view>

#include "agent/core/result.h"

namespace imagefs_guard {

class RingFile {
 public:
  /// `bytes` of both together. What another process left as the newer one becomes the older one.
  /// InvalidArgument where the directory isn't one in memory (tmpfs), else what the system says.
  static Result<RingFile> open(const std::string& directory, std::size_t bytes);

  RingFile(RingFile&& other) noexcept;
  RingFile& operator=(RingFile&& other) = delete;
  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;
  ~RingFile();

  /// Nothing has been written to the newer file yet.
  [[nodiscard]] bool is_empty() const { return written_ == 0; }

  /// Whether a line of this size has room in it.
  [[nodiscard]] bool has_room(std::size_t line_bytes) const {
    return written_ + line_bytes <= bytes_ / 2;
  }

  /// The whole line or nothing of it. ResourceExhausted where it is larger than a file may be.
  [[nodiscard]] Result<void> append(std::string_view line);

  /// The next line goes to a new file.
  [[nodiscard]] Result<void> turn();

 private:
  RingFile(std::string directory, std::size_t bytes);

  std::string directory_;
  std::size_t bytes_;
  std::size_t written_ = 0;  // to the newer file
  int fd_ = -1;
};

/// Names in the directory: the newer file and the older one.
constexpr const char* kRingNewer = "trace.jsonl";
constexpr const char* kRingOlder = "trace.1.jsonl";

}  // namespace imagefs_guard
