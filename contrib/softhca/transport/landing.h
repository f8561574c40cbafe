// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The ring of a completion queue through which payloads travel that do not fit into a completion. Two copies in user space
// take less time than a call of process_vm_writev up to some kilobytes.
#include <cstring>

#include "fabric/fabric.h"
#include "fabric/layout.h"

namespace softhca {

// Where a payload lies in the ring: positions that only grow, multiples of kLandingLine.
struct Landed {
  uint64_t begin;
  uint64_t end;
};

// Finds room in the ring of a queue whose lock is held and whose newest entry is before `tail`. False: there is none now.
// Nothing is taken before keep_landing().
inline bool find_landing(CqShared& cq, uint32_t tail, uint64_t length, Landed& where) {
  LandingRing& ring = cq.landings;
  if (ring.offset == 0 || length > kMostLanded) return false;
  where.begin = ring.end;
  if (where.begin % kLandingRingBytes + length > kLandingRingBytes)  // in one piece
    where.begin += kLandingRingBytes - where.begin % kLandingRingBytes;
  where.end = (where.begin + length + kLandingLine - 1) / kLandingLine * kLandingLine;
  if (where.end - ring.freed_seen <= kLandingRingBytes) return true;
  ring.freed_seen = cq.landings_freed.load(std::memory_order_acquire);
  // What is polled frees all before it; if nothing is left to poll, entries that were removed hold nothing any more.
  if (cq.head.load(std::memory_order_acquire) == tail) ring.freed_seen = ring.end;
  return where.end - ring.freed_seen <= kLandingRingBytes;
}

inline void keep_landing(CqShared& cq, const Landed& where) {
  cq.landings.end = where.end;
}

// What the entry of a payload in the ring says of it.
inline void note_landed(CqEntry& entry, const Landed& where) {
  entry.line = static_cast<uint32_t>(where.begin / kLandingLine);
  entry.lines = static_cast<uint8_t>((where.end - where.begin) / kLandingLine);
}
// The position up to which the ring is free when that entry is polled, before which it was up to `freed`.
inline uint64_t freed_by(const CqEntry& entry, uint64_t freed) {
  const uint32_t ahead = entry.line + entry.lines - static_cast<uint32_t>(freed / kLandingLine);
  return freed + ahead * kLandingLine;
}

// The bytes at a position, in the slot of the queue's owner; nullptr if an offset or a position is not sane.
inline uint8_t* landing_at(Slot& owner, const CqShared& cq, uint64_t begin, uint64_t length) {
  const uint64_t at = begin % kLandingRingBytes;
  if (length > kLandingRingBytes - at) return nullptr;
  return Fabric::at(owner, cq.landings.offset + at, length);
}

}  // namespace softhca
