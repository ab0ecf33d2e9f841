#include "agent/io/memory.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

namespace imagefs_guard::memory_test {
namespace {

constexpr std::size_t kPages = 256;
constexpr std::size_t kPageBytes = 4096;

/// Read-only data of this program, large enough to be seen; relocated data beside it.
alignas(4096) constexpr char kTable[kPages * kPageBytes] = {1};
const char* const kRelocated[] = {"one", "two", "three"};
int written = 1;

TEST_CASE("release_program_pages: all is as it was, written and relocated data too") {
  written = 42;
  std::size_t sum = 0;
  for (std::size_t i = 0; i < kPages; ++i) {
    sum += static_cast<std::size_t>(static_cast<const volatile char*>(kTable)[i * kPageBytes]);
  }
  CHECK(sum == 1);

  CHECK(release_program_pages() > kPages * kPageBytes);

  CHECK(written == 42);
  CHECK(std::string(kRelocated[2]) == "three");
  CHECK(static_cast<const volatile char*>(kTable)[0] == 1);
  CHECK(static_cast<const volatile char*>(kTable)[(kPages - 1) * kPageBytes] == 0);
}

}  // namespace
}  // namespace imagefs_guard::memory_test
