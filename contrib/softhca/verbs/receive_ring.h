// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Makes and frees the ring of an SRQ or of a QP's own receive queue.
#include <bit>

#include "fabric/fabric.h"

namespace softhca {

inline size_t bytes_of(const RecvRing& ring) {
  return size_t{ring.capacity} * ring.stride;
}

// `max_wr` 0: there is no queue. False: no memory. Nobody else uses the ring yet.
[[nodiscard]] inline bool make_receive_ring(Fabric& fabric, RecvRing& ring, uint32_t max_wr, uint32_t max_sge) {
  // While the owner posts one, another may be put back (untake), twice if the owner then notes a `taken` of before.
  const uint32_t capacity = max_wr == 0 ? 0 : std::bit_ceil(max_wr + 2);
  const auto stride = static_cast<uint32_t>(sizeof(RecvEntry) + max_sge * sizeof(Sge));
  const uint64_t offset = capacity == 0 ? 0 : fabric.allocate(size_t{capacity} * stride);
  if (capacity != 0 && offset == 0) return false;
  ring.capacity = capacity;
  ring.max_wr = max_wr;
  ring.max_sge = max_sge;
  ring.stride = stride;
  ring.offset = offset;
  ring.posted.store(0, std::memory_order_relaxed);
  ring.taken.store(0, std::memory_order_relaxed);
  return true;
}

// No peer can reach the ring any more.
inline void free_receive_ring(Fabric& fabric, RecvRing& ring) {
  if (ring.capacity != 0) fabric.release(ring.offset, bytes_of(ring));
  ring.capacity = 0;
}

}  // namespace softhca
