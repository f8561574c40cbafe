// SPDX-License-Identifier: BSD-3-Clause
//
// What is known of a CPC without running it: the same in every process.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/result.h"
#include "common/ports/process_info.h"

namespace fabric::cpc {

/// Each CPC has one constant of this type in its folder.
struct CpcTraits {
  CpcKind kind{};              ///< its number in the modex: 1 to 31, never given to another CPC
  std::string_view name;       ///< as users write it: "rdmacm"
  bool exchanges_cts = false;  ///< main threads exchange CTS over the queue pairs that it brings up
  bool one_way = false;        ///< it is for X queues, and only for these: its connections go one way
  /// It connects InfiniBand ports by their LIDs, which lead no further than their subnet: what leads to another is the
  /// LID of a router, which a communication manager knows to ask for.
  bool within_subnet = false;
  bool operator==(const CpcTraits&) const = default;
};

/// Bit n: the kind with number n.
using CpcSet = std::uint32_t;
inline constexpr CpcSet kEveryCpc = ~CpcSet{0};

[[nodiscard]] constexpr CpcSet set_of(CpcKind kind) noexcept {
  return CpcSet{1} << static_cast<unsigned>(kind);
}

/// Parses "oob,rdmacm". The error shows the item and lists the names of `known`.
[[nodiscard]] Result<CpcSet> parse_cpc_list(std::string_view list, std::span<const CpcTraits> known);

}  // namespace fabric::cpc
