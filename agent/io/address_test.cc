#include "agent/io/address.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>

#include <cstring>

namespace imagefs_guard::address_test {

namespace {

bool is_public(const char* text) {
  sockaddr_storage storage{};
  if (std::strchr(text, ':') != nullptr) {
    sockaddr_in6 ip6{};
    ip6.sin6_family = AF_INET6;
    REQUIRE(inet_pton(AF_INET6, text, &ip6.sin6_addr) == 1);
    std::memcpy(&storage, &ip6, sizeof(ip6));
  } else {
    sockaddr_in ip4{};
    ip4.sin_family = AF_INET;
    REQUIRE(inet_pton(AF_INET, text, &ip4.sin_addr) == 1);
    std::memcpy(&storage, &ip4, sizeof(ip4));
  }
  const auto& address = reinterpret_cast<const sockaddr&>(storage);
  CHECK(to_string(address) == text);
  return is_public_address(address);
}

}  // namespace

TEST_CASE("inside addresses are refused, in every spelling") {
  for (const char* text : {"0.0.0.0",
                           "0.255.1.1",
                           "10.0.0.1",
                           "10.255.255.255",
                           "100.64.0.1",
                           "100.127.255.255",
                           "127.0.0.1",
                           "127.9.9.9",
                           "169.254.169.254",
                           "172.16.0.1",
                           "172.31.255.255",
                           "192.168.0.1",
                           "192.0.0.170",
                           "198.18.0.1",
                           "198.19.255.255",
                           "224.0.0.1",
                           "240.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "fe80::1",
                           "fc00::1",
                           "fd00:ec2::254",
                           "ff02::1",
                           "::ffff:10.0.0.1",
                           "::ffff:127.0.0.1",
                           "64:ff9b::a00:1",
                           "2002:a00:1::",
                           "2001::1",
                           "::ffff:192.168.1.1",
                           "2002:7f00:1::1"}) {
    CAPTURE(text);
    CHECK_FALSE(is_public(text));
  }
}

TEST_CASE("public addresses pass, also just outside the private ranges") {
  for (const char* text :
       {"1.1.1.1",         "9.255.255.255",   "11.0.0.0",       "100.63.255.255",
        "100.128.0.0",     "126.255.255.255", "128.0.0.1",      "169.253.255.255",
        "169.255.0.0",     "172.15.255.255",  "172.32.0.0",     "192.167.255.255",
        "192.169.0.0",     "198.17.255.255",  "198.20.0.0",     "223.255.255.255",
        "2606:4700::1111", "2a05:d000::1",    "::ffff:1.1.1.1", "64:ff9b::101:101"}) {
    CAPTURE(text);
    CHECK(is_public(text));
  }
}

TEST_CASE("what is not IP is not public") {
  sockaddr address{};
  address.sa_family = AF_UNIX;
  CHECK_FALSE(is_public_address(address));
  CHECK(to_string(address) == "?");
}

}  // namespace imagefs_guard::address_test
