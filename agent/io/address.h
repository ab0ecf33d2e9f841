#pragma once
/// Where a connection may go: the check behind AddressPolicy::PublicOnly, made on the address that
/// is connected to, so that a name which resolves to the inside of the network gains nothing.

#include <string>

struct sockaddr;

namespace imagefs_guard {

/// False for loopback, link-local, private, shared (100.64/10), unspecified, benchmarking,
/// multicast and reserved addresses, also when written as IPv4-mapped, NAT64 or 6to4 IPv6, and for
/// anything that is not IP.
[[nodiscard]] bool is_public_address(const sockaddr& address);

/// The address without port, or "?".
[[nodiscard]] std::string to_string(const sockaddr& address);

}  // namespace imagefs_guard
