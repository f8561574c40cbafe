// SPDX-License-Identifier: BSD-3-Clause
//
// The address of a verbs port, as it travels to peers.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

namespace fabric {

/// A global identifier: 16 bytes in network order. InfiniBand Architecture Specification 1.4, section 4.1.
struct Gid {
  std::array<std::uint8_t, 16> raw{};
  auto operator<=>(const Gid&) const = default;
};

/// What carries the packets of a port. Values travel in the modex.
enum class Transport : std::uint8_t { kInfiniBand = 1, kRoce = 2, kIwarp = 3 };

/// The network that a port is on; ports on equal subnets can reach each other. For InfiniBand the 64-bit subnet prefix,
/// for Ethernet the IP network of the GID's address (v4 or v6): its bytes, masked, and the prefix length in bits.
struct Subnet {
  std::array<std::uint8_t, 16> prefix{};
  std::uint8_t bits = 0;
  auto operator<=>(const Subnet&) const = default;
};

/// Most paths of a port.
inline constexpr unsigned kMaxPaths = 8;

/// Everything a peer must know about a port to send to it.
struct PortAddress {
  Transport link = Transport::kInfiniBand;
  std::uint16_t lid = 0;  ///< InfiniBand only; of this path
  Gid gid;                ///< of the GID table entry that this process uses
  std::uint8_t mtu = 0;   ///< active MTU as enum ibv_mtu: 1 = 256 bytes ... 5 = 4096 bytes
  Subnet subnet;
  std::uint8_t path = 0;  ///< of several paths through a port, which
  std::uint8_t roce = 0;  ///< version of RoCE that the GID stands for, 1 or 2; 0: the link is another one
  std::uint8_t rail = 0;  ///< that the user has put the port on; 0: on none
  auto operator<=>(const PortAddress&) const = default;
};

}  // namespace fabric
