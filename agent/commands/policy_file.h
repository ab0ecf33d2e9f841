#pragma once
/// The policy file, at the start and as it changes. In a cluster it is a mounted ConfigMap, which
/// the kubelet swaps as a whole (..data is a symlink): one stat tells whether it is another file.
/// Decides nothing: main.cc takes a good policy and keeps the old one beside a bad one.

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "agent/core/policy.h"
#include "agent/core/result.h"

namespace imagefs_guard {

class PolicyFile {
 public:
  /// Empty: the built-in policy, which never changes.
  explicit PolicyFile(std::string path) : path_(std::move(path)) {}

  /// Reads it. Errors name the file, and the line where there is one.
  [[nodiscard]] Result<Policy> load();

  /// What load() says if the file is another one than at the last look; else nullopt. A file that
  /// can't be read is told once.
  [[nodiscard]] std::optional<Result<Policy>> poll();

 private:
  /// Device, inode, size, time of change: all zero where there is no file.
  using Identity = std::array<std::int64_t, 5>;

  [[nodiscard]] Identity look() const;

  std::string path_;
  Identity seen_{};
};

/// Why the policy can't replace the other one while the agent runs; nullopt = it can.
[[nodiscard]] std::optional<Error> why_not_now(const Policy& running, const Policy& next);

}  // namespace imagefs_guard
