// SPDX-License-Identifier: BSD-3-Clause
#include "common/ports/gid_choice.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>

namespace fabric {
namespace {

using Bytes16 = std::array<std::uint8_t, 16>;

constexpr unsigned kMappedBits = 96;  // of ::ffff:0:0/96, in front of an IPv4 address
constexpr std::uint8_t kDefaultIpv6Bits = 64;
constexpr std::uint8_t kDefaultIpv4Bits = kMappedBits + 24;

bool mapped(const Bytes16& address) noexcept {
  const auto zeros = std::span(address).first<10>();
  return std::all_of(zeros.begin(), zeros.end(), [](std::uint8_t b) { return b == 0; }) && address[10] == 0xff &&
         address[11] == 0xff;
}

/// Lower is better. kInfiniBand on an Ethernet port is what iWARP devices report: their only entry, whatever its type.
unsigned type_rank(GidType type) noexcept {
  switch (type) {
    case GidType::kRoceV2:
      return 0;
    case GidType::kRoceV1:
      return 1;
    case GidType::kInfiniBand:
      break;
  }
  return 2;
}

/// Lower is better: addresses that an administrator gave come before those that interfaces give themselves, which are
/// the same network on every link.
unsigned address_rank(const Gid& gid) noexcept {
  if (is_ipv4_mapped(gid)) {
    return 0;
  }
  return is_link_local(gid) ? 2 : 1;
}

bool better(const GidEntry& a, const GidEntry& b, Transport link) noexcept {
  if (link == Transport::kInfiniBand) {
    return a.index < b.index;
  }
  const auto key = [](const GidEntry& e) { return std::tuple(type_rank(e.type), address_rank(e.gid), e.index); };
  return key(a) < key(b);
}

Subnet network(const Bytes16& address, std::uint8_t bits) noexcept {
  Subnet subnet;
  subnet.bits = std::min<std::uint8_t>(bits, 128);
  for (unsigned i = 0; i < subnet.prefix.size(); ++i) {
    const unsigned kept = std::clamp<unsigned>(subnet.bits, 8 * i, 8 * i + 8) - 8 * i;  // of this byte
    subnet.prefix[i] = static_cast<std::uint8_t>(address[i] & (0xff00U >> kept));
  }
  return subnet;
}

/// iWARP: the GID begins with a MAC address. InfiniBand: the hardware address of IPoIB ends with the GID.
bool has_hardware_address(const InterfaceAddress& interface, const Gid& gid, Transport link) noexcept {
  constexpr std::size_t kMacBytes = 6;
  constexpr std::size_t kIpoibGidOffset = 4;
  const auto& hardware = interface.hardware;
  if (link == Transport::kIwarp) {
    return std::equal(hardware.begin(), hardware.begin() + kMacBytes, gid.raw.begin()) &&
           std::any_of(hardware.begin(), hardware.begin() + kMacBytes, [](std::uint8_t b) { return b != 0; });
  }
  return std::equal(gid.raw.begin(), gid.raw.end(), hardware.begin() + kIpoibGidOffset);
}

/// False for the MAC address that an iWARP device has for a GID, with zeros after it.
bool looks_like_ip(const Gid& gid) noexcept {
  const auto lower = std::span(gid.raw).last<8>();
  return is_ipv4_mapped(gid) || std::any_of(lower.begin(), lower.end(), [](std::uint8_t b) { return b != 0; });
}

/// The network of an address that no interface has: a guess, but for the loopback network, all of which is on one host.
std::uint8_t guessed_bits(const Gid& gid) noexcept {
  if (!is_ipv4_mapped(gid)) {
    return kDefaultIpv6Bits;
  }
  constexpr std::uint8_t kLoopbackBits = kMappedBits + 8;
  return gid.raw[12] == IN_LOOPBACKNET ? kLoopbackBits : kDefaultIpv4Bits;
}

std::string text_of(int family, const void* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  // Cannot fail: the family is known and the buffer large enough.
  inet_ntop(family, address, text.data(), static_cast<socklen_t>(text.size()));
  return text.data();
}

}  // namespace

bool is_ipv4_mapped(const Gid& gid) noexcept {
  return mapped(gid.raw);
}

bool is_link_local(const Gid& gid) noexcept {
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

bool is_zero(const Gid& gid) noexcept {
  return gid == Gid{};
}

std::optional<GidEntry> choose_gid(std::span<const GidEntry> table, Transport link) noexcept {
  std::optional<GidEntry> best;
  for (const GidEntry& entry : table) {
    if (!is_zero(entry.gid) && entry.index <= kMostGidIndex && (!best || better(entry, *best, link))) {
      best = entry;
    }
  }
  return best;
}

std::optional<InterfaceAddress> ip_of_port(const Gid& gid, Transport link,
                                           std::span<const InterfaceAddress> interfaces) noexcept {
  std::optional<InterfaceAddress> best;
  for (const InterfaceAddress& interface : interfaces) {
    const bool fits = (link != Transport::kInfiniBand && interface.address == gid.raw) ||
                      (link != Transport::kRoce && has_hardware_address(interface, gid, link));
    if (fits && (!best || address_rank({interface.address}) < address_rank({best->address}))) {
      best = interface;
    }
  }
  if (!best && link != Transport::kInfiniBand && looks_like_ip(gid)) {
    best = InterfaceAddress{gid.raw, guessed_bits(gid)};
  }
  return best;
}

Subnet subnet_of(const Gid& gid, Transport link, std::span<const InterfaceAddress> interfaces) noexcept {
  if (link == Transport::kInfiniBand) {
    return network(gid.raw, 64);
  }
  if (const auto ip = ip_of_port(gid, link, interfaces)) {
    return network(ip->address, ip->prefix_bits);
  }
  return network(gid.raw, guessed_bits(gid));
}

std::string to_string(const Gid& gid) {
  return text_of(AF_INET6, gid.raw.data());
}

std::string to_string(const Subnet& subnet) {
  if (mapped(subnet.prefix) && subnet.bits >= kMappedBits) {
    return text_of(AF_INET, subnet.prefix.data() + 12) + "/" + std::to_string(subnet.bits - kMappedBits);
  }
  return text_of(AF_INET6, subnet.prefix.data()) + "/" + std::to_string(subnet.bits);
}

}  // namespace fabric
