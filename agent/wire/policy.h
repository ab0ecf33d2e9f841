#pragma once
/// The policy file (YAML) to core's Policy. Every mistake is one sentence with its line: an
/// unknown key names the nearest valid one. Called by main.cc, which exits 78 on an error; pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/policy.h"
#include "agent/core/result.h"

namespace imagefs_guard {

constexpr std::size_t kPolicyBytesLimit = std::size_t{256} << 10;

/// The built-in policy, changed by what the text sets. Lists replace the built-in ones, except
/// protectedLabels, which adds to them unless defaultProtectedLabels is false.
[[nodiscard]] Result<Policy> parse_policy(std::string_view text);

/// One key of the policy file, for documentation and `check_tree`.
struct PolicyKey {
  std::string name;           // "ecr.endpoint": member of the map `ecr`
  std::string unit;           // "duration", "quantity", "list of host[:port]", …
  std::string default_value;  // as one would write it; "" = not set
  std::string effect;         // one sentence

  bool operator==(const PolicyKey&) const = default;
};

/// All keys, in the order of the documentation.
[[nodiscard]] std::vector<PolicyKey> policy_keys();

}  // namespace imagefs_guard
