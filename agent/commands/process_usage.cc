// untested: metrics_test.py compares it with ps.
#include "agent/commands/process_usage.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

#include "agent/io/file.h"

namespace imagefs_guard {

namespace {

Duration duration_of(const timeval& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

/// The second number of statm: resident pages.
std::int64_t resident_bytes() {
  constexpr std::size_t kStatmLimit = 256;
  const auto text = read_file("/proc/self/statm", kStatmLimit);
  if (!text) {
    return 0;
  }
  const std::size_t space = text->find(' ');
  if (space == std::string::npos) {
    return 0;
  }
  std::int64_t pages = 0;
  std::from_chars(text->data() + space + 1, text->data() + text->size(), pages);
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

ProcessView process_usage(WallTime started_at) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {.resident_bytes = resident_bytes(),
          .cpu_time = duration_of(usage.ru_utime) + duration_of(usage.ru_stime),
          .started_at = started_at};
}

}  // namespace imagefs_guard
