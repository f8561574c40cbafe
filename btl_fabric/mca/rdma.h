// SPDX-License-Identifier: BSD-3-Clause
//
// What Open MPI calls put, get and atomics by: functions of the module's table, and what they can do.
#pragma once

#include "btl_fabric/base/opal.h"

namespace fabric {

class Module;

/// Puts the functions into a module's table.
void set_rdma_functions(mca_btl_base_module_t& module) noexcept;

/// The flags of a module that can do everything, before anything is known of its device: what the user may turn off.
void offer_rdma(mca_btl_base_module_t& module) noexcept;

/// Leaves of these what the module's device can do, and states its limits.
void fit_rdma(Module& module) noexcept;

}  // namespace fabric
