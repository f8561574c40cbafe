// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which key allows what: the checks of every address that a work request or a message names.
#include <cstdint>

#include "fabric/layout.h"
#include "verbs/memory_region.h"

namespace softhca {

inline bool inside(const MrEntry& entry, uint64_t addr, uint64_t length) {
  return addr >= entry.iova && length <= entry.length && addr - entry.iova <= entry.length - length;
}

// Whether a scatter/gather element of a queue of that PD may be used, with these access rights (0: it is only read): *addr is
// where it lies in the owner's memory.
[[nodiscard]] inline bool local_key_allows(Slot& owner, uint32_t pd, const Sge& sge, uint32_t access, uint64_t* addr) {
  *addr = sge.addr;
  if (sge.length == 0) return true;
  const MrEntry& entry = entry_of_key(owner, sge.lkey);
  if (sge.lkey == 0 || entry.key.load(std::memory_order_acquire) != sge.lkey) return false;
  if (entry.region != 0 || entry.pd != pd) return false;
  if ((entry.access & access) != access || !inside(entry, sge.addr, sge.length)) return false;
  *addr = entry.addr + (sge.addr - entry.iova);
  return true;
}

// What a message names, checked against PD, bounds and rights: *addr is where it lies in the owner's memory. `qpn` is the QP
// of the owner through which it came.
[[nodiscard]] bool remote_key_allows(Slot& owner, uint32_t pd, uint32_t qpn, uint32_t rkey, uint64_t remote_addr,
                                     uint32_t length, uint32_t access, uint64_t* addr);

}  // namespace softhca
