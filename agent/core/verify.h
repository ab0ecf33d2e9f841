#pragma once

/// Broken invariants end the process, in production too: a restart releases every hold, going on
/// with a wrong picture could block a node's pulls. Operating errors are Result, never VERIFY.

namespace imagefs_guard {

/// Prints expression, file:line and, once set, the label of the running tick; then aborts.
[[noreturn]] void verify_failed(const char* expression, const char* file, int line);

/// Names what is running, for verify_failed(); the caller keeps the text alive.
void set_verify_label(const char* label);

}  // namespace imagefs_guard

#define VERIFY(expr)                                             \
  do {                                                           \
    if (!(expr)) [[unlikely]] {                                  \
      ::imagefs_guard::verify_failed(#expr, __FILE__, __LINE__); \
    }                                                            \
  } while (false)
