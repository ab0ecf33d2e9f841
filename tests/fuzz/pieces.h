#pragma once
/// Cuts an input into pieces as a network would, the same way each time: streams must decode alike
/// however they are cut.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace imagefs_guard::fuzz {

/// Calls `feed` with one piece after the other until it returns false.
template <typename Feed>
void in_pieces(std::string_view input, Feed&& feed) {
  std::uint64_t state = 14695981039346656037U;
  while (!input.empty()) {
    state = (state ^ static_cast<unsigned char>(input.front())) * 1099511628211U;
    const std::size_t wish =
        (state >> 60U) < 12U ? 1 + (state >> 33U) % 16 : 1 + (state >> 33U) % 4096;
    const std::size_t bytes = std::min<std::size_t>(wish, input.size());
    if (!feed(input.substr(0, bytes))) {
      return;
    }
    input.remove_prefix(bytes);
  }
}

/// The input at its first `separator`: what is before and what is behind it.
struct TwoParts {
  std::string_view first;
  std::string_view second;
};

[[nodiscard]] inline TwoParts split(std::string_view input, char separator = '\n') {
  const std::size_t at = input.find(separator);
  return at == std::string_view::npos ? TwoParts{input, {}}
                                      : TwoParts{input.substr(0, at), input.substr(at + 1)};
}

}  // namespace imagefs_guard::fuzz
