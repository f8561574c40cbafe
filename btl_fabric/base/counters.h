// SPDX-License-Identifier: BSD-3-Clause
//
// The counters in force, and their registration as performance variables of MPI_T.
#pragma once

#include "btl_fabric/base/counter_table.h"
#include "btl_fabric/base/opal.h"
#include "common/accounting/context_locks.h"

namespace fabric {

/// One for each transmit context, of whoever holds its lock.
inline std::array<Counters, kMostContexts> counters;

/// Makes MPI_T performance variables btl_fabric_NAME of them, and of the levels. Called once, while the component is loaded.
void register_counters(const mca_base_component_t* component);

/// What a counter says now, summed over transmit contexts. For all threads.
[[nodiscard]] std::uint64_t value_of(const CounterSpec& spec) noexcept;

/// Levels have so many values from now on, one for each process of the job. 0 is not known, and changes nothing. Nobody can make a handle
/// to a level before, and the number never changes after.
void set_level_count(std::uint32_t processes) noexcept;

}  // namespace fabric
