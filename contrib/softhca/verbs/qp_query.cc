// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/call.h"

using namespace softhca;

// All attributes are given whatever the mask asks for, as devices do. The state is the true one: a peer may have moved the
// QP to ERR.
SOFTHCA_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  Qp& mine = *Qp::of(qp);
  if (const int error = cannot_use(*mine.owner)) return error;
  if (const int error = SOFTHCA_FAULTY("ibv_query_qp")) return error;
  std::lock_guard guard(mine.sq_mutex);
  const auto state = static_cast<ibv_qp_state>(mine.shared->state.load(std::memory_order_acquire));
  *attr = mine.attr;
  attr->qp_state = attr->cur_qp_state = state;
  attr->cap = mine.cap;
  attr->path_mig_state = IBV_MIG_MIGRATED;
  attr->rq_psn = mine.shared->expected_psn.load(std::memory_order_relaxed);
  attr->sq_psn = mine.sq.psn;
  const bool waits = mine.sq.wait != SendWait::None && mine.sq.wait != SendWait::Drained;
  attr->sq_draining = state == IBV_QPS_SQD && (waits || mine.sq.unanswered != 0);
  qp->state = state;
  if (init != nullptr) {
    *init = ibv_qp_init_attr{};
    init->qp_context = qp->qp_context;
    init->send_cq = qp->send_cq;
    init->recv_cq = qp->recv_cq;
    init->srq = qp->srq;
    init->cap = mine.cap;
    init->qp_type = qp->qp_type;
    init->sq_sig_all = mine.sq_sig_all;
  }
  return 0;
}

// The last byte of an RDMA WRITE is stored after all others, but the others in no order.
SOFTHCA_EXPORT int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) {
  return 0;
}
