#include "agent/kube/line_decoder.h"

#include <string>

namespace imagefs_guard {
namespace {

/// A rare large object must not stay in memory as capacity.
constexpr std::size_t kKeptCapacity = std::size_t{64} << 10;

}  // namespace

Result<void> LineDecoder::feed(std::string_view chunk,
                               const std::function<Result<void>(std::string_view)>& on_line) {
  while (!chunk.empty()) {
    const std::size_t end = chunk.find('\n');
    const std::string_view piece = chunk.substr(0, end);
    if (partial_.size() + piece.size() > line_limit_) {
      return Error{ErrorKind::ResourceExhausted,
                   "a line of more than " + std::to_string(line_limit_) + " bytes"};
    }
    if (end == std::string_view::npos) {
      partial_.append(piece);
      return {};
    }
    chunk.remove_prefix(end + 1);
    if (partial_.empty()) {
      if (!piece.empty()) {
        TRY(on_line(piece));
      }
      continue;
    }
    partial_.append(piece);
    TRY(on_line(partial_));
    partial_.clear();
    if (partial_.capacity() > kKeptCapacity) {
      partial_.shrink_to_fit();
    }
  }
  return {};
}

void LineDecoder::reset() {
  partial_.clear();
  partial_.shrink_to_fit();
}

}  // namespace imagefs_guard
