// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the verbs calls need of the data path.
#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <span>

#include "faults/kill_at.h"
#include "verbs/objects.h"

namespace softhca {

// ibv_context_ops. post_* give an errno and set *bad; ENOMEM when the queue is full, EINVAL for a bad request.
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);

// --- Send queues

// Sets the sizes of a queue with these limits. The bytes that its ring needs.
size_t size_send_queue(SendQueue& sq, const ibv_qp_cap& cap);
// Appends one request (Qp::sq_mutex held). 0 or an errno.
int append(Qp& qp, const ibv_send_wr& wr);
// Executes what can be executed (Qp::sq_mutex held).
void run_send_queue(Qp& qp);
// The engine's timer, and kQpKick.
void resume_send_queue(Qp& qp);

// Finds the process on the other side of shared->dest_qpn, whose QP will be the destination of every message.
void find_peer(Qp& qp);

// --- State changes (verbs/qp_modify.cc calls them; Qp::sq_mutex held, shared->lock not)

// The QP is in ERR or, `to_reset`, back in RESET: in ERR every request that is left completes with IBV_WC_WR_FLUSH_ERR, in
// order; in RESET they vanish, and so do this QP's completions (nobody polls its CQs: transport/polling_stopped.h).
void flush(Qp& qp);
void drop_requests(Qp& qp);
// The owner itself puts the QP into ERR because a request of its own failed: state, event bits, flush.
void fail_qp(Qp& qp, uint32_t event_bits);
// What is left in the RQ, in order (shared->lock not held; any thread).
void flush_receives(Qp& qp);

// --- Completion queues

enum class Added {
  Yes,
  Overrun,  // the owner gets IBV_EVENT_CQ_ERR
  NoRoom,   // for the payload, now; nothing has happened
};
// Adds a completion to a CQ of any process, and tells the owner if the CQ is armed for it. CqEntry::landing_len bytes are
// copied from `payload` (at most kMostLanded), the rest of the entry from `entry`.
// `taker`: the QP whose taken receive request this completes; the process may be told to die at that.
[[nodiscard]] Added complete(Fabric& fabric, unsigned slot_number, Slot& slot, uint32_t cq, const CqEntry& entry,
                             std::span<const iovec> payload = {}, QpShared* taker = nullptr,
                             KillAt kill_at = KillAt::Nowhere);
// A process may have died while it completed a request that it took from `taker`, a QP of that slot (whose lock is held): if
// the completion is in the CQ, the request is taken no longer.
void settle_taken(Fabric& fabric, Slot& slot, QpShared& taker);
// Removes a QP's entries (reset, destroy). Cq::mutex is held.
void purge(Cq& cq, uint32_t qp_num);
// Moves the ring to one of that many entries; takes Cq::mutex and the shared lock itself. 0 or an errno.
int resize(Cq& cq, unsigned entries);
// Raises the completion event now if an armed CQ asks for it (the engine, for CQs in Slot::cq_events).
void notify(Cq& cq);

// ibv_start_poll and friends, for create_cq_ex.
void set_extended_poll(Cq& cq);

// --- Memory

// Waits until no peer executes anything on memory of this process that it began before the call (layout.h, MrEntry).
void quiesce();
// The same for what it has begun by the key that this entry of this process's has had.
void quiesce(const MrEntry& entry);
// Messages for the memory of this entry that wait in completions to be polled are put in place now, for it is about to be the
// program's own again.
void settle_landings(const MrEntry& entry);

// --- The engine's duties for what peers left in this slot

void look_at_qp(Qp& qp);      // QpShared::events
void look_at_target(Qp& qp);  // the same of XRC; lookup_mutex() is held
void look_at_srq(Srq& srq);   // SrqShared::limit
// A peer has died, and may have left its step half done: what it was to tell is told.
void suspect(Qp& qp);
void suspect(Cq& cq);
void suspect(Srq& srq);

}  // namespace softhca
