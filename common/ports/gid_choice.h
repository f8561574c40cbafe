// SPDX-License-Identifier: BSD-3-Clause
//
// Which entry of a port's GID table a process uses, and which subnet that puts it on. Pure functions of what verbs and
// the interfaces say.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/ports/port_address.h"

namespace fabric {

/// Type of a GID table entry, as the kernel reports it.
enum class GidType : std::uint8_t { kInfiniBand, kRoceV1, kRoceV2 };

struct GidEntry {
  std::uint32_t index = 0;  ///< in the port's GID table
  Gid gid;
  GidType type = GidType::kInfiniBand;
};

/// An address of a network interface of this host; IPv4 addresses are IPv4-mapped (::ffff:a.b.c.d), with the prefix
/// length counted in the 128 bits (so /24 is 120).
struct InterfaceAddress {
  std::array<std::uint8_t, 16> address{};
  std::uint8_t prefix_bits = 0;
  std::uint32_t interface = 0;              ///< its index, which link-local addresses are used with
  std::array<std::uint8_t, 20> hardware{};  ///< MAC address, or IPoIB's, which ends in a GID; zeros where there is none
};

[[nodiscard]] bool is_ipv4_mapped(const Gid& gid) noexcept;
[[nodiscard]] bool is_link_local(const Gid& gid) noexcept;
[[nodiscard]] bool is_zero(const Gid& gid) noexcept;

/// What ibv_global_route::sgid_index can say.
inline constexpr std::uint32_t kMostGidIndex = 255;

/// The entry to use, of those up to kMostGidIndex. InfiniBand: the first. Ethernet: RoCE v2 before v1, and within each
/// IPv4-mapped, then other IPv6, then link-local; the lowest index of equals. Nothing if there is none that is not zero.
[[nodiscard]] std::optional<GidEntry> choose_gid(std::span<const GidEntry> table, Transport link) noexcept;

/// The IP address of a port that uses `gid`. RoCE: the GID itself, which is one. iWARP, whose GIDs begin with a MAC
/// address as a rule, and InfiniBand with IPoIB: that of the interface with this hardware address; IPv4 before IPv6,
/// and link-local last. Nothing if there is none.
[[nodiscard]] std::optional<InterfaceAddress> ip_of_port(const Gid& gid, Transport link,
                                                         std::span<const InterfaceAddress> interfaces) noexcept;

/// The subnet of a port that uses `gid`. InfiniBand: the upper 64 bits. Otherwise the IP network of ip_of_port();
/// where that is not an interface's, /64 for IPv6 and /24 for IPv4-mapped addresses.
[[nodiscard]] Subnet subnet_of(const Gid& gid, Transport link, std::span<const InterfaceAddress> interfaces) noexcept;

/// The usual text: "fe80::1", "::ffff:10.0.0.1".
[[nodiscard]] std::string to_string(const Gid& gid);

/// "10.0.0.0/24", "fe80::/64".
[[nodiscard]] std::string to_string(const Subnet& subnet);

}  // namespace fabric
