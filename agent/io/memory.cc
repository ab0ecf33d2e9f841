#include "agent/io/memory.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace imagefs_guard {

namespace {

/// Segments that are never written, not even by the dynamic linker: those pages are the file's.
/// What is relocated (also what is read-only after that) lies in writable segments.
int release_segments_of(dl_phdr_info* program, std::size_t /*size*/, void* total) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  for (int i = 0; i < program->dlpi_phnum; ++i) {
    const auto& segment = program->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) {
      continue;
    }
    const std::uintptr_t begin = (program->dlpi_addr + segment.p_vaddr) & ~(page - 1);
    const std::uintptr_t end = program->dlpi_addr + segment.p_vaddr + segment.p_filesz;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the linker tells addresses as numbers
    if (end > begin && madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED) == 0) {
      *static_cast<std::size_t*>(total) += end - begin;
    }
  }
  return 0;
}

}  // namespace

std::size_t release_program_pages() {
  std::size_t total = 0;
  dl_iterate_phdr(release_segments_of, &total);
  return total;
}

}  // namespace imagefs_guard
