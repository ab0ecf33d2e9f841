#include "agent/io/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace imagefs_guard {

namespace {

struct Range4 {
  std::uint32_t network;
  int prefix_bits;
};

// IANA's special-purpose registry, as far as it is not globally reachable.
constexpr std::array kPrivate4 = {
    Range4{0x00000000, 8},   // 0.0.0.0/8
    Range4{0x0a000000, 8},   // 10.0.0.0/8
    Range4{0x64400000, 10},  // 100.64.0.0/10
    Range4{0x7f000000, 8},   // 127.0.0.0/8
    Range4{0xa9fe0000, 16},  // 169.254.0.0/16: instance metadata too
    Range4{0xac100000, 12},  // 172.16.0.0/12
    Range4{0xc0000000, 24},  // 192.0.0.0/24
    Range4{0xc0a80000, 16},  // 192.168.0.0/16
    Range4{0xc6120000, 15},  // 198.18.0.0/15
    Range4{0xe0000000, 3},   // multicast, reserved, broadcast
};

bool is_public4(std::uint32_t address) {
  for (const Range4& range : kPrivate4) {
    if ((address ^ range.network) >> (32 - range.prefix_bits) == 0) {
      return false;
    }
  }
  return true;
}

std::uint32_t embedded4(const std::uint8_t* bytes) {
  std::uint32_t network_order = 0;
  std::memcpy(&network_order, bytes, sizeof(network_order));
  return ntohl(network_order);
}

bool is_public6(const in6_addr& address) {
  const std::uint8_t* bytes = address.s6_addr;
  constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  constexpr std::array<std::uint8_t, 12> kNat64 = {0, 0x64, 0xff, 0x9b};
  if (std::memcmp(bytes, kMapped.data(), kMapped.size()) == 0 ||
      std::memcmp(bytes, kNat64.data(), kNat64.size()) == 0) {
    return is_public4(embedded4(bytes + 12));
  }
  if (bytes[0] == 0x20 && bytes[1] == 0x02) {  // 6to4
    return is_public4(embedded4(bytes + 2));
  }
  if (bytes[0] == 0x20 && bytes[1] == 0x01 && bytes[2] == 0 && bytes[3] == 0) {  // Teredo
    return false;
  }
  // Only 2000::/3 is global unicast: ::, ::1, fc00::/7, fe80::/10 and ff00::/8 are outside it.
  return (bytes[0] & 0xe0) == 0x20;
}

}  // namespace

bool is_public_address(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in ip4{};
    std::memcpy(&ip4, &address, sizeof(ip4));
    return is_public4(ntohl(ip4.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 ip6{};
    std::memcpy(&ip6, &address, sizeof(ip6));
    return is_public6(ip6.sin6_addr);
  }
  return false;
}

std::string to_string(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const char* written = nullptr;
  if (address.sa_family == AF_INET) {
    sockaddr_in ip4{};
    std::memcpy(&ip4, &address, sizeof(ip4));
    written = inet_ntop(AF_INET, &ip4.sin_addr, text.data(), text.size());
  } else if (address.sa_family == AF_INET6) {
    sockaddr_in6 ip6{};
    std::memcpy(&ip6, &address, sizeof(ip6));
    written = inet_ntop(AF_INET6, &ip6.sin6_addr, text.data(), text.size());
  }
  return written != nullptr ? written : "?";
}

}  // namespace imagefs_guard
