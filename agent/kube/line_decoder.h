#pragma once
/// Cuts a byte stream into lines as it comes in, in bounded memory: a watch sends one JSON object
/// per line, in chunks that end anywhere. Used by Watch.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "agent/core/result.h"

namespace imagefs_guard {

class LineDecoder {
 public:
  /// A longer line is ResourceExhausted.
  explicit LineDecoder(std::size_t line_limit) : line_limit_(line_limit) {}

  /// Calls `on_line` for each line that ends in this chunk, without its newline; empty lines are
  /// left out. Stops at the first error, `on_line`'s or its own; then only reset() helps.
  [[nodiscard]] Result<void> feed(std::string_view chunk,
                                  const std::function<Result<void>(std::string_view)>& on_line);

  /// Forgets a half line.
  void reset();

 private:
  std::size_t line_limit_;
  std::string partial_;
};

}  // namespace imagefs_guard
