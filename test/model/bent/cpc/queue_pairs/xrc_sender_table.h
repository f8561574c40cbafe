// SPDX-License-Identifier: BSD-3-Clause
//
// The product's table of shared senders with a hook: see cpc/core/connection_table.h beside this.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "common/base/state_table.h"

#define sender_step table_sender_step  // NOLINT: the function, as the product has it
#include "../../../../../cpc/queue_pairs/xrc_sender_table.h"
#undef sender_step

namespace fabric::cpc {

/// What stands in the place of the table; empty: the table.
inline std::function<SenderStep(SenderState state, SenderEvent event, bool waiting)> bent_sender_step;

[[nodiscard]] inline SenderStep sender_step(SenderState state, SenderEvent event, bool waiting) {
  return bent_sender_step ? bent_sender_step(state, event, waiting) : table_sender_step(state, event, waiting);
}

}  // namespace fabric::cpc
