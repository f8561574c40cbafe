// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "device/attributes.h"
#include "fabric/of_member.h"
#include "link/link.h"
#include "transport/engine.h"
#include "transport/message.h"
#include "transport/polling_stopped.h"
#include "transport/transport.h"
#include "verbs/call.h"
#include "verbs/completion_queue.h"
#include "verbs/index_pool.h"
#include "verbs/multicast.h"
#include "verbs/parent_domain.h"
#include "verbs/qp_ex.h"
#include "verbs/receive_ring.h"
#include "verbs/verbs_ops.h"
#include "verbs/xrcd.h"

namespace softhca {
namespace {

// QP 0 and 1 are special on a real port, and the last of the last slot would have the number of multicast.
static_assert(qpn_of(kSlots - 1, kQpsPerSlot - 1) == kMulticastQpn);
struct Indices {
  IndexPool<kQpsPerSlot> pool{2, Fabric::get()->slot() == kSlots - 1 ? kQpsPerSlot - 1 : kQpsPerSlot};
};
IndexPool<kQpsPerSlot>& indices() {
  return of_member<Indices>().pool;
}

constexpr uint32_t kMasks =
    IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

bool sends(ibv_qp_type type) {
  return type != IBV_QPT_XRC_RECV;
}
bool receives(ibv_qp_type type) {
  return type != IBV_QPT_XRC_SEND && type != IBV_QPT_XRC_RECV;
}

int check_type(const Context& context, ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return 0;
    case IBV_QPT_UC:
    case IBV_QPT_UD:
      return is_iwarp() ? EOPNOTSUPP : 0;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return has_xrc(Fabric::get()->config(), context.device->index) ? 0 : EOPNOTSUPP;
    case IBV_QPT_RAW_PACKET:
      return Fabric::get()->config().personality == Personality::Roce ? 0 : EOPNOTSUPP;
    case IBV_QPT_DRIVER:
      return EOPNOTSUPP;
    default:
      return EINVAL;
  }
}

int check_capabilities(const ibv_qp_init_attr_ex& attr, const ibv_device_attr& limits) {
  const auto max_wr = static_cast<uint32_t>(limits.max_qp_wr);
  const auto max_sge = static_cast<uint32_t>(limits.max_sge);
  if (sends(attr.qp_type) && (attr.cap.max_send_wr > max_wr || attr.cap.max_send_sge > max_sge ||
                              attr.cap.max_inline_data > Fabric::get()->config().max_inline))
    return EINVAL;
  if (receives(attr.qp_type) && attr.srq == nullptr &&
      (attr.cap.max_recv_wr > max_wr || attr.cap.max_recv_sge > max_sge))
    return EINVAL;
  return 0;
}

int check(Context& context, const ibv_qp_init_attr_ex& attr) {
  if ((attr.comp_mask & ~kMasks) != 0) return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr.create_flags != 0) return EOPNOTSUPP;
  if (const int error = check_type(context, attr.qp_type)) return error;
  if (attr.qp_type == IBV_QPT_XRC_RECV) {
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attr.xrcd == nullptr) return EINVAL;
    return attr.xrcd->context == &context.vctx.context ? 0 : EINVAL;
  }
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr || attr.pd->context != &context.vctx.context)
    return EINVAL;
  if (attr.send_cq == nullptr || (receives(attr.qp_type) && attr.recv_cq == nullptr)) return EINVAL;
  if (attr.srq != nullptr && (!receives(attr.qp_type) || Srq::of(attr.srq)->type != IBV_SRQT_BASIC)) return EINVAL;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 && !supports_send_ops(attr.qp_type, attr.send_ops_flags))
    return EOPNOTSUPP;
  return check_capabilities(attr, limits_of(context));
}

// What the device really gives; no less than was asked for.
ibv_qp_cap given(const ibv_qp_init_attr_ex& attr) {
  ibv_qp_cap cap = attr.cap;
  if (!sends(attr.qp_type)) cap.max_send_wr = cap.max_send_sge = cap.max_inline_data = 0;
  if (!receives(attr.qp_type) || attr.srq != nullptr) cap.max_recv_wr = cap.max_recv_sge = 0;
  if (cap.max_send_wr != 0) cap.max_send_sge = std::max(cap.max_send_sge, 1U);
  // Where the scatter list of a request would be, inline data can be.
  if (cap.max_send_wr != 0) {
    const uint32_t room = cap.max_send_sge * static_cast<uint32_t>(sizeof(Sge));
    cap.max_inline_data = std::max(cap.max_inline_data, std::min(room, Fabric::get()->config().max_inline));
  }
  if (cap.max_recv_wr != 0) cap.max_recv_sge = std::max(cap.max_recv_sge, 1U);
  return cap;
}

