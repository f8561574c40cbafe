// SPDX-License-Identifier: BSD-3-Clause
//
// Which CPC connects two ports. Each side decides by itself, from what both have published.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/ports/process_info.h"
#include "cpc/core/cpc_traits.h"

namespace fabric::cpc {

/// The offer that both sides choose for a connection between port `our_port` of `ours` and `their_port` of `theirs`: of
/// the kinds that both offer for these ports the one with the highest priority (of either side), of equals the lowest
/// CpcKind. Null if there is none. Points into `theirs`. Only those of `known` count that can connect these ports.
[[nodiscard]] const CpcOffer* choose_cpc(std::span<const CpcTraits> known, const ProcessInfo& ours,
                                         std::uint16_t our_port, const ProcessInfo& theirs,
                                         std::uint16_t their_port) noexcept;

/// Why there is none, for each of `known`: "oob: not here (...); rdmacm: not at the peer (...)".
[[nodiscard]] std::string why_no_cpc(std::span<const CpcTraits> known, const ProcessInfo& ours, std::uint16_t our_port,
                                     const ProcessInfo& theirs, std::uint16_t their_port);

}  // namespace fabric::cpc
