// SPDX-License-Identifier: BSD-3-Clause
//
// Which port of ours talks to which port of a peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/ports/port_address.h"

namespace fabric {

/// True if packets can go from one to the other: same kind of link, same subnet (any subnet if `any_subnet`), same rail and same
/// path of the ports.
[[nodiscard]] bool reachable(const PortAddress& a, const PortAddress& b, bool any_subnet) noexcept;

/// For each of our ports, the index of the peer's port that it talks to, or nothing. On every rail of every subnet our n-th port
/// pairs up with the peer's n-th. With `any_subnet` the ports left over then pair up in the same way across subnets.
/// Others stay alone. Both sides compute the same pairs: pair_ports(a, b) is the inverse of pair_ports(b, a).
[[nodiscard]] std::vector<std::optional<std::uint16_t>> pair_ports(std::span<const PortAddress> ours,
                                                                   std::span<const PortAddress> theirs,
                                                                   bool any_subnet);

/// Why a port of ours, by name, has none of theirs: a sentence without its end, for users.
[[nodiscard]] std::string why_unpaired(const std::string& name, const PortAddress& port,
                                       std::span<const PortAddress> theirs);

/// The same as pair_ports() where every port is there once for each of so many transmit contexts, one after the other: those of a port
/// pair up with those of the peer's port, the n-th with the n-th, and what one side has more of stays alone.
[[nodiscard]] std::vector<std::optional<std::uint16_t>> pair_contexts(std::span<const PortAddress> ours,
                                                                      std::size_t our_contexts,
                                                                      std::span<const PortAddress> theirs,
                                                                      std::size_t their_contexts, bool any_subnet);

}  // namespace fabric
