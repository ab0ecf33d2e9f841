// Traces: lines that somebody else has recorded, and that `replay` decides again.
#include <algorithm>
#include <string>

#include "agent/core/decide.h"
#include "agent/core/verify.h"
#include "agent/wire/trace.h"
#include "tests/fuzz/targets.h"

namespace imagefs_guard::fuzz {

namespace {

constexpr int kLinesMaximum = 20;

/// What was read is written and read again as the same, and its decision is the same twice.
void check_line(const TraceLine& line) {
  const Decision decision = decide(line.snapshot, line.memory, line.policy);
  VERIFY(encode_decision(decision) ==
         encode_decision(decide(line.snapshot, line.memory, line.policy)));
  TraceEncoder encoder;
  const std::string text = encoder.encode({.number = line.number,
                                           .snapshot = line.snapshot,
                                           .memory = line.memory,
                                           .policy = line.policy,
                                           .decision = decision});
  TraceDecoder decoder;
  const auto again = decoder.decode(text);
  VERIFY(again);
  VERIFY(encode_decision(decide((*again)->snapshot, (*again)->memory, (*again)->policy)) ==
         encode_decision(decision));
}

}  // namespace

void trace(std::string_view input) {
  TraceDecoder decoder;
  for (int i = 0; i < kLinesMaximum && !input.empty(); ++i) {
    const std::size_t end = std::min(input.find('\n'), input.size());
    const auto line = decoder.decode(input.substr(0, end));
    if (!line) {
      VERIFY(!line.error().message.empty());
      return;
    }
    check_line(**line);
    static_cast<void>(decision_differences((*line)->decision, "{}", 3));
    input.remove_prefix(std::min(end + 1, input.size()));
  }
}

}  // namespace imagefs_guard::fuzz
