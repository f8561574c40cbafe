// SPDX-License-Identifier: BSD-3-Clause
// The consumer's half of completion queues.
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "transport/adding.h"
#include "transport/copy_service.h"
#include "transport/engine.h"
#include "transport/landing.h"
#include "transport/prefetch.h"
#include "transport/transport.h"
#include "verbs/memory_region.h"

namespace softhca {
namespace {

// The payload of an entry; nullptr if there is none, or what another process has written is not sane.
const uint8_t* payload_of(const Cq& cq, const CqEntry& entry) {
  if (entry.landing_len == 0 || entry.status != IBV_WC_SUCCESS) return nullptr;
  if (entry.lines == 0) return entry.landing_len <= kLandingBytes ? entry.landing : nullptr;
  const uint8_t* ring = cq.landings.load(std::memory_order_relaxed);
  const uint64_t at = entry.line * kLandingLine % kLandingRingBytes;
  return ring != nullptr && at + entry.landing_len <= kLandingRingBytes ? ring + at : nullptr;
}

// The payload goes where it belongs, once. Cq::landing_mutex is held.
void land(const Cq& cq, CqEntry& entry) {
  if (const uint8_t* payload = payload_of(cq, entry); payload != nullptr)
    std::memcpy(reinterpret_cast<void*>(entry.landing_addr), payload, entry.landing_len);
  entry.landing_len = 0;
}

// What polling an entry means for others: its payload is in place, and its send requests are free again. Cq::landing_mutex
// is held.
void settle(Cq& cq, CqEntry& entry) {
  land(cq, entry);
  if (entry.lines != 0) {
    std::atomic<uint64_t>& freed = cq.shared->landings_freed;
    freed.store(freed_by(entry, freed.load(std::memory_order_relaxed)), std::memory_order_release);
  }
  if (entry.retires == 0) return;
  Qp* qp = tables().qps[index_of_qpn(entry.qp_num)].load(std::memory_order_acquire);
  if (qp == nullptr || qp->base()->qp_num != entry.qp_num) return;
  qp->sq.reaped.store(qp->sq.reaped.load(std::memory_order_relaxed) + entry.retires, std::memory_order_release);
}

// Who has taken a message mostly posts a receive again, in the place of one that the sender has read. Cq::mutex is held, under
// which the queue pair stays; that of XRC is none of this process's table.
void fetch_place_to_post(const CqEntry& entry) {
  if ((entry.opcode & kRecvOpcode) == 0 || entry.srqn != 0) return;
  Fabric* const fabric = Fabric::get();
  const Qp* qp = tables().qps[index_of_qpn(entry.qp_num)].load(std::memory_order_acquire);
  if (fabric == nullptr || qp == nullptr) return;
  const RecvRing& ring = qp->own_srq != nullptr ? qp->own_srq->shared->ring : qp->shared->rq;
  const uint32_t number = ring.posted.load(std::memory_order_relaxed);
  fetch_to_write(reinterpret_cast<const uint8_t*>(&fabric->self()) + ring.offset +
                 uint64_t{number & (ring.capacity - 1)} * ring.stride);
}

void fill(ibv_wc& wc, const CqEntry& entry) {
  wc.wr_id = entry.wr_id;
  wc.status = static_cast<ibv_wc_status>(entry.status);
  wc.opcode = static_cast<ibv_wc_opcode>(entry.opcode);
  wc.vendor_err = 0;
  wc.byte_len = entry.byte_len;
  wc.imm_data = entry.imm_or_rkey;
  wc.qp_num = entry.qp_num;
  wc.src_qp = entry.src_qp;
  wc.wc_flags = entry.wc_flags;
  wc.pkey_index = entry.pkey_index;
  wc.slid = entry.slid;
  wc.sl = entry.sl;
  wc.dlid_path_bits = 0;
}

// How often in a row this thread has found nothing, in whichever queue: one that polls several must come to that in which
// something is before it lets others run.
struct EmptyPolls {
  unsigned count = 0;
  unsigned allowed = 0;
};
[[gnu::tls_model("initial-exec")]] thread_local EmptyPolls empty_polls;

// Nothing was there. Whether that is all that there is to say: no timer, no copy to make, and not for long. Inlined, so that
// it costs next to nothing.
[[gnu::always_inline]] inline bool only_empty(Fabric& fabric) {
  const bool soon = ++empty_polls.count < empty_polls.allowed;
  return soon && engine::next_qp_ns.load(std::memory_order_relaxed) == engine::kNever && !copies_wanted(fabric);
}

// It is not; no lock is held. Does what is due, and lets others run when that went on for a while. True if they ran: the queue is worth a second
// look then. What they sent is in it, and who is told that it is empty may act upon what came after that, such as the end of
// the connection, and lose what is there.
[[gnu::noinline]] bool idle(Fabric& fabric) {
  if (engine::timer_due()) engine::run_send_queues();
  if (copies_wanted(fabric)) serve_copies(fabric);
  empty_polls.allowed = fabric.polls_before_yield();
  if (empty_polls.count < empty_polls.allowed) return false;
  sched_yield();
  return true;
}

// Finds the next entry for start_poll and next_poll, which hold Cq::mutex until end_poll.
int look(Cq& cq) {
  if (!cq.may_have_next()) return ENOENT;
  CqEntry& entry = cq.entry(cq.shared->head.load(std::memory_order_relaxed));
  {
    std::lock_guard landing(cq.landing_mutex);
    settle(cq, entry);
  }
  cq.current = &entry;
  cq.wr_id = entry.wr_id;
  cq.status = static_cast<ibv_wc_status>(entry.status);
  empty_polls.count = 0;
  engine::has_taken.store(true, std::memory_order_relaxed);
  return 0;
}

void pass(Cq& cq) {
  if (cq.current == nullptr) return;
  cq.go_to(cq.shared->head.load(std::memory_order_relaxed) + 1);
  cq.current = nullptr;
}

// Up to `count` entries of the queue; gives their number. Cq::mutex and Cq::landing_mutex are held.
[[gnu::always_inline]] inline int take_held(Cq& cq, int count, ibv_wc* wc) {
  const uint32_t head = cq.shared->head.load(std::memory_order_relaxed);
  int done = 0;
  for (; done < count; ++done) {
    const uint32_t number = head + static_cast<uint32_t>(done);
    CqEntry& entry = cq.entry(number);
    if (!is_there(entry, number, cq.capacity)) break;
    fetch_place_to_post(entry);
    settle(cq, entry);
    fill(wc[done], entry);
  }
  if (done > 0) {
    cq.go_to(head + static_cast<uint32_t>(done));
    empty_polls.count = 0;
    engine::has_taken.store(true, std::memory_order_relaxed);
  }
  return done;
}

// The same; none is held. Who always finds something never comes to idle(), and the engine counts on who polls.
[[gnu::noinline]] int take(Cq& cq, int count, ibv_wc* wc) {
  int done = 0;
  {
    const std::lock_guard polling(cq.mutex);
    const std::lock_guard landing(cq.landing_mutex);
    done = take_held(cq, count, wc);
  }
  if (engine::timer_due()) [[unlikely]]
    engine::run_send_queues();
  return done;
}

[[gnu::noinline]] int idle_and_take(Fabric& fabric, Cq& cq, int count, ibv_wc* wc) {
  return idle(fabric) && cq.may_have_next() ? take(cq, count, wc) : 0;
}

// Not under Cq::mutex, which a thread has from ibv_start_poll to ibv_end_poll, when it may deregister memory as well.
void settle(Fabric& fabric, Cq& cq, const MrEntry& region) {
  CqShared& shared = *cq.shared;
  if (!cq.may_have_next()) return;
  std::lock_guard landing(cq.landing_mutex);
  RobustGuard lock(shared.lock, fabric.stamp());  // nobody writes to entries that are polled meanwhile
  finish_adding(fabric.self(), shared);
  const uint32_t tail = shared.tail.load(std::memory_order_relaxed);
  for (uint32_t n = shared.head.load(std::memory_order_acquire); n != tail; ++n) {
    CqEntry& entry = own_entry_at(fabric, shared, n);
    if (entry.landing_len == 0 || entry.landing_addr - region.addr >= region.length) continue;
    // A program may have freed the memory of a region that it is about to deregister.
    if (mapped(entry.landing_addr) && mapped(entry.landing_addr + entry.landing_len - 1))
      land(cq, entry);
    else
      entry.landing_len = 0;
  }
}

// Takes Cq::mutex and finds the first entry; without one, the mutex is free again.
bool open_at_first(Cq& cq) {
  cq.mutex.lock();
  if (look(cq) == 0) return true;
  cq.mutex.unlock();
  return false;
}

int start_poll(ibv_cq_ex* base, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  Cq& cq = *static_cast<Cq*>(base);
  Fabric* fabric = Fabric::get();
  if (fabric == nullptr) return EPERM;
  if (open_at_first(cq) || (!only_empty(*fabric) && idle(*fabric) && open_at_first(cq))) return 0;
  return ENOENT;
}

int next_poll(ibv_cq_ex* base) {
  Cq& cq = *static_cast<Cq*>(base);
  pass(cq);
  return look(cq);
}

void end_poll(ibv_cq_ex* base) {
  Cq& cq = *static_cast<Cq*>(base);
  pass(cq);
  cq.mutex.unlock();
  if (engine::timer_due()) engine::run_send_queues();
}

}  // namespace

int poll_cq(ibv_cq* base, int count, ibv_wc* wc) {
  Cq& cq = *Cq::of(base);
  Fabric* fabric = Fabric::get();
  if (fabric == nullptr) return -EPERM;
  if (cq.may_have_next()) return take(cq, count, wc);
  return only_empty(*fabric) ? 0 : idle_and_take(*fabric, cq, count, wc);
}

void settle_landings(const MrEntry& region) {
  Fabric* fabric = Fabric::get();
  const uint32_t users = region.users.load(std::memory_order_seq_cst);
  if (fabric == nullptr || users == 0) return;
  std::lock_guard lookup(lookup_mutex());
  // Where they came through one QP, they are in one queue.
  unsigned first = 0;
  unsigned end = tables().cqs_end.load(std::memory_order_acquire);
  if (users <= kQpsPerSlot) {
    first = fabric->self().qps[users - 1].recv_cq % kCqsPerSlot;
    end = first + 1;
  }
  for (unsigned i = first; i < end; ++i)
    if (Cq* cq = tables().cqs[i].load(std::memory_order_acquire); cq != nullptr) settle(*fabric, *cq, region);
}

void set_extended_poll(Cq& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.shared->stamped =
      (cq.wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) != 0;
}

}  // namespace softhca
