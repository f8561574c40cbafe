// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The arithmetic of a link. Times are nanoseconds of one clock that all processes share; nothing here reads it.
#include <algorithm>
#include <atomic>
#include <cstdint>

namespace softhca::link {

// How long that many bytes take; no time where there is no limit (0).
constexpr uint64_t transfer_ns(uint64_t bytes, uint64_t bits_per_second) {
  constexpr uint64_t kBitNs = 8'000'000'000;
  return bits_per_second == 0 ? 0 : (bytes * kBitNs + bits_per_second / 2) / bits_per_second;
}

// One direction of a port is used by one message after another: from `from` on, as soon as it is free, for so long. Gives when
// that ends. Any thread of any process.
inline uint64_t occupy(std::atomic<uint64_t>& free_ns, uint64_t from, uint64_t duration) {
  uint64_t free = free_ns.load(std::memory_order_relaxed);
  if (duration == 0) return std::max(free, from);
  uint64_t end = 0;
  do end = std::max(free, from) + duration;
  while (!free_ns.compare_exchange_weak(free, end, std::memory_order_relaxed));
  return end;
}

// The same for a message whose last byte comes at `last` if it does not have to queue, where several say so in another order
// than that of their times: processes are late by what the scheduler makes of them. Time that was free not long ago is not lost.
constexpr uint64_t kOutOfOrderNs = 100'000;
inline uint64_t occupy_by(std::atomic<uint64_t>& free_ns, uint64_t last, uint64_t duration) {
  if (duration == 0) return last;
  const uint64_t earliest = duration + kOutOfOrderNs;
  return std::max(last, occupy(free_ns, last > earliest ? last - earliest : 0, duration));
}

}  // namespace softhca::link
