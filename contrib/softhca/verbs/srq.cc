// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/of_member.h"
#include "transport/taking.h"
#include "transport/transport.h"
#include "verbs/call.h"
#include "verbs/completion_queue.h"
#include "verbs/index_pool.h"
#include "verbs/receive_ring.h"
#include "verbs/verbs_ops.h"

namespace softhca {
namespace {

struct Indices {
  IndexPool<kSrqsPerSlot> pool{1};
};
IndexPool<kSrqsPerSlot>& indices() {
  return of_member<Indices>().pool;
}

// The half that others see; false: no memory.
bool publish(Srq& srq, const ibv_srq_attr& attr) {
  Fabric& fabric = *Fabric::get();
  SrqShared& shared = fabric.self().srqs[srq.index];
  if (!fabric.commit(&shared, sizeof shared)) return false;
  if (!make_receive_ring(fabric, shared.ring, attr.max_wr, attr.max_sge)) return false;
  shared.pd = static_cast<Pd*>(srq.pd)->id;
  shared.xrcd = srq.xrcd != nullptr ? srq.xrcd->index + 1 : 0;
  shared.cq = srq.cq != nullptr ? srq.cq->index + 1 : 0;
  shared.limit.store(0, std::memory_order_relaxed);
  shared.error.store(0, std::memory_order_relaxed);
  shared.in_use.store(1, std::memory_order_release);
  srq.shared = &shared;
  return true;
}

ibv_srq* create(ibv_pd* pd, void* srq_context, ibv_srq_attr& attr, ibv_srq_type type, ibv_cq* cq, ibv_xrcd* xrcd) {
  Context& owner = *Context::of(pd->context);
  if (const int error = cannot_use(owner)) return fail(error);
  if (const int error = SOFTHCA_FAULTY("ibv_create_srq")) return fail(error);
  const ibv_device_attr limits = limits_of(owner);
  if (attr.max_wr == 0 || attr.max_wr > static_cast<uint32_t>(limits.max_srq_wr) ||
      attr.max_sge > static_cast<uint32_t>(limits.max_srq_sge))
    return fail(EINVAL);
  if (attr.max_sge == 0) attr.max_sge = 1;
  auto srq = make<Srq>();
  if (srq == nullptr) return fail(ENOMEM);
  srq->index = indices().allocate(static_cast<unsigned>(limits.max_srq));
  if (srq->index == 0) return fail(ENOMEM);
  srq->context = pd->context;
  srq->srq_context = srq_context;
  srq->pd = pd;
  srq->handle = srq->index;
  srq->type = type;
  srq->cq = cq != nullptr ? Cq::of(cq) : nullptr;
  srq->xrcd = static_cast<Xrcd*>(xrcd);
  if (!publish(*srq, attr)) {
    indices().release(srq->index);
    return fail(ENOMEM);
  }
  pthread_mutex_init(&static_cast<ibv_srq*>(srq.get())->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  static_cast<Pd*>(pd)->users.fetch_add(1);
  if (srq->cq != nullptr) {
    srq->cq->users.fetch_add(1);
    prepare_to_receive(*srq->cq);
  }
  if (srq->xrcd != nullptr) srq->xrcd->users.fetch_add(1);
  tables().srqs[srq->index].store(srq.get(), std::memory_order_release);
  reach(tables().srqs_end, srq->index);
  return srq.release();
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  const uint32_t mask = attr->comp_mask;
  if (mask >= IBV_SRQ_INIT_ATTR_RESERVED) return fail(EOPNOTSUPP);
  const ibv_srq_type type = (mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attr->srq_type : IBV_SRQT_BASIC;
  if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) return fail(EOPNOTSUPP);
  if ((mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr || attr->pd->context != context) return fail(EINVAL);
  if (type == IBV_SRQT_BASIC) return create(attr->pd, attr->srq_context, attr->attr, type, nullptr, nullptr);
  constexpr uint32_t kNeeded = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if ((mask & kNeeded) != kNeeded || attr->cq == nullptr || attr->xrcd == nullptr) return fail(EINVAL);
  return create(attr->pd, attr->srq_context, attr->attr, type, attr->cq, attr->xrcd);
}

int get_srq_num(ibv_srq* srq, uint32_t* srqn) {
  if (const int error = cannot_use(*Context::of(srq->context))) return error;
  const Srq& mine = *Srq::of(srq);
  if (mine.type != IBV_SRQT_XRC) return EOPNOTSUPP;
  *srqn = srqn_of(Fabric::get()->slot(), mine.index);
  return 0;
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  return create(pd, attr->srq_context, attr->attr, IBV_SRQT_BASIC, nullptr, nullptr);
}

SOFTHCA_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  if (const int error = cannot_use(*Context::of(srq->context))) return error;
  if (const int error = SOFTHCA_FAULTY("ibv_modify_srq")) return error;
  // Like most devices it cannot resize.
  if ((mask & ~IBV_SRQ_LIMIT) != 0) return EINVAL;
  if ((mask & IBV_SRQ_LIMIT) == 0) return 0;
  Srq& mine = *Srq::of(srq);
  SrqShared& shared = *mine.shared;
  if (attr->srq_limit > shared.ring.max_wr) return EINVAL;
  // The event of the limit that this replaces may be due still.
  if (shared.limit.exchange(attr->srq_limit) >= kLimitFired) raise(mine, IBV_EVENT_SRQ_LIMIT_REACHED);
  // There may be fewer already, and nobody who takes another.
  raise_limit(Fabric::get()->self(), shared);
  return 0;
}

SOFTHCA_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  if (const int error = cannot_use(*Context::of(srq->context))) return error;
  const SrqShared& shared = *Srq::of(srq)->shared;
  attr->max_wr = shared.ring.max_wr;
  attr->max_sge = shared.ring.max_sge;
  attr->srq_limit = shared.limit.load(std::memory_order_relaxed) & ~kLimitFired;  // until the event is raised
  return 0;
}

SOFTHCA_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  if (const int error = in_child(srq->context)) return error;
  Srq* mine = Srq::of(srq);
  if (mine->users.load() != 0) return EBUSY;
  Fabric& fabric = *Fabric::get();
  mine->shared->in_use.store(0, std::memory_order_seq_cst);
  // XRC: who knows its number can reach it through any target. No QP of this process has a basic one any more.
  if (mine->type == IBV_SRQT_XRC) quiesce();
  tables().srqs[mine->index].store(nullptr, std::memory_order_release);
  { std::lock_guard guard(lookup_mutex()); }
  free_receive_ring(fabric, mine->shared->ring);
  settle_async_events(*mine);
  indices().release(mine->index);
  static_cast<Pd*>(srq->pd)->users.fetch_sub(1);
  if (mine->cq != nullptr) mine->cq->users.fetch_sub(1);
  if (mine->xrcd != nullptr) mine->xrcd->users.fetch_sub(1);
  delete mine;
  return 0;
}
