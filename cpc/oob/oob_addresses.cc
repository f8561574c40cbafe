// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/oob/oob_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "common/base/error_text.h"
#include "common/base/wire.h"

namespace fabric::cpc {
namespace {

constexpr std::uint8_t kOfferVersion = 1;

std::size_t size_of(const HostAddress& address) noexcept {
  return address.is_v6 ? 16 : 4;
}

bool is_v6_link_local(const HostAddress& address) noexcept {
  return address.is_v6 && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

/// Copies the IP bytes of a socket address; false if it is of another family.
bool ip_bytes(const sockaddr* from, HostAddress& to) noexcept {
  if (from == nullptr || (from->sa_family != AF_INET && from->sa_family != AF_INET6)) {
    return false;
  }
  to.is_v6 = from->sa_family == AF_INET6;
  if (to.is_v6) {
    std::memcpy(to.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(from)->sin6_addr, 16);
  } else {
    std::memcpy(to.bytes.data(), &reinterpret_cast<const sockaddr_in*>(from)->sin_addr, 4);
  }
  return true;
}

std::uint8_t count_bits(const HostAddress& mask) noexcept {
  int bits = 0;
  for (const std::uint8_t byte : mask.bytes) {
    bits += std::popcount(byte);
  }
  return static_cast<std::uint8_t>(bits);
}

Status read_host_address(ByteReader& from, HostAddress& address) {
  const auto family = from.get<std::uint8_t>();
  address.prefix_bits = from.get<std::uint8_t>();
  if (family != 4 && family != 6) {
    return failure("address family is " + std::to_string(family) + ", not 4 or 6");
  }
  address.is_v6 = family == 6;
  from.get_bytes(std::as_writable_bytes(std::span(address.bytes).first(size_of(address))));
  if (address.prefix_bits > 8 * size_of(address)) {
    return failure("prefix length is " + std::to_string(address.prefix_bits));
  }
  return {};
}

}  // namespace

bool is_loopback(const HostAddress& address) noexcept {
  if (!address.is_v6) {
    return address.bytes[0] == 127;
  }
  return std::all_of(address.bytes.begin(), address.bytes.end() - 1, [](std::uint8_t byte) { return byte == 0; }) &&
         address.bytes[15] == 1;
}

bool same_host(const HostAddress& a, const HostAddress& b) noexcept {
  return a.is_v6 == b.is_v6 && a.bytes == b.bytes;
}

bool same_network(const HostAddress& a, const HostAddress& b) noexcept {
  if (a.is_v6 != b.is_v6) {
    return false;
  }
  const std::size_t whole = a.prefix_bits / 8;
  const int rest = a.prefix_bits % 8;
  if (!std::equal(a.bytes.begin(), a.bytes.begin() + static_cast<std::ptrdiff_t>(whole), b.bytes.begin())) {
    return false;
  }
  return rest == 0 || ((a.bytes[whole] ^ b.bytes[whole]) >> (8 - rest)) == 0;
}

std::string to_string(const HostAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = address.is_v6 ? AF_INET6 : AF_INET;
  return inet_ntop(family, address.bytes.data(), text.data(), text.size()) == nullptr ? "?" : text.data();
}

std::string to_string(const SocketAddress& address) {
  const std::string host = to_string(address.host);
  return (address.host.is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(address.port);
}

socklen_t to_sockaddr(const SocketAddress& address, sockaddr_storage& storage) noexcept {
  storage = {};
  if (address.host.is_v6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(address.port);
    std::memcpy(&v6->sin6_addr, address.host.bytes.data(), 16);
    return sizeof *v6;
  }
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  v4->sin_family = AF_INET;
  v4->sin_port = htons(address.port);
  std::memcpy(&v4->sin_addr, address.host.bytes.data(), 4);
  return sizeof *v4;
}

SocketAddress from_sockaddr(const sockaddr_storage& storage) noexcept {
  SocketAddress address;
  address.host.is_v6 = storage.ss_family == AF_INET6;
  if (address.host.is_v6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    address.port = ntohs(v6->sin6_port);
    std::memcpy(address.host.bytes.data(), &v6->sin6_addr, 16);
  } else {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    address.port = ntohs(v4->sin_port);
    std::memcpy(address.host.bytes.data(), &v4->sin_addr, 4);
  }
  return address;
}

Result<std::vector<LocalAddress>> local_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return failure("listing the addresses of this host: " + describe_errno(errno));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &freeifaddrs);
  std::vector<LocalAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    HostAddress address;
    HostAddress mask;
    if ((entry->ifa_flags & IFF_UP) == 0 || !ip_bytes(entry->ifa_addr, address) || is_v6_link_local(address)) {
      continue;
    }
    address.prefix_bits =
        ip_bytes(entry->ifa_netmask, mask) ? count_bits(mask) : static_cast<std::uint8_t>(8 * size_of(address));
    found.push_back({entry->ifa_name, address});
  }
  return found;
}

