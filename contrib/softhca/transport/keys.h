// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which key allows what: the checks of every address that a work request or a message names.
#include <cstdint>

#include "fabric/layout.h"

namespace softhca {

// Whether a scatter/gather element of a queue of that PD may be used, with these access rights (0: it is only read): *addr is
// where it lies in the owner's memory.
[[nodiscard]] bool local_key_allows(Slot& owner, uint32_t pd, const Sge& sge, uint32_t access, uint64_t* addr);

// What a message names, checked against PD, bounds and rights: *addr is where it lies in the owner's memory. `qpn` is the QP
// of the owner through which it came.
[[nodiscard]] bool remote_key_allows(Slot& owner, uint32_t pd, uint32_t qpn, uint32_t rkey, uint64_t remote_addr,
                                     uint32_t length, uint32_t access, uint64_t* addr);

}  // namespace softhca
