// SPDX-License-Identifier: BSD-3-Clause
// The producers' half of completion queues, and what changes a whole queue.
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "transport/adding.h"
#include "transport/engine.h"
#include "transport/gather.h"
#include "transport/landing.h"
#include "transport/message.h"
#include "transport/transport.h"

namespace softhca {
namespace {

// The owner's engine shall look; or, in this process, there is no need to wake it.
void tell_owner(Fabric& fabric, unsigned slot_number, Slot& slot, uint32_t index) {
  if (slot_number == fabric.slot() && slot.cqs[index].overrun.load(std::memory_order_relaxed) == 0) {
    if (Cq* cq = tables().cqs[index].load(std::memory_order_acquire); cq != nullptr) notify(*cq);
    return;
  }
  slot.cq_events.add(index);
  engine::ring(slot, kLookCqs);
}

// An entry gets another place, and the turn of that.
void copy(const CqEntry& from, CqEntry& to, uint8_t turn) {
  std::memcpy(static_cast<void*>(&to), &from, offsetof(CqEntry, turn));
  std::memcpy(to.landing, from.landing, sizeof to.landing);
  to.turn.store(turn, std::memory_order_release);
}

}  // namespace

void settle_adding(Slot& slot, CqShared& cq) {
  const uint64_t adding = cq.adding.load(std::memory_order_relaxed);
  const auto number = static_cast<uint32_t>(adding >> 32);
  const uint32_t index = static_cast<uint32_t>(adding) - 1;
  const CqEntry* entry = entry_at(slot, cq, number);
  if (entry != nullptr && is_there(*entry, number, cq.capacity)) {
    cq.tail.store(number + 1, std::memory_order_seq_cst);
    if (index < kQpsPerSlot) slot.qps[index].taken_valid.store(0, std::memory_order_release);
  }
  cq.adding.store(0, std::memory_order_release);
}

void announce(Fabric& fabric, unsigned slot_number, Slot& slot, uint32_t index, uint32_t armed) {
  if (slot.cqs[index].armed.compare_exchange_strong(armed, kCqFired)) tell_owner(fabric, slot_number, slot, index);
}

void settle_taken(Fabric& fabric, Slot& slot, QpShared& taker) {
  CqShared& cq = slot.cqs[taker.recv_cq % kCqsPerSlot];
  RobustGuard guard(cq.lock, fabric.stamp());
  finish_adding(slot, cq);
}

Added complete(Fabric& fabric, unsigned slot_number, Slot& slot, uint32_t index, const CqEntry& entry,
               std::span<const iovec> payload, QpShared* taker, KillAt kill_at) {
  index %= kCqsPerSlot;
  CqShared& cq = slot.cqs[index];
  cq.lock.lock(fabric.stamp());
  finish_adding(slot, cq);
  const uint32_t tail = cq.tail.load(std::memory_order_relaxed);
  CqEntry* to = cq.in_use.load(std::memory_order_relaxed) != 0 ? entry_at(slot, cq, tail) : nullptr;
  if (to == nullptr || full(cq, tail)) {
    uint32_t before = 0;
    const bool first = to != nullptr && cq.overrun.compare_exchange_strong(before, 1);
    cq.lock.unlock();
    if (taker != nullptr) taker->taken_valid.store(0, std::memory_order_relaxed);
    if (first) tell_owner(fabric, slot_number, slot, index);
    return Added::Overrun;
  }
  Landed where{};
  uint8_t* landing = to->landing;
  if (entry.landing_len > kLandingBytes) {
    const bool found = find_landing(cq, tail, entry.landing_len, where);
    landing = found ? landing_at(slot, cq, where.begin, entry.landing_len) : nullptr;
    if (landing == nullptr) {
      cq.lock.unlock();
      return Added::NoRoom;
    }
    keep_landing(cq, where);
  }
  std::memcpy(static_cast<void*>(to), &entry, offsetof(CqEntry, turn));
  gather(payload, landing);
  if (landing != to->landing) note_landed(*to, where);
  if (cq.stamped != 0) to->timestamp_ns = Fabric::now_ns();
  if (taker != nullptr) {
    cq.adding.store(adding_for(slot, taker, tail), std::memory_order_release);
    if (kill_at == KillAt::Completing) [[unlikely]]
      kill_this_process();
  }
  publish(cq, *to, tail);
  if (taker != nullptr) {
    if (kill_at == KillAt::Completed) [[unlikely]]
      kill_this_process();
    taker->taken_valid.store(0, std::memory_order_release);
    cq.adding.store(0, std::memory_order_release);
  }
  cq.lock.unlock();

  const uint32_t armed = cq.armed.load(std::memory_order_seq_cst);
  if (wants_event(armed, is_solicited(entry))) announce(fabric, slot_number, slot, index, armed);
  return Added::Yes;
}

void notify(Cq& cq) {
  uint32_t lost = 1;
  if (cq.shared->overrun.compare_exchange_strong(lost, 2)) raise(cq, IBV_EVENT_CQ_ERR);
  uint32_t fired = kCqFired;
  if (!cq.shared->armed.compare_exchange_strong(fired, kCqIdle) || cq.channel == nullptr) return;
  cq.unacked.fetch_add(1, std::memory_order_relaxed);
  static_cast<CompChannel*>(cq.channel)->events.push(cq.base());
}

void suspect(Cq& cq) {
  Fabric& fabric = *Fabric::get();
  CqShared& shared = *cq.shared;
  {
    RobustGuard lock(shared.lock, fabric.stamp());
    finish_adding(fabric.self(), shared);
    uint32_t armed = shared.armed.load(std::memory_order_seq_cst);
    const uint32_t tail = shared.tail.load(std::memory_order_relaxed);
    bool wanted = false;
    for (uint32_t n = shared.head.load(std::memory_order_acquire); n != tail && !wanted; ++n)
      wanted = wants_event(armed, is_solicited(*entry_at(fabric.self(), shared, n)));
    if (wanted) shared.armed.compare_exchange_strong(armed, kCqFired);
  }
  notify(cq);
}

int req_notify_cq(ibv_cq* base, int solicited_only) {
  Cq& cq = *Cq::of(base);
  const uint32_t wanted = solicited_only != 0 ? kCqArmedSolicited : kCqArmed;
  uint32_t before = cq.shared->armed.load(std::memory_order_relaxed);
  for (;;) {
    if (before == kCqFired) {  // the event of the last time is due still
      notify(cq);
      before = cq.shared->armed.load(std::memory_order_relaxed);
    } else if (before == kCqArmed ||
               cq.shared->armed.compare_exchange_strong(before, wanted, std::memory_order_seq_cst)) {
      return 0;
    }
  }
}

void purge(Cq& cq, uint32_t qp_num) {
  Fabric* fabric = Fabric::get();
  if (fabric == nullptr) return;
  CqShared& shared = *cq.shared;
  RobustGuard lock(shared.lock, fabric->stamp());
  finish_adding(fabric->self(), shared);
  const uint32_t head = shared.head.load(std::memory_order_relaxed);
  const uint32_t tail = shared.tail.load(std::memory_order_relaxed);
  // From the newest to the oldest, so that what stays moves towards the tail, which others go on from.
  uint32_t to = tail;
  for (uint32_t from = tail; from != head;) {
    const CqEntry& entry = own_entry_at(*fabric, shared, --from);
    if (entry.qp_num == qp_num) continue;
    if (--to != from) copy(entry, own_entry_at(*fabric, shared, to), turn_of(to, shared.capacity));
  }
  cq.go_to(to);
}

int resize(Cq& cq, unsigned entries) {
  Fabric* fabric = Fabric::get();
  if (fabric == nullptr) return EPERM;
  std::lock_guard guard(cq.mutex);
  CqShared& shared = *cq.shared;
  const uint32_t capacity = std::bit_ceil(entries);
  const uint64_t offset = fabric->allocate(size_t{capacity} * sizeof(CqEntry));
  if (offset == 0) return ENOMEM;
  uint64_t old_offset = offset;
  size_t old_bytes = size_t{capacity} * sizeof(CqEntry);
  int error = 0;
  {
    RobustGuard lock(shared.lock, fabric->stamp());
    finish_adding(fabric->self(), shared);
    const uint32_t head = shared.head.load(std::memory_order_relaxed);
    const uint32_t tail = shared.tail.load(std::memory_order_relaxed);
    if (tail - head > entries) {
      error = EINVAL;
    } else {
      CqShared moved;
      moved.offset = offset;
      moved.capacity = capacity;
      for (uint32_t n = head; n != tail; ++n)
        copy(own_entry_at(*fabric, shared, n), own_entry_at(*fabric, moved, n), turn_of(n, capacity));
      old_offset = shared.offset;
      old_bytes = size_t{shared.capacity} * sizeof(CqEntry);
      shared.offset = offset;
      shared.capacity = capacity;
      shared.cqe = entries;
      cq.cqe = static_cast<int>(entries);
      cq.poll_in(&own_entry_at(*fabric, shared, 0), capacity);
      cq.go_to(head);
    }
  }
  fabric->release(old_offset, old_bytes);
  return error;
}

}  // namespace softhca
