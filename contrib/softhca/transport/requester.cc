// SPDX-License-Identifier: BSD-3-Clause
// Executes a send queue in order. All with Qp::sq_mutex held.
#include "transport/requester.h"

#include <algorithm>
#include <mutex>

#include "faults/faults.h"
#include "link/link.h"
#include "transport/completing.h"
#include "transport/copy_service.h"
#include "transport/engine.h"
#include "transport/keys.h"
#include "transport/message.h"
#include "transport/transport.h"
#include "verbs/qp_states.h"

namespace softhca {
namespace {

constexpr uint64_t kUs = 1000;
constexpr uint32_t kPsnMask = 0xffffff;
constexpr uint8_t kForEver = 7;  // rnr_retry
// Where there is no timeout at all: how often to look whether the other side is there by now.
constexpr uint64_t kNoTimeoutNs = 10'000 * kUs;
// iWARP's transport is TCP, which has timeouts of its own.
constexpr uint8_t kTcpTimeout = 14;
constexpr uint8_t kTcpRetries = 7;

// The responder's RNR timer, in hundredths of a millisecond.
constexpr uint32_t kRnrTimer[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_ATOMIC_WRITE:
      return IBV_WC_ATOMIC_WRITE;
    case IBV_WR_LOCAL_INV:
      return IBV_WC_LOCAL_INV;
    case IBV_WR_BIND_MW:
      return IBV_WC_BIND_MW;
    default:
      return IBV_WC_SEND;
  }
}

bool connected(const Qp& qp) {
  return is_connected(qp.qp_base.qp_type);
}
bool acknowledged(const Qp& qp) {
  return connected(qp) && qp.qp_base.qp_type != IBV_QPT_UC;
}

// What the request sends, or where its answer goes. false: a key does not allow it.
bool gather_local(Fabric& fabric, const Qp& qp, const SendEntry& entry, iovec* list, unsigned* count) {
  *count = 0;
  if (entry.num_sge == 0) {
    if (entry.length != 0) list[(*count)++] = {const_cast<uint64_t*>(entry.data), entry.length};
    return true;
  }
  const bool reads = entry.opcode == IBV_WR_RDMA_READ;
  const uint32_t access = reads || is_atomic(entry.opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;
  // iWARP's read response is like a write that comes in, so its sink is named by a key that lets one in: a window's does too.
  const bool is_named_to_peer = reads && fabric.config().personality == Personality::Iwarp;
  const auto* sges = reinterpret_cast<const Sge*>(entry.data);
  for (uint32_t i = 0; i < entry.num_sge; ++i) {
    uint64_t addr = sges[i].addr;
    const bool allowed = is_named_to_peer && sges[i].length != 0
                             ? remote_key_allows(fabric.self(), qp.shared->pd, qp.qp_base.qp_num, sges[i].lkey,
                                                 sges[i].addr, sges[i].length, IBV_ACCESS_REMOTE_WRITE, &addr)
                             : own_key_allows(fabric.self(), qp.shared->pd, sges[i], access, &addr);
    if (!allowed) return false;
    if (sges[i].length != 0) list[(*count)++] = {reinterpret_cast<void*>(addr), sges[i].length};
  }
  return true;
}

void wait_until(Qp& qp, SendWait why, uint64_t when_ns) {
  qp.sq.wait = why;
  qp.sq.wake_ns = when_ns;
  engine::schedule(qp, when_ns);
}

// The first request completes with an error, and everything behind it is flushed.
void fail_first(Qp& qp, ibv_wc_status status) {
  if (qp.sq.linked) [[unlikely]] {
    link::take_all_answers(qp);
    if (qp.sq.head == qp.sq.tail) return;  // there was no room for one of these completions, and all is flushed
  }
  const bool whole = acknowledged(qp);
  if (!whole) {
    RobustGuard guard(qp.shared->lock, Fabric::get()->stamp());
    if (qp.shared->state.load(std::memory_order_relaxed) == IBV_QPS_RTS)
      qp.shared->state.store(IBV_QPS_SQE, std::memory_order_release);
  }
  if (!retire_first(qp, status)) return;
  whole ? fail_qp(qp, 0) : flush_sends(qp);
}

// No answer.
void wait_for_transport(Fabric& fabric, Qp& qp, SendEntry& entry) {
  uint8_t timeout = qp.attr.timeout & 31;
  uint8_t retries = qp.attr.retry_cnt;
  if (fabric.config().personality == Personality::Iwarp) timeout = kTcpTimeout, retries = kTcpRetries;
  if (timeout == 0) return wait_until(qp, SendWait::Transport, Fabric::now_ns() + kNoTimeoutNs);
  if (entry.attempts > retries) return fail_first(qp, IBV_WC_RETRY_EXC_ERR);
  ++entry.attempts;
  wait_until(qp, SendWait::Transport, Fabric::now_ns() + (4096ULL << timeout));
}

// Whether the process whose receive requests have run out still runs. Of XRC it is the owner of the SRQ, not of the target.
bool receiver_alive(Fabric& fabric, const Qp& qp, const SendEntry& entry) {
  const SendQueue& sq = qp.sq;
  if (sq.peer_slot != kHubSlot) return fabric.alive(sq.peer_slot, sq.peer_incarnation);
  const unsigned owner = slot_of_qpn(entry.remote_srqn);
  const Slot* slot = fabric.peer(owner);
  return slot != nullptr && fabric.alive(owner, slot->header.incarnation.load(std::memory_order_acquire));
}

void wait_for_receiver(Fabric& fabric, Qp& qp, SendEntry& entry, uint8_t timer) {
  if (!receiver_alive(fabric, qp, entry)) return wait_for_transport(fabric, qp, entry);
  if (entry.rnr_attempts++ >= qp.attr.rnr_retry && qp.attr.rnr_retry != kForEver)
    return fail_first(qp, IBV_WC_RNR_RETRY_EXC_ERR);
  entry.attempts = 0;  // there was an answer
  const uint64_t travel_ns = qp.sq.linked ? link::round_trip_ns(fabric, qp, entry) : 0;
  wait_until(qp, SendWait::Rnr, Fabric::now_ns() + kRnrTimer[timer & 31] * 10 * kUs + travel_ns);
}

// Without room for the completion the QP has failed by now.
void succeed(Qp& qp) {
  if (qp.sq.linked) [[unlikely]]
    return link::await_answer(*Fabric::get(), qp, acknowledged(qp));
  (void)retire_first(qp, IBV_WC_SUCCESS);
}

void execute(Fabric& fabric, Qp& qp, SendEntry& entry) {
  iovec list[kMaxPieces];
  unsigned count = 0;
  if (entry.opcode == IBV_WR_BIND_MW) {
    const auto status = static_cast<ibv_wc_status>(bind_window(qp, entry));
    return status == IBV_WC_SUCCESS ? succeed(qp) : fail_first(qp, status);
  }
  if (entry.opcode == IBV_WR_LOCAL_INV)
    return invalidate_own_key(qp, entry.imm_or_rkey) == 0 ? succeed(qp) : fail_first(qp, IBV_WC_MW_BIND_ERR);
  if (!gather_local(fabric, qp, entry, list, &count)) return fail_first(qp, IBV_WC_LOC_PROT_ERR);
  const Message message{fabric, qp, entry, {list, count}, packets_of(*qp.shared, entry.length), entry.fate.kill_at};
  const Reply reply = connected(qp) ? respond(message) : send_datagram(message);
  if (reply.kind == Reply::Error &&
      (acknowledged(qp) || reply.status == IBV_WC_LOC_PROT_ERR || reply.status == IBV_WC_LOC_QP_OP_ERR))
    return fail_first(qp, reply.status);
  if (acknowledged(qp) && reply.kind == Reply::Lost) return wait_for_transport(fabric, qp, entry);
  if (acknowledged(qp) && reply.kind == Reply::NotReady) return wait_for_receiver(fabric, qp, entry, reply.rnr_timer);
  qp.sq.psn = (qp.sq.psn + message.packets) & kPsnMask;
  const bool takes = entry.opcode == IBV_WR_RDMA_READ;
  fabric.self().sent[qp.index].count(takes ? entry.length : 0, takes ? 0 : entry.length);
  entry.fate.lost == IBV_WC_SUCCESS ? succeed(qp) : fail_first(qp, entry.fate.lost);
}

// What a fault rule does to the request instead of, or before, executing it.
void execute_with_faults(Fabric& fabric, Qp& qp, SendEntry& entry) {
  const faults::Verdict verdict = faults::on_request(qp, entry);
  entry.started = 1;
  switch (verdict.action) {
    case faults::Verdict::None:
      return execute(fabric, qp, entry);
    case faults::Verdict::Drop:
      if (!acknowledged(qp)) return succeed(qp);
      entry.started = 0;  // the next try may be lost as well
      return wait_for_transport(fabric, qp, entry);
    case faults::Verdict::Lose:
      return succeed(qp);
    case faults::Verdict::Rnr:
      if (!acknowledged(qp)) return succeed(qp);
      if (fabric.config().personality == Personality::Iwarp) {
        // It cannot ask for another try (responder.cc has the same where there is no receive request).
        close_connection(fabric, qp, kQpFatal);
        return fail_first(qp, IBV_WC_REM_OP_ERR);
      }
      entry.started = 0;
      return wait_for_receiver(fabric, qp, entry, qp.shared->min_rnr_timer);
    case faults::Verdict::Delay:
      return wait_until(qp, SendWait::Delayed, Fabric::now_ns() + verdict.delay_us * kUs);
    case faults::Verdict::Error:
      if (!verdict.executed) return fail_first(qp, verdict.status);
      entry.fate.lost = verdict.status;
      return execute(fabric, qp, entry);
    case faults::Verdict::Kill:
      if (verdict.kill_at == KillAt::Before) kill_this_process();
      entry.fate.kill_at = verdict.kill_at;
      return execute(fabric, qp, entry);
  }
}

// In SQD what has begun comes to its end, and then nothing begins.
bool begun(const SendQueue& sq) {
  return sq.wait == SendWait::Rnr || sq.wait == SendWait::Transport || (sq.linked && sq.head != sq.departed);
}

void drained(Qp& qp) {
  if (qp.sq.wait == SendWait::Drained || qp.sq.unanswered != 0) return;
  qp.sq.wait = SendWait::Drained;
  if (qp.attr.en_sqd_async_notify != 0) raise(qp, IBV_EVENT_SQ_DRAINED);
}

// Whether the first request still waits for its time.
bool waits(Qp& qp, SendEntry& entry) {
  SendQueue& sq = qp.sq;
  if (sq.wait == SendWait::Drained) sq.wait = SendWait::None;
  if (sq.wait == SendWait::None && entry.delayed == kNotDelayed) return false;
  const uint64_t now = Fabric::now_ns();
  if (sq.wait == SendWait::None && now < entry.start_ns) wait_until(qp, SendWait::Delayed, entry.start_ns);
  if (sq.wait != SendWait::None && now < sq.wake_ns) {
    engine::schedule(qp, sq.wake_ns);
    return true;
  }
  if (entry.delayed == kOnLink && link::queues_at_port(*Fabric::get(), qp, entry, now)) {
    entry.delayed = kDelayed;
    wait_until(qp, SendWait::Delayed, entry.start_ns);
    return true;
  }
  if (sq.wait != SendWait::None) entry.start_ns = sq.wake_ns;
  sq.wait = SendWait::None;
  entry.delayed = kNotDelayed;
  return false;
}

}  // namespace

bool overrun(Fabric& fabric, Qp& qp, const Executed& request, ibv_wc_status status) {
  CqEntry completion;
  fill(completion, qp, request, status);
  const bool added =
      complete(fabric, fabric.slot(), fabric.self(), Cq::of(qp.base()->send_cq)->index, completion) == Added::Yes;
  qp.sq.unretired = 0;
  if (added) return true;  // there is room by now
  if (qp.shared->state.load(std::memory_order_relaxed) != IBV_QPS_ERR) fail_qp(qp, kQpFatal);
  return false;
}

bool complete_request(Fabric& fabric, Qp& qp, const Executed& request, ibv_wc_status status) {
  return complete_now(fabric, qp, request, status);
}

bool retire_first(Qp& qp, ibv_wc_status status) {
  const SendEntry& entry = qp.sq.at(qp.sq.head);
  leave_first(qp.sq);
  return complete_request(*Fabric::get(), qp, {entry.wr_id, entry.length, entry.flags, completion_opcode(entry.opcode)},
                          status);
}

bool complete_request(Qp& qp, const SendEntry& entry, ibv_wc_status status) {
  return complete_request(*Fabric::get(), qp, {entry.wr_id, entry.length, entry.flags, completion_opcode(entry.opcode)},
                          status);
}

void find_peer(Qp& qp) {
  Fabric& fabric = *Fabric::get();
  SendQueue& sq = qp.sq;
  sq.route = {};
  sq.peer_slot = slot_of_qpn(qp.shared->dest_qpn);
  sq.peer = fabric.peer(sq.peer_slot);
  if (sq.peer == nullptr || sq.peer_slot == kHubSlot) return;
  sq.peer_incarnation = sq.peer->header.incarnation.load(std::memory_order_acquire);
  sq.short_opcodes = short_opcodes(fabric.config(), qp);
  sq.short_bytes = static_cast<uint32_t>(std::min<uint64_t>(fabric.config().landing, fabric.config().max_message));
  engine::watch(sq.peer_slot, sq.peer_incarnation);
  try_kernel_copy(fabric, *sq.peer);
}

namespace {

void run_now(Fabric& fabric, Qp& qp) {
  SendQueue& sq = qp.sq;
  while (sq.head != sq.tail) {
    const uint32_t state = qp.shared->state.load(std::memory_order_acquire);
    if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) return flush_sends(qp);
    if (state == IBV_QPS_SQD && !begun(sq)) return drained(qp);
    if (state != IBV_QPS_RTS && state != IBV_QPS_SQD) return;
    SendEntry& entry = sq.at(sq.head);
    if (waits(qp, entry)) return;
    if (connected(qp) && sq.peer == nullptr) find_peer(qp);
    if (qp.shared->must_wait.load(std::memory_order_acquire) != 0) return fail_qp(qp, kQpFatal);
    if (entry.started == 0 && faults::active.load(std::memory_order_relaxed)) [[unlikely]]
      execute_with_faults(fabric, qp, entry);
    else
      execute(fabric, qp, entry);
    if (sq.wait != SendWait::None) return;
  }
  if (qp.shared->state.load(std::memory_order_acquire) == IBV_QPS_SQD) drained(qp);
}

[[gnu::cold]] void run_on_link(Fabric& fabric, Qp& qp) {
  const uint64_t now = Fabric::now_ns();
  if (qp.shared->state.load(std::memory_order_acquire) == IBV_QPS_RTS) {
    // It must not even leave before something has come.
    if (qp.sq.head != qp.sq.tail && qp.sq.departed != qp.sq.tail &&
        qp.shared->must_wait.load(std::memory_order_acquire) != 0)
      return fail_qp(qp, kQpFatal);
    link::depart(fabric, qp, now);
  }
  (void)link::take_answers(fabric, qp, now);
  run_now(fabric, qp);
  if (const uint64_t next = link::take_answers(fabric, qp, Fabric::now_ns()); next != 0)
    return engine::schedule(qp, next);
  if (qp.shared->state.load(std::memory_order_acquire) == IBV_QPS_SQD) run_now(fabric, qp);  // it may be drained by now
}

}  // namespace

void run_send_queue(Qp& qp) {
  Fabric& fabric = *Fabric::get();
  if (qp.sq.linked) [[unlikely]]
    return run_on_link(fabric, qp);
  run_now(fabric, qp);
}

void resume_send_queue(Qp& qp) {
  std::lock_guard guard(qp.sq_mutex);
  run_send_queue(qp);
}

int bind_mw(ibv_qp* base, ibv_mw* mw, ibv_mw_bind* bind) {
  if (mw->type != IBV_MW_TYPE_1) return EINVAL;
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = bind->bind_info;
  const int error = post_send(base, &wr, &bad);
  if (error == 0) mw->rkey = wr.bind_mw.rkey;
  return error;
}

}  // namespace softhca