// Counts the QP on everything that it uses, or takes that back.
void hold(Qp& qp, uint32_t count) {
  const ibv_qp& base = qp.qp_base;
  if (base.pd != nullptr) static_cast<Pd*>(base.pd)->users.fetch_add(count);
  if (base.send_cq != nullptr) Cq::of(base.send_cq)->users.fetch_add(count);
  if (base.recv_cq != nullptr) Cq::of(base.recv_cq)->users.fetch_add(count);
  if (base.srq != nullptr) Srq::of(base.srq)->users.fetch_add(count);
  if (qp.xrcd != nullptr) qp.xrcd->users.fetch_add(count);
}

// The half that others see, in RESET; false: no memory.
bool publish(Qp& qp) {
  Fabric& fabric = *Fabric::get();
  QpShared& shared = fabric.self().qps[qp.index];
  if (!fabric.commit(&shared, sizeof shared) || !fabric.commit(&fabric.self().sent[qp.index], sizeof(OwnTraffic)))
    return false;
  RobustGuard guard(shared.lock, fabric.stamp());
  if (!make_receive_ring(fabric, shared.rq, qp.cap.max_recv_wr, qp.cap.max_recv_sge)) return false;
  shared.type = qp.qp_base.qp_type;
  shared.port_id = shared.dest_port_id = shared.dest_qpn = 0;
  shared.pd = static_cast<Pd*>(qp.qp_base.pd)->id;
  shared.access = shared.qkey = 0;
  shared.recv_cq = qp.qp_base.recv_cq != nullptr ? Cq::of(qp.qp_base.recv_cq)->index : 0;
  shared.srq = qp.own_srq != nullptr ? qp.own_srq->index + 1 : 0;
  shared.taken_valid.store(0, std::memory_order_relaxed);
  shared.arrived.clear();
  shared.events.store(0, std::memory_order_relaxed);
  shared.must_wait.store(0, std::memory_order_relaxed);
  shared.comm_established = 0;
  shared.state.begin(IBV_QPS_RESET, fabric.incarnation());
  qp.shared = &shared;
  shared.qp_num.store(qp.qp_base.qp_num, std::memory_order_release);
  return true;
}

void fill_base(Qp& qp, Context& context, void* qp_context, ibv_qp_type type, uint32_t qpn) {
  qp.owner = &context;
  qp.qp_base.context = &context.vctx.context;
  qp.qp_base.qp_context = qp_context;
  qp.qp_base.qp_type = type;
  qp.qp_base.qp_num = qpn;
  qp.qp_base.handle = qp.index;
  qp.qp_base.state = IBV_QPS_RESET;
  pthread_mutex_init(&qp.qp_base.mutex, nullptr);
  pthread_cond_init(&qp.qp_base.cond, nullptr);
}

// This process's half of a target that it has created or opened.
ibv_qp* make_target(Context& context, void* qp_context, Xrcd* xrcd, uint32_t index) {
  Fabric& fabric = *Fabric::get();
  auto qp = make<Qp>();
  if (qp == nullptr) {
    xrc_targets::close(fabric, index);
    return fail(ENOMEM);
  }
  qp->index = index;
  qp->target = true;
  qp->xrcd = xrcd;
  qp->shared = &fabric.peer(kHubSlot)->qps[index];
  fill_base(*qp, context, qp_context, IBV_QPT_XRC_RECV, qpn_of(kHubSlot, index));
  hold(*qp, 1);
  add_handle(*qp);
  return qp.release()->base();
}

ibv_qp* create_target(Context& context, const ibv_qp_init_attr_ex& attr) {
  Fabric& fabric = *Fabric::get();
  auto* xrcd = static_cast<Xrcd*>(attr.xrcd);
  const uint32_t index = xrc_targets::create(fabric, xrcd->index);
  if (index == 0) return fail(ENOMEM);
  return make_target(context, attr.qp_context, xrcd, index);
}

// In memory of the program's where the parent domain has it. False: no memory.
bool make_send_queue(Qp& qp) {
  const size_t bytes = size_send_queue(qp.sq, qp.cap);
  qp.given_ring = allocate_from(qp.qp_base.pd, bytes);
  if (qp.given_ring == nullptr) return errno == 0 && qp.sq.ring.allocate(bytes);
  qp.sq.ring.lie_in(qp.given_ring);
  return true;
}

