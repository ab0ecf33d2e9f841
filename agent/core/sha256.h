#pragma once
/// SHA-256 (FIPS 180-4): verifies every manifest and config that is read, and derives chain IDs.
/// Own, since core has no dependencies; manifests are small, so plain C++ is fast enough.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "agent/core/digest.h"

namespace imagefs_guard {

/// Hashes piecewise. finish() ends it.
class Sha256 {
 public:
  void update(std::string_view bytes);
  [[nodiscard]] Digest finish();

 private:
  void compress(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667,
                                         0xbb67ae85,
                                         0x3c6ef372,
                                         0xa54ff53a,
                                         0x510e527f,
                                         0x9b05688c,
                                         0x1f83d9ab,
                                         0x5be0cd19};
  std::array<std::uint8_t, 64> buffer_{};
  std::size_t buffered_ = 0;
  std::uint64_t total_bytes_ = 0;
};

[[nodiscard]] Digest sha256(std::string_view bytes);

/// The chain ID of a layer on top of another: sha256("<parent chain ID> <diff ID>"), with their
/// "sha256:" prefixes. The first layer's chain ID is its diff ID.
[[nodiscard]] Digest chain_id_of(const Digest& parent_chain_id, const Digest& diff_id);

}  // namespace imagefs_guard
