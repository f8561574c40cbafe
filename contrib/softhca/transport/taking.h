// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How a sender takes a receive request, step by step. The lock of whoever may take is held: of the queue pair for its own
// queue, of the ring for a shared one.
#include <atomic>
#include <cstdint>

#include "device/attributes.h"
#include "fabric/fabric.h"
#include "fabric/layout.h"
#include "transport/adding.h"

namespace softhca {

// The entry of a number, or nullptr when the ring is not sane.
inline const RecvEntry* entry_at(Slot& owner, const RecvRing& ring, uint32_t number) {
  if (!is_power_of_two(ring.capacity) || ring.stride < sizeof(RecvEntry)) return nullptr;
  const uint64_t offset = ring.offset + uint64_t{number & (ring.capacity - 1)} * ring.stride;
  const auto* entry = reinterpret_cast<const RecvEntry*>(Fabric::at(owner, offset, ring.stride));
  const uint64_t room = ring.stride - sizeof(RecvEntry);
  return entry != nullptr && entry->num_sge <= kMaxSge && entry->num_sge * sizeof(Sge) <= room ? entry : nullptr;
}

// The next request, which has the number RecvRing::taken; nullptr: there is none.
inline const RecvEntry* next_request(Slot& owner, const RecvRing& ring, uint32_t number) {
  const uint32_t left = ring.posted.load(std::memory_order_acquire) - number;
  return left == 0 || left > ring.capacity ? nullptr : entry_at(owner, ring, number);
}

// It is the queue pair's from now on. `taking`: of a shared queue, what RecvRing::taking says meanwhile.
inline void take_request(QpShared& qp, RecvRing& ring, uint32_t number, uint64_t wr_id, bool shared, uint64_t taking) {
  if (shared) ring.taking.store(taking, std::memory_order_release);
  qp.taken_wr_id = wr_id;
  qp.taken_valid.store(number << 1 | 1, std::memory_order_release);
  ring.taken.store(number + 1, std::memory_order_release);
  if (shared) ring.taking.store(0, std::memory_order_release);
}

// What RecvRing::taking says.
inline uint64_t taking_for(const QpShared& taker, uint32_t number) {
  return uint64_t{number} << 32 | (index_of_qpn(taker.qp_num.load(std::memory_order_relaxed)) + 1);
}

// A request of a shared queue was taken, or there is another limit: its owner is told if fewer are left than it has asked for.
void raise_limit(Slot& owner, SrqShared& srq);

}  // namespace softhca