std::string to_string(std::span<const LocalAddress> addresses) {
  std::string text;
  for (const LocalAddress& one : addresses) {
    text += (text.empty() ? "" : ", ") + one.interface + " " + to_string(one.host) + "/" +
            std::to_string(one.host.prefix_bits);
  }
  return text;
}

std::vector<SocketAddress> addresses_to_try(const OobOffer& offer, std::span<const HostAddress> ours, bool same_node) {
  std::vector<SocketAddress> best;
  std::vector<SocketAddress> others;
  std::vector<SocketAddress> ours_too;
  for (const HostAddress& host : offer.addresses) {
    const std::uint16_t port = host.is_v6 ? offer.port_v6 : offer.port_v4;
    const auto is_same = [&](const HostAddress& own) { return same_host(own, host); };
    if (port == 0 || (!same_node && is_loopback(host))) {
      continue;
    }
    if (!same_node && std::any_of(ours.begin(), ours.end(), is_same)) {
      ours_too.push_back({host, port});
      continue;
    }
    const bool near = same_node ? is_loopback(host)
                                : std::any_of(ours.begin(), ours.end(),
                                              [&](const HostAddress& own) { return same_network(own, host); });
    (near ? best : others).push_back({host, port});
  }
  best.insert(best.end(), others.begin(), others.end());
  return best.empty() ? ours_too : best;
}

std::vector<std::byte> encode(const OobOffer& offer) {
  ByteWriter to;
  const std::size_t count = std::min(offer.addresses.size(), kMaxHostAddresses);
  to.put(kOfferVersion);
  to.put(offer.port_v4);
  to.put(offer.port_v6);
  to.put(static_cast<std::uint8_t>(count));
  for (const HostAddress& address : std::span(offer.addresses).first(count)) {
    to.put(static_cast<std::uint8_t>(address.is_v6 ? 6 : 4));
    to.put(address.prefix_bits);
    to.put_bytes(std::as_bytes(std::span(address.bytes).first(size_of(address))));
  }
  return to.take();
}

Result<OobOffer> decode_oob_offer(std::span<const std::byte> blob) {
  ByteReader from(blob);
  const auto version = from.get<std::uint8_t>();
  if (version != kOfferVersion) {
    return failure("oob offer: version " + std::to_string(version) + ", we know " + std::to_string(kOfferVersion));
  }
  OobOffer offer;
  offer.port_v4 = from.get<std::uint16_t>();
  offer.port_v6 = from.get<std::uint16_t>();
  const auto count = from.get<std::uint8_t>();
  if (count > kMaxHostAddresses) {
    return failure("oob offer: " + std::to_string(count) + " addresses, more than " +
                   std::to_string(kMaxHostAddresses));
  }
  for (unsigned i = 0; i < count && from.ok(); ++i) {
    HostAddress address;
    if (Status read = read_host_address(from, address); !read && from.ok()) {
      return failure("oob offer: address " + std::to_string(i), read.error());
    }
    offer.addresses.push_back(address);
  }
  if (!from.ok() || from.remaining() != 0) {
    return failure("oob offer: " + std::to_string(blob.size()) + " bytes are cut off or too long");
  }
  return offer;
}

}  // namespace fabric::cpc
