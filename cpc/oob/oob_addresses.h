// SPDX-License-Identifier: BSD-3-Clause
//
// Where the listener of a process can be reached: what it publishes, and which of it a peer tries, in which order.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace fabric::cpc {

/// An IP address of an interface, and the size of its network.
struct HostAddress {
  bool is_v6 = false;
  std::uint8_t prefix_bits = 0;          ///< at most 32 or 128
  std::array<std::uint8_t, 16> bytes{};  ///< network order; IPv4 uses the first four
  bool operator==(const HostAddress&) const = default;
};

/// What the oob CPC of a process publishes (the blob of its CpcOffer).
struct OobOffer {
  std::uint16_t port_v4 = 0;  ///< TCP port on the IPv4 addresses; 0: none
  std::uint16_t port_v6 = 0;
  std::vector<HostAddress> addresses;
  bool operator==(const OobOffer&) const = default;
};

inline constexpr std::size_t kMaxHostAddresses = 64;

/// An address and a port to connect to.
struct SocketAddress {
  HostAddress host;
  std::uint16_t port = 0;
};

[[nodiscard]] bool is_loopback(const HostAddress& address) noexcept;

/// True if both are the same IP address, whatever their networks.
[[nodiscard]] bool same_host(const HostAddress& a, const HostAddress& b) noexcept;

/// True if both are addresses of one IP network, by the prefix length of `a`.
[[nodiscard]] bool same_network(const HostAddress& a, const HostAddress& b) noexcept;

/// "10.0.0.1", "fd00::2"
[[nodiscard]] std::string to_string(const HostAddress& address);
/// "10.0.0.1:4000", "[fd00::2]:4000"
[[nodiscard]] std::string to_string(const SocketAddress& address);

/// For connect(). Returns the size used.
socklen_t to_sockaddr(const SocketAddress& address, sockaddr_storage& storage) noexcept;

/// What getsockname() and getpeername() give.
[[nodiscard]] SocketAddress from_sockaddr(const sockaddr_storage& storage) noexcept;

/// An address, and the name of the interface that has it.
struct LocalAddress {
  std::string interface;
  HostAddress host;
};

/// The addresses of all interfaces that are up, loopback included, IPv6 link-local left out (a peer would have to know
/// which of its interfaces to use them on).
[[nodiscard]] Result<std::vector<LocalAddress>> local_addresses();

/// "lo 127.0.0.1/8, eth0 10.0.0.1/24"
[[nodiscard]] std::string to_string(std::span<const LocalAddress> addresses);

/// The addresses of `offer` worth trying, best first. On the same node: loopback, then the others. Otherwise those on a
/// network of ours, then the others, never loopback. Those that we have too only if there are no others: the bridges of
/// container engines have the same on every host, and lead to ourselves, but containers that share their host's network
/// have nothing else.
[[nodiscard]] std::vector<SocketAddress> addresses_to_try(const OobOffer& offer, std::span<const HostAddress> ours,
                                                          bool same_node);

/// The wire form: version, ports, count, then family (4 or 6), prefix length and bytes of each address.
[[nodiscard]] std::vector<std::byte> encode(const OobOffer& offer);

/// Decodes what a peer published. The error says which field was wrong.
[[nodiscard]] Result<OobOffer> decode_oob_offer(std::span<const std::byte> blob);

}  // namespace fabric::cpc
