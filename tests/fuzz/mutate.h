#pragma once
/// Changes an input so that it keeps its structure: JSON stays JSON and protobuf stays protobuf,
/// with members, fields and values changed. Used by libFuzzer beside its own mutations, and by
/// play_corpus for a few more inputs per file. The seed alone decides.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>

#include "tests/fuzz/targets.h"

namespace imagefs_guard::fuzz {

struct Mutation {
  Shape shape = Shape::Bytes;
  std::size_t size_limit = 0;
  /// Changes plain bytes; libFuzzer's, or mutate_bytes().
  std::function<std::string(std::string_view bytes, std::mt19937_64& random)> plain;
};

/// At most `size_limit` bytes.
[[nodiscard]] std::string mutate(std::string_view input,
                                 const Mutation& mutation,
                                 std::mt19937_64& random);

/// A few bytes are flipped, removed, doubled or inserted.
[[nodiscard]] std::string mutate_bytes(std::string_view bytes, std::mt19937_64& random);

/// One document; what is no JSON comes back as mutated bytes.
[[nodiscard]] std::string mutate_json(std::string_view text,
                                      const Mutation& mutation,
                                      std::mt19937_64& random);

/// One message, nested ones included.
[[nodiscard]] std::string mutate_protobuf(std::string_view message,
                                          const Mutation& mutation,
                                          std::mt19937_64& random);

/// std's distributions differ between libraries.
[[nodiscard]] inline std::size_t below(std::mt19937_64& random, std::size_t n) {
  return n == 0 ? 0 : static_cast<std::size_t>(random() % n);
}

}  // namespace imagefs_guard::fuzz
