// SPDX-License-Identifier: BSD-3-Clause
//
// The product's table of endpoints with a hook: see connection_table.h in ../../cpc/core.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>

#include "common/base/state_table.h"

#define endpoint_step table_endpoint_step  // NOLINT: the function, as the product has it
#include "../../../../../btl_fabric/peer/endpoint_table.h"
#undef endpoint_step

namespace fabric {

/// What stands in the place of the table; empty: the table.
inline std::function<EndpointStep(EndpointState state, EndpointEvent event, const EndpointGuards& guards)>
    bent_endpoint_step;

[[nodiscard]] inline EndpointStep endpoint_step(EndpointState state, EndpointEvent event,
                                                const EndpointGuards& guards) {
  return bent_endpoint_step ? bent_endpoint_step(state, event, guards) : table_endpoint_step(state, event, guards);
}

}  // namespace fabric