ibv_qp* create(Context& context, ibv_qp_init_attr_ex& attr) {
  if (const int error = cannot_use(context)) return fail(error);
  if (const int error = SOFTHCA_FAULTY("ibv_create_qp")) return fail(error);
  if (const int error = check(context, attr)) return fail(error);
  if (attr.qp_type == IBV_QPT_XRC_RECV) return create_target(context, attr);
  auto qp = make<Qp>();
  if (qp == nullptr) return fail(ENOMEM);
  qp->index = indices().allocate(static_cast<unsigned>(limits_of(context).max_qp));
  if (qp->index == 0) return fail(ENOMEM);
  fill_base(*qp, context, attr.qp_context, attr.qp_type, qpn_of(Fabric::get()->slot(), qp->index));
  qp->cap = given(attr);
  qp->sq_sig_all = attr.sq_sig_all != 0;
  qp->own_srq = attr.srq != nullptr ? Srq::of(attr.srq) : nullptr;
  qp->qp_base.pd = attr.pd;
  qp->qp_base.send_cq = attr.send_cq;
  qp->qp_base.recv_cq = receives(attr.qp_type) ? attr.recv_cq : nullptr;
  qp->qp_base.srq = attr.srq;
  qp->sq.linked = link::is_set(Fabric::get()->config());
  if (!make_send_queue(*qp) || !publish(*qp)) {
    give_back(attr.pd, qp->given_ring);
    indices().release(qp->index);
    return fail(ENOMEM);
  }
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) set_send_ops(*qp, attr.send_ops_flags);
  if (qp->qp_base.recv_cq != nullptr) prepare_to_receive(*Cq::of(qp->qp_base.recv_cq));
  attr.cap = qp->cap;
  hold(*qp, 1);
  tables().qps[qp->index].store(qp.get(), std::memory_order_release);
  reach(tables().qps_end, qp->index);
  return qp.release()->base();
}

// Of a QP that goes: the process has had them. Others may be destroyed at the same time.
void keep_counts(Fabric& fabric, Traffic& arrived) {
  Traffic& past = fabric.self().header.past;
  past.messages.fetch_add(arrived.messages.load(std::memory_order_relaxed), std::memory_order_relaxed);
  past.bytes_in.fetch_add(arrived.bytes_in.load(std::memory_order_relaxed), std::memory_order_relaxed);
  past.bytes_out.fetch_add(arrived.bytes_out.load(std::memory_order_relaxed), std::memory_order_relaxed);
  arrived.clear();
}

// Nobody finds the QP any more when this returns, and no engine is at it.
void unpublish(Qp& qp) {
  Fabric& fabric = *Fabric::get();
  if (qp.target) {
    remove_handle(qp);
    xrc_targets::close(fabric, qp.index);
    return;
  }
  tables().qps[qp.index].store(nullptr, std::memory_order_release);
  { std::lock_guard guard(lookup_mutex()); }
  const PollingStopped stopped(&qp);
  std::lock_guard guard(qp.sq_mutex);
  if (is_iwarp() && !qp.sq.flushed) close_connection(fabric, qp);
  {
    RobustGuard shared_guard(qp.shared->lock, fabric.stamp());
    qp.shared->qp_num.store(0, std::memory_order_relaxed);
    qp.shared->state.store(IBV_QPS_RESET, std::memory_order_release);
    keep_counts(fabric, qp.shared->arrived);
  }
  drop_requests(qp);
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  return create(*Context::of(context), *attr);
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
  Context& owner = *Context::of(context);
  if (const int error = cannot_use(owner)) return fail(error);
  if (const int error = SOFTHCA_FAULTY("ibv_open_qp")) return fail(error);
  constexpr uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED) return fail(EOPNOTSUPP);
  if ((attr->comp_mask & kNeeded) != kNeeded || attr->xrcd == nullptr || attr->qp_type != IBV_QPT_XRC_RECV)
    return fail(EINVAL);
  auto* xrcd = static_cast<Xrcd*>(attr->xrcd);
  if (slot_of_qpn(attr->qp_num) != kHubSlot || attr->qp_num > 0xffffff) return fail(EINVAL);
  const uint32_t index = index_of_qpn(attr->qp_num);
  if (index >= kMaxTargets || !xrc_targets::open(*Fabric::get(), index, xrcd->index)) return fail(EINVAL);
  return make_target(owner, (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0 ? attr->qp_context : nullptr, xrcd,
                     index);
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp_init_attr_ex ex = extended(*attr, pd);
  ibv_qp* qp = create(*Context::of(pd->context), ex);
  if (qp != nullptr) attr->cap = ex.cap;
  return qp;
}

SOFTHCA_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  if (const int error = in_child(qp->context)) return error;
  Qp* mine = Qp::of(qp);
  if (mine->flows.load() != 0)
    return EBUSY;  // as the kernel has it: rules name the queue pair, whose number is another's soon
  Fabric& fabric = *Fabric::get();
  detach_from_all(*qp);
  unpublish(*mine);
  engine::cancel(*mine);
  settle_async_events(*mine);
  if (!mine->target) {
    free_receive_ring(fabric, mine->shared->rq);
    indices().release(mine->index);
  }
  give_back(mine->qp_base.pd, mine->given_ring);
  hold(*mine, UINT32_MAX);  // minus one
  delete mine;
  return 0;
}

SOFTHCA_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  Qp* mine = Qp::of(qp);
  return mine->wr_start != nullptr ? mine : nullptr;
}
