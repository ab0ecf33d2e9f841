#pragma once
/// The answer of `check` as people and pipelines read it: a table that fits the terminal, or JSON.
/// Pure; used by check.h.

#include <cstdint>
#include <string>

#include "agent/core/check.h"

namespace imagefs_guard {

/// "12.9 GiB", "640 MiB", "3.4 KiB", "12 B".
[[nodiscard]] std::string size_text(std::int64_t bytes);

/// Against what was checked.
struct CheckSubject {
  std::string name;        // "this node", "EKS AL2023 with 20 GiB"
  std::string assumption;  // of its numbers; empty = none
};

struct TableStyle {
  int columns = 0;  // of the terminal; 0 = as wide as it takes
  bool layers = false;
};

[[nodiscard]] std::string check_table(const CheckReport& report,
                                      const CheckSubject& subject,
                                      const TableStyle& style);

/// One object, "v": 1, keys sorted, bytes as integers; what is not known is null.
[[nodiscard]] std::string check_json(const CheckReport& report, const CheckSubject& subject);

}  // namespace imagefs_guard
