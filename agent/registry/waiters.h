#pragma once
/// Single flight: whoever asks for what is being fetched already waits for the same answer.

#include <functional>
#include <utility>
#include <vector>

#include "agent/core/result.h"

namespace imagefs_guard {

template <typename T>
using Done = std::function<void(Result<T>)>;

template <typename T>
class Waiters {
 public:
  void add(Done<T> done) { waiting_.push_back(std::move(done)); }

  [[nodiscard]] bool empty() const { return waiting_.empty(); }

  /// Answers all; who asks again from inside waits for the next answer.
  void finish(const Result<T>& result) {
    const std::vector<Done<T>> waiting = std::exchange(waiting_, {});
    for (const Done<T>& done : waiting) {
      done(result);
    }
  }

 private:
  std::vector<Done<T>> waiting_;
};

}  // namespace imagefs_guard
