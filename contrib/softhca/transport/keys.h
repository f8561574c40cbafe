// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which key allows what: the checks of every address that a work request or a message names.
//
// Before a peer uses what a key names it notes in the entry through which QP of the owner it came, and then looks once more
// whether the key still holds. The owner, who ends a key, clears it first and then looks who has come: either it sees the note,
// and waits for that QP's lock, or the peer sees that the key has ended. That makes it cheap to end what nobody has used.
#include <cstdint>

#include "fabric/layout.h"
#include "verbs/memory_region.h"

namespace softhca {

inline bool inside(const MrEntry& entry, uint64_t addr, uint64_t length) {
  return addr >= entry.iova && length <= entry.length && addr - entry.iova <= entry.length - length;
}

// What MrEntry::users says of a QP. Targets of XRC are not in the owner's table.
inline uint32_t user_of(uint32_t qpn) {
  return slot_of_qpn(qpn) == kHubSlot ? kManyQps : index_of_qpn(qpn) + 1;
}
[[gnu::cold, gnu::noinline]] void note_user(MrEntry& entry, uint32_t user);
// Whether the key is that entry's, for who uses it in a moment.
inline bool holds(MrEntry& entry, uint32_t key, uint32_t user) {
  if (key == 0 || entry.key.load(std::memory_order_acquire) != key) return false;
  // What is seen here is of this key, and not of one before it.
  const uint32_t users = entry.users.load(std::memory_order_seq_cst);
  if (users != user && users != kManyQps) [[unlikely]]
    note_user(entry, user);
  return entry.key.load(std::memory_order_seq_cst) == key;
}

inline bool local_entry_allows(const MrEntry& entry, uint32_t pd, const Sge& sge, uint32_t access, uint64_t* addr) {
  if (entry.region != 0 || entry.pd != pd) return false;
  if ((entry.access & access) != access || !inside(entry, sge.addr, sge.length)) return false;
  *addr = entry.addr + (sge.addr - entry.iova);
  return true;
}
// Whether a scatter/gather element of a request of this process's own may be used, with these access rights (0: it is only
// read): *addr is where it lies in memory. A program ends no key that its requests still use.
[[nodiscard]] inline bool own_key_allows(Slot& self, uint32_t pd, const Sge& sge, uint32_t access, uint64_t* addr) {
  *addr = sge.addr;
  if (sge.length == 0) return true;
  const MrEntry& entry = entry_of_key(self, sge.lkey);
  if (sge.lkey == 0 || entry.key.load(std::memory_order_acquire) != sge.lkey) return false;
  return local_entry_allows(entry, pd, sge, access, addr);
}
// The same for one of a receive request, for a message that came through a QP of the owner: `user` is user_of() it.
[[nodiscard]] inline bool receive_key_allows(Slot& owner, uint32_t pd, uint32_t user, const Sge& sge, uint64_t* addr) {
  *addr = sge.addr;
  if (sge.length == 0) return true;
  MrEntry& entry = entry_of_key(owner, sge.lkey);
  return holds(entry, sge.lkey, user) && local_entry_allows(entry, pd, sge, IBV_ACCESS_LOCAL_WRITE, addr);
}

// What a message names, checked against PD, bounds and rights: *addr is where it lies in the owner's memory. `qpn` is the QP
// of the owner through which it came.
[[nodiscard]] bool remote_key_allows(Slot& owner, uint32_t pd, uint32_t qpn, uint32_t rkey, uint64_t remote_addr,
                                     uint32_t length, uint32_t access, uint64_t* addr);

}  // namespace softhca
