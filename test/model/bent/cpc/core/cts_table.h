// SPDX-License-Identifier: BSD-3-Clause
//
// The product's table of the clear-to-send exchange with a hook: see connection_table.h beside this.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#define cts_step table_cts_step  // NOLINT: the function, as the product has it
#include "../../../../../cpc/core/cts_table.h"
#undef cts_step

namespace fabric::cpc {

/// What stands in the place of the table; null: the table.
inline CtsStep (*bent_cts_step)(CtsState state, CtsEvent event, bool may_speak_first) = nullptr;

[[nodiscard]] inline CtsStep cts_step(CtsState state, CtsEvent event, bool may_speak_first) {
  return bent_cts_step != nullptr ? bent_cts_step(state, event, may_speak_first)
                                  : table_cts_step(state, event, may_speak_first);
}

}  // namespace fabric::cpc
