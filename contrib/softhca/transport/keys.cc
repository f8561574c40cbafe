// SPDX-License-Identifier: BSD-3-Clause
#include "transport/keys.h"

namespace softhca {

void note_user(MrEntry& entry, uint32_t user) {
  uint32_t before = 0;
  if (!entry.users.compare_exchange_strong(before, user, std::memory_order_seq_cst) && before != user)
    entry.users.store(kManyQps, std::memory_order_seq_cst);
}

bool remote_key_allows(Slot& owner, uint32_t pd, uint32_t qpn, uint32_t rkey, uint64_t remote_addr, uint32_t length,
                       uint32_t access, uint64_t* addr) {
  MrEntry& entry = entry_of_key(owner, rkey);
  if (!holds(entry, rkey, user_of(qpn)) || entry.pd != pd) return false;
  if (entry.qpn != 0 && entry.qpn != qpn) return false;
  if ((entry.access & access) != access || !inside(entry, remote_addr, length)) return false;
  *addr = entry.addr + (remote_addr - entry.iova);
  return true;
}

}  // namespace softhca
