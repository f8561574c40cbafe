// SPDX-License-Identifier: BSD-3-Clause
// Posting receive requests: to the RQ of a QP or to an SRQ.
#include <cerrno>
#include <mutex>

#include "transport/gather.h"
#include "transport/transport.h"

namespace softhca {
namespace {

// The owner's lock for posting is held. 0 or an errno.
int append(Fabric& fabric, RecvRing& ring, const ibv_recv_wr& wr) {
  if (ring.capacity == 0 || wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > ring.max_sge) return EINVAL;
  const uint32_t number = ring.posted.load(std::memory_order_relaxed);
  if (number - ring.taken_seen.load(std::memory_order_relaxed) >= ring.max_wr) {
    const uint32_t taken = ring.taken.load(std::memory_order_acquire);
    ring.taken_seen.store(taken, std::memory_order_relaxed);
    if (number - taken >= ring.max_wr) return ENOMEM;
  }
  const uint64_t offset = ring.offset + uint64_t{number & (ring.capacity - 1)} * ring.stride;
  auto& entry = *reinterpret_cast<RecvEntry*>(reinterpret_cast<uint8_t*>(&fabric.self()) + offset);
  entry.wr_id = wr.wr_id;
  entry.num_sge = static_cast<uint32_t>(wr.num_sge);
  for (int i = 0; i < wr.num_sge; ++i) entry.sge[i] = {wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
  ring.posted.store(number + 1, std::memory_order_release);
  return 0;
}

int append_all(Fabric& fabric, RecvRing& ring, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  for (; wr != nullptr; wr = wr->next)
    if (const int error = append(fabric, ring, *wr)) {
      *bad = wr;
      return error;
    }
  return 0;
}

}  // namespace

int post_recv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Qp& qp = *Qp::of(base);
  Fabric* fabric = Fabric::get();
  int error = fabric == nullptr ? EPERM : qp.owner->fatal.load(std::memory_order_relaxed) ? EIO : 0;
  // A queue that is not there (SRQ, XRC, or the other side's) takes nothing.
  if (error == 0 && (qp.target || qp.own_srq != nullptr || base->qp_type == IBV_QPT_XRC_SEND)) error = EINVAL;
  if (error != 0) {
    *bad = wr;
    return error;
  }
  std::lock_guard guard(qp.post_mutex);
  if (qp.shared->state.load(std::memory_order_acquire) == IBV_QPS_RESET) {
    *bad = wr;
    return EINVAL;
  }
  error = append_all(*fabric, qp.shared->rq, wr, bad);
  // Either who changes the state sees the requests and flushes them, or it is done here: neither load may pass the store
  // before it (TSan knows no fences).
  qp.shared->rq.posted.fetch_add(0, std::memory_order_seq_cst);
  if (qp.shared->state.load(std::memory_order_seq_cst) == IBV_QPS_ERR) [[unlikely]]
    flush_receives(qp);
  return error;
}

int post_srq_recv(ibv_srq* base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Srq& srq = *Srq::of(base);
  Fabric* fabric = Fabric::get();
  if (fabric == nullptr) {
    *bad = wr;
    return EPERM;
  }
  std::lock_guard guard(srq.post_mutex);
  return append_all(*fabric, srq.shared->ring, wr, bad);
}

}  // namespace softhca
