// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a process keeps about its membership in a fabric, one object of each type. A child of a member that joins by itself has
// others: what it has inherited, timers, tables and locks that some thread of its parent held, is its parent's.
#include <atomic>
#include <cstdint>

namespace softhca {

// Grows when a child of a member joins, before anything else happens there.
inline std::atomic<uint32_t> membership{0};

// The object of this type and of this membership, made when it is first asked for (bad_alloc). It is never destroyed: threads may use
// it while the process ends.
template <typename T>
T& of_member() {
  struct Kept {
    uint32_t of;
    T object;
  };
  static constinit std::atomic<Kept*> kept{nullptr};
  Kept* there = kept.load(std::memory_order_acquire);
  const uint32_t now = membership.load(std::memory_order_relaxed);
  if (there != nullptr && there->of == now) [[likely]]
    return there->object;
  auto* fresh = new Kept{now, {}};
  while (there == nullptr || there->of != now) {
    if (kept.compare_exchange_weak(there, fresh, std::memory_order_acq_rel)) return fresh->object;
  }
  delete fresh;  // another thread was faster
  return there->object;
}

}  // namespace softhca
