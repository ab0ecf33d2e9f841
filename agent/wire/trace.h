#pragma once
/// Traces: one JSON object per line and decision, with what was seen, remembered, wanted and
/// decided. Written by the flight recorder, read by `replay` and by tests/replay. Pure.
///   {"v":1,"tick":42,"policy":{…},"snapshot":{…},"memory":{…},"decision":{…}}
/// The first line of a file is whole. Later ones leave out parts that are as in the line before,
/// and of the long lists ("pods", "manifests", the runtime's) they have what changed between an
/// unchanged beginning and end: {"head":12,"tail":300,"items":[…]}. Members at their default are
/// left out, but for the policy; null or false is "not observed". A snapshot holds no secrets.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/decision.h"
#include "agent/core/node_snapshot.h"
#include "agent/core/policy.h"
#include "agent/core/result.h"

namespace imagefs_guard {

constexpr std::int64_t kTraceVersion = 1;
/// A whole line of the largest node (4,000 layers, 250 pods) has 2 MiB.
constexpr std::size_t kTraceLineBytesMaximum = std::size_t{16} << 20;

/// One decision and what it rested on.
struct TraceTick {
  std::uint64_t number = 0;
  const NodeSnapshot& snapshot;
  const Memory& memory;  // as it was given to decide()
  const Policy& policy;
  const Decision& decision;
};

class TraceEncoder {
 public:
  /// The next line is whole again: a file begins.
  void begin_file();

  /// The line, with its newline.
  [[nodiscard]] std::string encode(const TraceTick& tick);

 private:
  class Parts;

  std::map<std::string, std::uint64_t> wholes_;              // hash of a part as last written
  std::map<std::string, std::vector<std::uint64_t>> lists_;  // hash of each element
};

/// A line as it was recorded, with what it left out.
struct TraceLine {
  std::uint64_t number = 0;
  NodeSnapshot snapshot;
  Memory memory;
  Policy policy;
  std::string decision;  // as encode_decision() wrote it
};

class TraceDecoder {
 public:
  /// InvalidArgument in one sentence: no JSON, another version, a part that can't be read. After
  /// an error the decoder is of no use any more.
  [[nodiscard]] Result<const TraceLine*> decode(std::string_view line);

 private:
  class Parts;

  TraceLine line_;
  bool begun_ = false;
};

/// What of a decision is compared: reports, actions in words, and a checksum of its memory.
[[nodiscard]] std::string encode_decision(const Decision& decision);

/// "pulls[0].verdict: \"Fits\" → \"FitsLater\"": every place where two such texts differ, at most
/// `limit` and then how many more.
[[nodiscard]] std::vector<std::string> decision_differences(const std::string& recorded,
                                                            const std::string& decided,
                                                            std::size_t limit);

/// Of what makes a decision worth a line: stage, pulls with their states and verdicts, holds,
/// actions, blind spots. Not of bytes, which change all the time.
[[nodiscard]] std::uint64_t decision_shape(const NodeSnapshot& snapshot, const Decision& decision);

}  // namespace imagefs_guard
