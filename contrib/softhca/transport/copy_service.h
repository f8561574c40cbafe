// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Copies by the target (remote_memory.h): the initiator's half and the thread that serves them.
#include "transport/remote_memory.h"

namespace softhca {

enum CanCopy : uint32_t { kNotTried = 0, kMayCopy = 1, kMayNotCopy = 2 };  // SlotHeader::can_copy

// Whether the kernel lets this process copy from and to that one, as far as is known.
inline bool kernel_may_copy(Fabric& fabric, const Slot& peer) {
  return peer.header.can_copy.load(std::memory_order_relaxed) != kMayNotCopy &&
         fabric.self().header.can_copy.load(std::memory_order_relaxed) != kMayNotCopy;
}

// Finds it out, if that was not tried before, and gives a target that must copy itself time to prepare. No lock is held.
void try_kernel_copy(Fabric& fabric, Slot& peer);

[[nodiscard]] Copy copy_by_target(Fabric& fabric, Slot& peer, unsigned slot, uint32_t incarnation,
                                  std::span<const iovec> local, std::span<const iovec> remote, bool writes);

// Returns when no copy runs for somebody who is gone. Whoever has waited for all who may use a memory region (quiesce) knows then
// that nobody writes to it.
void finish_copies(Fabric& fabric);

// Starts the thread that serves copies of this process's memory; once. It takes no lock, so that it never waits for anybody
// who waits for it.
void start_copier(Fabric& fabric);

// Whether there may be something to serve: for those who poll. What was asked when serve_copies last began is in `copies_seen`.
inline std::atomic<uint32_t> copies_seen{0};
inline bool copies_wanted(Fabric& fabric) {
  return copies_seen.load(std::memory_order_relaxed) !=
         fabric.self().header.copies_asked.load(std::memory_order_acquire);
}

}  // namespace softhca
