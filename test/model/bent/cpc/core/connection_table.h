// SPDX-License-Identifier: BSD-3-Clause
//
// The product's connection table with a hook, for checks that a wrong table is found: it takes the place of the header of
// this name in programs that are compiled with this folder first in their search path.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>

#include "common/base/state_table.h"

#define step table_step  // NOLINT: the function, as the product has it
#include "../../../../../cpc/core/connection_table.h"
#undef step

namespace fabric::cpc {

/// What stands in the place of the table; empty: the table.
inline std::function<Step(State state, Event event, const Guards& guards)> bent_step;

[[nodiscard]] inline Step step(State state, Event event, const Guards& guards) {
  return bent_step ? bent_step(state, event, guards) : table_step(state, event, guards);
}

}  // namespace fabric::cpc
