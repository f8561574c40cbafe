// SPDX-License-Identifier: BSD-3-Clause
// How queues end: flushed in ERR, dropped in RESET. And what peers have found out about a QP or SRQ.
#include <algorithm>
#include <mutex>

#include "link/link.h"
#include "transport/copy_service.h"
#include "transport/engine.h"
#include "transport/message.h"
#include "transport/requester.h"
#include "transport/transport.h"

namespace softhca {
namespace {

void complete_flushed(Fabric& fabric, Qp& qp, uint64_t wr_id) {
  CqEntry entry;
  clear_header(entry);
  entry.wr_id = wr_id;
  entry.qp_num = qp.base()->qp_num;
  entry.status = IBV_WC_WR_FLUSH_ERR;
  entry.opcode = static_cast<uint8_t>(IBV_WC_RECV);
  (void)complete(fabric, fabric.slot(), fabric.self(), qp.shared->recv_cq, entry);
}

// A request that a peer has taken and then died.
void flush_taken(Fabric& fabric, Qp& qp) {
  QpShared& shared = *qp.shared;
  if (shared.taken_valid.load(std::memory_order_acquire) == 0) return;
  if (shared.srq != 0) {
    RecvRing& ring = fabric.self().srqs[shared.srq - 1].ring;
    RobustGuard guard(ring.lock, fabric.stamp());
    finish_taking(fabric.self(), ring);
  }
  settle_taken(fabric, fabric.self(), shared);
  const uint32_t valid = shared.taken_valid.exchange(0);
  if (valid == 0) return;
  // It died before it advanced the ring: the request is flushed with the rest.
  constexpr uint32_t kMask = UINT32_MAX >> 1;
  if (shared.srq == 0 && (shared.rq.taken.load(std::memory_order_relaxed) & kMask) == (valid >> 1 & kMask)) return;
  complete_flushed(fabric, qp, shared.taken_wr_id);
}

void raise_events(Qp& qp, uint32_t bits) {
  if ((bits & kQpCommEst) != 0) raise(qp, IBV_EVENT_COMM_EST);
  if ((bits & kQpAccessErr) != 0) raise(qp, IBV_EVENT_QP_ACCESS_ERR);
  if ((bits & kQpReqErr) != 0) raise(qp, IBV_EVENT_QP_REQ_ERR);
  if ((bits & kQpFatal) != 0) raise(qp, IBV_EVENT_QP_FATAL);
}

}  // namespace

void flush_sends(Qp& qp) {
  link::take_all_answers(qp);
  while (qp.sq.head != qp.sq.tail) retire_first(qp, IBV_WC_WR_FLUSH_ERR);
}

void flush_receives(Qp& qp) {
  if (qp.target || qp.base()->qp_type == IBV_QPT_XRC_SEND) return;
  Fabric& fabric = *Fabric::get();
  RobustGuard guard(qp.shared->lock, fabric.stamp());
  if (qp.shared->state.load(std::memory_order_relaxed) != IBV_QPS_ERR) return;
  flush_taken(fabric, qp);
  RecvRing& ring = qp.shared->rq;
  if (qp.shared->srq != 0 || ring.capacity == 0) return;
  const uint32_t posted = ring.posted.load(std::memory_order_acquire);
  for (uint32_t n = ring.taken.load(std::memory_order_relaxed); n != posted; ++n) {
    const uint64_t offset = ring.offset + uint64_t{n & (ring.capacity - 1)} * ring.stride;
    const auto* entry = reinterpret_cast<const RecvEntry*>(reinterpret_cast<uint8_t*>(&fabric.self()) + offset);
    complete_flushed(fabric, qp, entry->wr_id);
    ring.taken.store(n + 1, std::memory_order_release);
  }
}

void flush(Qp& qp) {
  flush_sends(qp);
  flush_receives(qp);
  Fabric& fabric = *Fabric::get();
  if (!qp.sq.flushed && fabric.config().personality == Personality::Iwarp) close_connection(fabric, qp);
  if (qp.own_srq != nullptr && !qp.target && !qp.sq.flushed) raise(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
  qp.sq.flushed = true;
}

void drop_requests(Qp& qp) {
  Fabric* fabric = Fabric::get();
  if (fabric == nullptr) return;
  SendQueue& sq = qp.sq;
  engine::cancel(qp);
  sq.scheduled_ns = UINT64_MAX;
  sq.head = sq.tail;
  sq.unanswered = 0;
  sq.departed = sq.tail;
  sq.arrives_ns = 0;
  sq.answered_ns = 0;
  sq.unretired = 0;
  sq.wait = SendWait::None;
  sq.peer = nullptr;
  sq.short_opcodes = 0;
  sq.route = {};
  sq.flushed = false;
  if (!qp.target) {
    RobustGuard guard(qp.shared->lock, fabric->stamp());
    RecvRing& ring = qp.shared->rq;
    ring.taken.store(ring.posted.load(std::memory_order_acquire), std::memory_order_release);
    qp.shared->taken_valid.store(0, std::memory_order_relaxed);
    qp.shared->events.store(0, std::memory_order_relaxed);
  }
  if (qp.base()->send_cq != nullptr) purge(*Cq::of(qp.base()->send_cq), qp.base()->qp_num);
  if (qp.base()->recv_cq != nullptr) purge(*Cq::of(qp.base()->recv_cq), qp.base()->qp_num);
  sq.reaped.store(sq.tail, std::memory_order_relaxed);
}

void fail_qp(Qp& qp, uint32_t event_bits) {
  if (!qp.target) {
    RobustGuard guard(qp.shared->lock, Fabric::get()->stamp());
    qp.shared->state.store(IBV_QPS_ERR, std::memory_order_seq_cst);
  }
  flush(qp);
  raise_events(qp, event_bits);
}

void look_at_qp(Qp& qp) {
  const uint32_t bits = qp.shared->events.exchange(0, std::memory_order_seq_cst);
  if (bits == 0) return;
  if ((bits & (kQpFlush | kQpKick)) != 0) {
    std::lock_guard guard(qp.sq_mutex);
    if (qp.shared->state.load(std::memory_order_acquire) == IBV_QPS_ERR)
      flush(qp);
    else
      run_send_queue(qp);
  }
  raise_events(qp, bits);
}

void look_at_target(Qp& qp) {
  const uint32_t events = qp.shared->events.load(std::memory_order_seq_cst);
  const bool was_reset = ((events ^ qp.events_seen) & ~kQpEventMask) != 0;
  const uint32_t told = was_reset ? 0 : qp.events_seen;
  qp.events_seen = events;
  raise_events(qp, events & ~told & kQpEventMask);
}

void suspect(Qp& qp) {
  if (qp.shared->state.load(std::memory_order_acquire) == IBV_QPS_ERR)
    qp.shared->events.fetch_or(kQpFlush, std::memory_order_seq_cst);  // once more does no harm
  look_at_qp(qp);
}

void suspect(Srq& srq) {
  look_at_srq(srq);
}

void look_at_srq(Srq& srq) {
  SrqShared& shared = *srq.shared;
  uint32_t limit = shared.limit.load();
  const auto is_due = [&] { return shared.ring.posted.load() - shared.ring.taken.load() < limit; };
  // A limit that has been set since, and is not due, stays.
  while (limit >= kLimitFired || is_due())
    if (shared.limit.compare_exchange_weak(limit, 0))
      return raise(srq,
                   shared.error.load(std::memory_order_relaxed) != 0 ? IBV_EVENT_SRQ_ERR : IBV_EVENT_SRQ_LIMIT_REACHED);
}

void quiesce() {
  Fabric* fabric = Fabric::get();
  if (fabric == nullptr) return;
  Slot& self = fabric->self();
  // What is in the table does not say: one that is being destroyed is not, and a peer may still write through it. It has its number
  // until its lock has been held.
  for (unsigned i = 0; i < tables().qps_end.load(std::memory_order_acquire); ++i)
    if (self.qps[i].qp_num.load() != 0) self.qps[i].lock.wait_for_release();
  bool has_xrc = false;
  for (unsigned i = 0; i < tables().srqs_end.load(std::memory_order_acquire) && !has_xrc; ++i)
    has_xrc = tables().srqs[i].load(std::memory_order_relaxed) != nullptr && self.srqs[i].xrcd != 0;
  Slot* hub = has_xrc ? fabric->peer(kHubSlot) : nullptr;
  const uint32_t targets = std::min<uint32_t>(fabric->hub().targets_end.load(std::memory_order_acquire), kMaxTargets);
  for (unsigned i = 0; hub != nullptr && i < targets; ++i)
    if (hub->qps[i].qp_num.load(std::memory_order_relaxed) != 0) hub->qps[i].lock.wait_for_release();
  finish_copies(*fabric);
}

void quiesce(const MrEntry& entry) {
  const uint32_t users = entry.users.load(std::memory_order_seq_cst);
  if (users == 0) return;
  if (users > kQpsPerSlot) return quiesce();
  Fabric& fabric = *Fabric::get();
  fabric.self().qps[users - 1].lock.wait_for_release();
  finish_copies(fabric);
}

}  // namespace softhca
