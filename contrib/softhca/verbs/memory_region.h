// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Keys of regions and windows: both have entries in one table, MrEntry.
#include <cstdint>

#include "verbs/objects.h"

namespace softhca {

enum class KeyOf { kRegion, kWindow };

// An entry of this process's table, which nobody else has, backed by memory, and a key for it that is not in the entry yet.
// 0: no more (ENOMEM), or `limit` of that kind are there.
uint32_t allocate_key(KeyOf kind, int limit);
// The index is free again; the entry's key has been cleared.
void release_key(KeyOf kind, uint32_t index);

// The entry of a key in any process's slot: always inside of the table, whatever the key.
inline MrEntry& entry_of_key(Slot& slot, uint32_t key) {
  return slot.mrs[key >> 8 & (kMrsPerSlot - 1)];
}

// A region that has been checked, without an address for the user. nullptr and errno: no key, or no memory.
Mr* make_region(ibv_pd* pd, uint64_t addr, size_t length, uint64_t iova, unsigned access);
// Whoever lets peers write has to let this process write.
inline bool writes_at_home(unsigned access) {
  constexpr unsigned kNeedLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  return (access & kNeedLocalWrite) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0;
}

// Whether there is memory at an address of this process.
bool mapped(uint64_t addr);

// Clears the key of a region. False: a window of this process is bound to it, and nothing has happened. Nobody binds one in between
// (verbs/memory_window.cc).
[[nodiscard]] bool clear_key(uint32_t region);

}  // namespace softhca
