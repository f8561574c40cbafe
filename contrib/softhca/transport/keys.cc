// SPDX-License-Identifier: BSD-3-Clause
#include "transport/keys.h"

namespace softhca {

bool remote_key_allows(Slot& owner, uint32_t pd, uint32_t qpn, uint32_t rkey, uint64_t remote_addr, uint32_t length,
                       uint32_t access, uint64_t* addr) {
  const MrEntry& entry = entry_of_key(owner, rkey);
  if (rkey == 0 || entry.key.load(std::memory_order_seq_cst) != rkey || entry.pd != pd) return false;
  if (entry.qpn != 0 && entry.qpn != qpn) return false;
  if ((entry.access & access) != access || !inside(entry, remote_addr, length)) return false;
  *addr = entry.addr + (remote_addr - entry.iova);
  return true;
}

}  // namespace softhca
