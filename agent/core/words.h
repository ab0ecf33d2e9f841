#pragma once
/// Numbers and verdicts as people read them. Everything that is printed about a decision, in log,
/// Event, status and test, comes from here.

#include <cstdint>
#include <string>

#include "agent/core/decision.h"

namespace imagefs_guard {

constexpr std::int64_t kMib = std::int64_t{1} << 20;
constexpr std::int64_t kGib = std::int64_t{1} << 30;

/// Bytes in GiB: one decimal from 1 GiB on, two below: "12.9", "0.62". Rounded half up.
[[nodiscard]] std::string gib_text(std::int64_t bytes);

/// The sentence of a judged pull; `report` has all but the sentence.
[[nodiscard]] std::string verdict_sentence(const PullReport& report, const NodeReport& node);

/// Where the unpacked sizes of the missing layers come from: "3 learned here, 2 gzip trailer".
/// Empty if none is missing.
[[nodiscard]] std::string size_sources_text(const Demand& demand);

/// At most `limit` bytes, cut on a UTF-8 boundary, with "…" where something was cut.
[[nodiscard]] std::string shorten(const std::string& text, std::size_t limit);

}  // namespace imagefs_guard
