#pragma once
/// `replay`: decides each line of a trace again and says where the answer differs.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "agent/core/policy.h"
#include "agent/core/result.h"

namespace imagefs_guard {

/// Nobody records more than a few MiB; a larger file is something else.
constexpr std::size_t kTraceBytesMaximum = std::size_t{256} << 20;

struct ReplayReport {
  std::size_t decisions = 0;
  std::size_t differing = 0;
  std::string text;  // for people; ends with how many there were

  bool operator==(const ReplayReport&) const = default;
};

/// With `policy` in place of the recorded one, if there is one; what was remembered is what was
/// recorded all the same. InvalidArgument: no trace, with the line's number.
[[nodiscard]] Result<ReplayReport> replay_trace(std::string_view trace,
                                                const std::optional<Policy>& policy);

/// The trace with the decisions of this program in place of the recorded ones: for a test whose
/// decisions have changed on purpose.
[[nodiscard]] Result<std::string> renew_trace(std::string_view trace);

}  // namespace imagefs_guard
