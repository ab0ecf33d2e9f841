#pragma once
/// Gives back what only the start needed: of this program and its libraries the kernel maps 64 KiB
/// around each page that is touched, most of it never used again.

#include <cstddef>

namespace imagefs_guard {

/// Unmaps the read-only pages of the program and its libraries; what is needed again comes back
/// from the page cache by itself. Returns the bytes of the ranges that were let go, 0 where the
/// kernel refuses. Source: madvise(2), MADV_DONTNEED on private file mappings that were not
/// written.
std::size_t release_program_pages();

}  // namespace imagefs_guard
