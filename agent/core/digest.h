#pragma once
/// A sha256 digest as 32 bytes: the key of manifests, configs, blobs, diff IDs and chain IDs.
/// Bytes instead of text, since a node has tens of thousands of them and a tick compares them all.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace imagefs_guard {

struct Digest {
  std::array<std::uint8_t, 32> bytes{};

  bool operator==(const Digest&) const = default;
  auto operator<=>(const Digest&) const = default;

  [[nodiscard]] bool is_zero() const { return *this == Digest{}; }
};

/// Reads "sha256:" and 64 lower-case hex digits; anything else (sha512 too) is nullopt.
[[nodiscard]] std::optional<Digest> parse_digest(std::string_view text);

/// The digest at the end of a containerd ref such as "layer-sha256:…"; nullopt if there is none.
[[nodiscard]] std::optional<Digest> digest_of_ref(std::string_view ref);

/// "sha256:<64 hex>".
[[nodiscard]] std::string to_string(const Digest& digest);

/// The first 12 hex digits, for people.
[[nodiscard]] std::string short_digest(const Digest& digest);

}  // namespace imagefs_guard
