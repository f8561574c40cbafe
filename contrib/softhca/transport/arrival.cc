// SPDX-License-Identifier: BSD-3-Clause
#include "transport/arrival.h"

#include <bit>
#include <cstring>

#include "transport/engine.h"
#include "transport/keys.h"
#include "transport/message.h"
#include "transport/remote_memory.h"
#include "transport/taking.h"
#include "transport/transport.h"

namespace softhca {
namespace {

RecvRing& ring_of(const Owner& owner, QpShared& qp) {
  return owner.srq != nullptr ? owner.srq->ring : qp.rq;
}

// What RecvRing::taking says; 0 for the targets of XRC, which are not of the slot and which nobody flushes.
uint64_t taking(const Owner& owner, const QpShared& taker, uint32_t number) {
  return owner.srqn == 0 ? taking_for(taker, number) : 0;
}

// Under the lock of whoever may take.
bool take_from(const Owner& owner, QpShared& qp, RecvRing& ring, Arrival& arrival) {
  const uint32_t number = ring.taken.load(std::memory_order_relaxed);
  const RecvEntry* entry = next_request(*owner.slot, ring, number);
  if (entry == nullptr) return false;
  arrival.wr_id = entry->wr_id;
  arrival.num_sge = entry->num_sge;
  arrival.length = 0;
  for (unsigned i = 0; i < arrival.num_sge; ++i) {
    arrival.sge[i] = entry->sge[i];
    arrival.length += arrival.sge[i].length;
  }
  take_request(qp, ring, number, arrival.wr_id, owner.srq != nullptr, taking(owner, qp, number));
  if (owner.srq != nullptr) raise_limit(*owner.slot, *owner.srq);
  return true;
}

// The request that the QP has taken completes without a message.
void flush_taken(Fabric& fabric, const Owner& owner, QpShared& qp) {
  Arrival taken;
  taken.wr_id = qp.taken_wr_id;
  CqEntry completion;
  clear_header(completion);
  completion.status = static_cast<uint8_t>(IBV_WC_WR_FLUSH_ERR);
  completion.opcode = static_cast<uint8_t>(IBV_WC_RECV);
  (void)complete_arrival(fabric, owner, qp, taken, completion);  // who has no room is told by that
}

}  // namespace

void raise_limit(Slot& owner, SrqShared& srq) {
  uint32_t limit = srq.limit.load(std::memory_order_relaxed);
  if (limit == 0) return;
  const uint32_t left = srq.ring.posted.load() - srq.ring.taken.load();
  while (left < limit && limit < kLimitFired) {
    if (!srq.limit.compare_exchange_weak(limit, limit | kLimitFired)) continue;
    // If this process dies here, the owner finds it nevertheless (suspect).
    owner.srq_events.add(static_cast<unsigned>(&srq - owner.srqs));
    return engine::ring(owner, kLookSrqs);
  }
}

void settle_taking(Slot& slot, RecvRing& ring) {
  const uint64_t half_done = ring.taking.load(std::memory_order_relaxed);
  const uint32_t index = (static_cast<uint32_t>(half_done) - 1) % kQpsPerSlot;
  if (ring.taken.load(std::memory_order_relaxed) == half_done >> 32)
    slot.qps[index].taken_valid.store(0, std::memory_order_release);
  ring.taking.store(0, std::memory_order_release);
}

bool take(Fabric& fabric, const Owner& owner, QpShared& qp, Arrival& arrival) {
  RecvRing& ring = ring_of(owner, qp);
  if (owner.srq == nullptr) return take_from(owner, qp, ring, arrival);  // the QP's lock is enough
  RobustGuard guard(ring.lock, fabric.stamp());
  finish_taking(*owner.slot, ring);
  return take_from(owner, qp, ring, arrival);
}

void take_from_dead(Fabric& fabric, const Owner& owner, QpShared& qp) {
  settle_taken(fabric, *owner.slot, qp);
  if (qp.taken_valid.load(std::memory_order_relaxed) != 0) untake(fabric, owner, qp);
  // Of a shared queue another has been taken since, or it would be back. (Of the QP's own nobody else takes any: it never left.)
  if (owner.srq != nullptr && qp.taken_valid.load(std::memory_order_relaxed) != 0) flush_taken(fabric, owner, qp);
}

void untake(Fabric& fabric, const Owner& owner, QpShared& qp) {
  RecvRing& ring = ring_of(owner, qp);
  const uint32_t number = qp.taken_valid.load(std::memory_order_relaxed) >> 1;
  RobustGuard guard(ring.lock, fabric.stamp());
  finish_taking(*owner.slot, ring);
  const uint32_t taken = ring.taken.load(std::memory_order_relaxed);
  if ((taken & (UINT32_MAX >> 1)) != ((number + 1) & (UINT32_MAX >> 1))) return;
  // For the owner, who posts meanwhile, it was gone: the queue may be full by now.
  if (ring.posted.load(std::memory_order_acquire) - (taken - 1) > ring.max_wr) return flush_taken(fabric, owner, qp);
  if (owner.srq != nullptr) ring.taking.store(taking(owner, qp, taken - 1), std::memory_order_release);
  ring.taken.store(taken - 1, std::memory_order_release);
  ring.taken_seen.store(taken - 1, std::memory_order_relaxed);
  qp.taken_valid.store(0, std::memory_order_release);
  if (owner.srq != nullptr) ring.taking.store(0, std::memory_order_release);
}

Delivery complete_arrival(Fabric& fabric, const Owner& owner, QpShared& qp, const Arrival& arrival, CqEntry& completion,
                          std::span<const iovec> landing) {
  completion.wr_id = arrival.wr_id;
  completion.qp_num = qp.qp_num.load(std::memory_order_relaxed);
  completion.srqn = owner.srqn;
  switch (complete(fabric, owner.number, *owner.slot, owner.recv_cq, completion, landing, &qp, arrival.kill_at)) {
    case Added::Yes:
      return Delivery::Done;
    case Added::NoRoom:
      return Delivery::NoRoom;
    case Added::Overrun:
      break;
  }
  return Delivery::Overrun;
}

Delivery deliver(Fabric& fabric, const Owner& owner, QpShared& qp, const Arrival& arrival,
                 std::span<const iovec> message, CqEntry& completion) {
  const uint64_t length = total(message);
  const auto fail = [&](ibv_wc_status status, Delivery delivery) {
    completion.status = static_cast<uint8_t>(status);
    return complete_arrival(fabric, owner, qp, arrival, completion) == Delivery::Done ? delivery : Delivery::Overrun;
  };
  if (length > arrival.length) return fail(IBV_WC_LOC_LEN_ERR, Delivery::TooLong);

  iovec buffers[kMaxSge];
  unsigned count = 0;
  for (uint64_t left = length; left != 0; ++count) {
    Sge sge = arrival.sge[count];
    if (sge.length > left) sge.length = static_cast<uint32_t>(left);
    uint64_t addr = 0;
    if (!receive_key_allows(*owner.slot, owner.pd, user_of(qp.qp_num.load(std::memory_order_relaxed)), sge, &addr))
      return fail(IBV_WC_LOC_PROT_ERR, Delivery::ReceiverFault);
    buffers[count] = {reinterpret_cast<void*>(addr), sge.length};
    left -= sge.length;
  }

  if (length <= fabric.config().landing && count <= 1) {
    completion.landing_len = static_cast<uint16_t>(length);
    completion.landing_addr = count != 0 ? reinterpret_cast<uint64_t>(buffers[0].iov_base) : 0;
    const Delivery delivery = complete_arrival(fabric, owner, qp, arrival, completion, message);
    if (delivery != Delivery::NoRoom) return delivery;
    completion.landing_len = 0;
  }
  switch (write_to(fabric, owner.number, owner.incarnation, message, {buffers, count}, Order::Any)) {
    case Copy::Done:
      return complete_arrival(fabric, owner, qp, arrival, completion);
    case Copy::RemoteFault:
      return fail(IBV_WC_LOC_PROT_ERR, Delivery::ReceiverFault);
    case Copy::LocalFault:
      untake(fabric, owner, qp);
      return Delivery::SenderFault;
    case Copy::NoRoom:
      untake(fabric, owner, qp);
      return Delivery::SenderNoRoom;
    case Copy::Gone:
      break;
  }
  return Delivery::Lost;
}

void tell_owner(Fabric& fabric, unsigned slot_number, Slot& slot, QpShared& qp, uint32_t event_bits) {
  qp.events.fetch_or(event_bits, std::memory_order_seq_cst);
  const auto index = static_cast<unsigned>(&qp - slot.qps);
  if (slot_number != kHubSlot) {
    slot.qp_events.add(index);
    engine::ring(slot, kLookQps);
    return;
  }
  if (index >= kMaxTargets) return;
  const auto& users = fabric.hub().target_users[index];
  for (unsigned w = 0; w < kSlots / 64; ++w)
    for (uint64_t bits = users.open[w].load(std::memory_order_relaxed); bits != 0; bits &= bits - 1)
      if (Slot* user = fabric.peer(w * 64 + static_cast<unsigned>(std::countr_zero(bits))); user != nullptr)
        engine::ring(*user, kLookQps);
}

}  // namespace softhca
