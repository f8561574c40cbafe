// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How an entry gets into a completion queue, step by step. The queue's lock is held from the first to the last.
#include <atomic>
#include <cstdint>

#include "fabric/fabric.h"
#include "fabric/layout.h"

namespace softhca {

// Without a call of the compiler's library, which std::has_single_bit is for processors that may lack an instruction for it.
constexpr bool is_power_of_two(uint32_t n) {
  return n != 0 && (n & (n - 1)) == 0;
}

// The entry of a number; nullptr when the queue is not sane.
inline CqEntry* entry_at(Slot& slot, const CqShared& cq, uint32_t number) {
  if (!is_power_of_two(cq.capacity)) return nullptr;
  const uint64_t offset = cq.offset + uint64_t{number & (cq.capacity - 1)} * sizeof(CqEntry);
  return reinterpret_cast<CqEntry*>(Fabric::at(slot, offset, sizeof(CqEntry)));
}

// The same for a queue of this process.
inline CqEntry& own_entry_at(Fabric& fabric, const CqShared& cq, uint32_t number) {
  const uint64_t offset = cq.offset + uint64_t{number & (cq.capacity - 1)} * sizeof(CqEntry);
  return *reinterpret_cast<CqEntry*>(reinterpret_cast<uint8_t*>(&fabric.self()) + offset);
}

// Whether the entry of a number is there. What was written before its turn is, too.
inline bool is_there(const CqEntry& entry, uint32_t number, uint32_t capacity) {
  return entry.turn.load(std::memory_order_acquire) == turn_of(number, capacity);
}
// The last steps of whoever has filled it in: who polls sees it from the first on.
inline void publish(CqShared& cq, CqEntry& entry, uint32_t number) {
  entry.turn.store(turn_of(number, cq.capacity), std::memory_order_release);
  cq.tail.store(number + 1, std::memory_order_seq_cst);
}

inline bool full(CqShared& cq, uint32_t tail) {
  if (tail - cq.head_seen < cq.cqe) return false;
  cq.head_seen = cq.head.load(std::memory_order_acquire);
  return tail - cq.head_seen >= cq.cqe;
}

// Who held the lock before may have died between adding an entry and saying so.
[[gnu::cold, gnu::noinline]] void settle_adding(Slot& slot, CqShared& cq);
inline void finish_adding(Slot& slot, CqShared& cq) {
  if (cq.adding.load(std::memory_order_relaxed) != 0) [[unlikely]]
    settle_adding(slot, cq);
}

// What CqShared::adding says.
inline uint64_t adding_for(const Slot& slot, const QpShared* taker, uint32_t tail) {
  const auto index = static_cast<uint64_t>(taker - slot.qps);
  return uint64_t{tail} << 32 | (taker >= slot.qps && index < kQpsPerSlot ? index + 1 : kNoQp);
}

// Who asks for solicited events only is told of errors as well.
inline bool is_solicited(const CqEntry& entry) {
  return entry.solicited != 0 || entry.status != 0;
}
inline bool wants_event(uint32_t armed, bool solicited) {
  return armed == kCqArmed || (armed == kCqArmedSolicited && solicited);
}

// Such an entry is in the queue, and its lock is free again: the owner is told, for `armed` says that it has asked for that.
void announce(Fabric& fabric, unsigned slot_number, Slot& slot, uint32_t index, uint32_t armed);

}  // namespace softhca
