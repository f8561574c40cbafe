// SPDX-License-Identifier: BSD-3-Clause
//
// The connection methods that there are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "cpc/core/cpc_interface.h"
#include "cpc/oob/oob.h"
#include "cpc/oob/xoob.h"
#include "cpc/rdmacm/rdmacm.h"

namespace fabric::cpc {

/// A line for each.
inline constexpr std::array kCpcs{
    kOobCpc,
    kXoobCpc,
    kRdmaCmCpc,
    kIbCmCpc,
};

/// The traits of each, in the same order.
inline constexpr auto kCpcTraits = [] {
  std::array<CpcTraits, kCpcs.size()> traits{};
  std::transform(kCpcs.begin(), kCpcs.end(), traits.begin(), [](const CpcRegistration& one) { return one.traits; });
  return traits;
}();

static_assert(
    [] {
      CpcSet taken = 1;  // 0 is no kind
      for (const CpcTraits& one : kCpcTraits) {
        if (static_cast<unsigned>(one.kind) > 31 || (taken & set_of(one.kind)) != 0) {
          return false;
        }
        taken |= set_of(one.kind);
      }
      return true;
    }(),
    "a CPC's kind is a number of its own, from 1 to 31");

/// Null if it is not registered.
[[nodiscard]] constexpr const CpcTraits* find_cpc(CpcKind kind) noexcept {
  for (const CpcTraits& one : kCpcTraits) {
    if (one.kind == kind) {
      return &one;
    }
  }
  return nullptr;
}

/// For decode_process_info().
[[nodiscard]] inline bool is_registered(CpcKind kind) noexcept {
  return find_cpc(kind) != nullptr;
}

/// "rdmacm", or "?".
[[nodiscard]] constexpr std::string_view cpc_name(CpcKind kind) noexcept {
  const CpcTraits* const traits = find_cpc(kind);
  return traits == nullptr ? "?" : traits->name;
}

/// Makes each, with its parameters. The error names the parameter that makes no sense.
[[nodiscard]] Result<std::vector<std::unique_ptr<Cpc>>> make_cpcs(const CpcParameters& parameters);

}  // namespace fabric::cpc
