// SPDX-License-Identifier: BSD-3-Clause
//
// The names of the CPCs, as users write them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/ports/process_info.h"

namespace fabric::cpc {

inline constexpr std::array kEveryCpcKind{CpcKind::kOob, CpcKind::kXoob, CpcKind::kRdmaCm, CpcKind::kIbCm};

/// Bit n: the kind with value n.
using CpcSet = std::uint32_t;

[[nodiscard]] constexpr CpcSet set_of(CpcKind kind) noexcept {
  return CpcSet{1} << static_cast<unsigned>(kind);
}

inline constexpr CpcSet kEveryCpc =
    set_of(CpcKind::kOob) | set_of(CpcKind::kXoob) | set_of(CpcKind::kRdmaCm) | set_of(CpcKind::kIbCm);

/// True if main threads exchange CTS over the queue pairs that it brings up.
[[nodiscard]] constexpr bool exchanges_cts(CpcKind kind) noexcept {
  return kind == CpcKind::kRdmaCm || kind == CpcKind::kIbCm;
}

/// "rdmacm"
[[nodiscard]] std::string_view to_string(CpcKind kind) noexcept;

/// Parses "oob,rdmacm". The error shows the item and lists the names there are.
[[nodiscard]] Result<CpcSet> parse_cpc_list(std::string_view list);

}  // namespace fabric::cpc
