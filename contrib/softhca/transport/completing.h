// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A request that has left its queue is completed. Inlined, since all requests come to this.
#include "transport/adding.h"
#include "transport/message.h"
#include "transport/requester.h"

namespace softhca {

[[gnu::always_inline]] inline void fill(CqEntry& completion, const Qp& qp, const Executed& request,
                                        ibv_wc_status status) {
  clear_header(completion);
  completion.wr_id = request.wr_id;
  completion.byte_len = request.length;
  completion.qp_num = qp.qp_base.qp_num;
  completion.status = static_cast<uint8_t>(status);
  completion.opcode = static_cast<uint8_t>(request.opcode);
  completion.retires = static_cast<uint16_t>(qp.sq.unretired);
}

// Adds it to a completion queue of this process. False: there was no room.
[[gnu::always_inline]] inline bool add(Fabric& fabric, const Qp& qp, const Executed& request, ibv_wc_status status) {
  const Cq& queue = *Cq::of(qp.qp_base.send_cq);
  CqShared& cq = *queue.shared;
  {
    RobustGuard guard(cq.lock, fabric.stamp());
    finish_adding(fabric.self(), cq);
    const uint32_t tail = cq.tail.load(std::memory_order_relaxed);
    // The queue is this process's, and there as long as the QP: nothing about it is to be checked.
    if (full(cq, tail)) [[unlikely]]
      return false;
    CqEntry& to = own_entry_at(fabric, cq, tail);
    fill(to, qp, request, status);
    if (cq.stamped != 0) [[unlikely]]
      to.timestamp_ns = Fabric::now_ns();
    publish(cq, to, tail);
  }
  const uint32_t armed = cq.armed.load(std::memory_order_seq_cst);
  if (wants_event(armed, status != IBV_WC_SUCCESS)) [[unlikely]]
    announce(fabric, fabric.slot(), fabric.self(), queue.index, armed);
  return true;
}

// As complete_request() says.
[[gnu::always_inline]] inline bool complete_now(Fabric& fabric, Qp& qp, const Executed& request, ibv_wc_status status) {
  SendQueue& sq = qp.sq;
  ++sq.unretired;
  if (status == IBV_WC_SUCCESS && !qp.sq_sig_all && (request.flags & IBV_SEND_SIGNALED) == 0) return true;
  if (!add(fabric, qp, request, status)) [[unlikely]]
    return overrun(fabric, qp, Executed(request), status);
  sq.unretired = 0;
  return true;
}

}  // namespace softhca
