// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous events. Each counts on its object from before it is queued until it is acknowledged or withdrawn: so an
// object outlives every event that a user holds.
#include "verbs/call.h"

namespace softhca {
namespace {

template <typename Object>
void push(Context& context, Object& object, const ibv_async_event& event) {
  object.unacked_async.fetch_add(1, std::memory_order_relaxed);
  context.async.push(event);
}

bool is_about_cq(ibv_event_type type) {
  return type == IBV_EVENT_CQ_ERR;
}
bool is_about_srq(ibv_event_type type) {
  return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}
bool is_about_qp(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return true;
    default:
      return false;
  }
}

template <typename Object, typename F>
void withdraw(Context& context, Object& object, F&& is_about_it) {
  const size_t withdrawn = context.async.remove_if(is_about_it);
  object.unacked_async.fetch_sub(static_cast<uint32_t>(withdrawn), std::memory_order_relaxed);
}

}  // namespace

void raise(Qp& qp, ibv_event_type type) {
  ibv_async_event event{};
  event.element.qp = qp.base();
  event.event_type = type;
  push(*qp.owner, qp, event);
}

void raise(Cq& cq, ibv_event_type type) {
  ibv_async_event event{};
  event.element.cq = cq.base();
  event.event_type = type;
  push(*Context::of(cq.context), cq, event);
}

void raise(Srq& srq, ibv_event_type type) {
  ibv_async_event event{};
  event.element.srq = &srq;
  event.event_type = type;
  push(*Context::of(srq.context), srq, event);
}

void raise_port(Context& context, ibv_event_type type, unsigned port) {
  ibv_async_event event{};
  event.element.port_num = static_cast<int>(port);
  event.event_type = type;
  context.async.push(event);
}

void settle_async_events(Qp& qp) {
  withdraw(*qp.owner, qp,
           [&](const ibv_async_event& e) { return is_about_qp(e.event_type) && e.element.qp == qp.base(); });
  wait_for_acks(qp.qp_base.mutex, qp.qp_base.cond, qp.qp_base.events_completed, qp.unacked_async);
}

void settle_async_events(Cq& cq) {
  withdraw(*Context::of(cq.context), cq,
           [&](const ibv_async_event& e) { return is_about_cq(e.event_type) && e.element.cq == cq.base(); });
  wait_for_acks(cq.base()->mutex, cq.cond, cq.async_events_completed, cq.unacked_async);
}

void settle_async_events(Srq& srq) {
  withdraw(*Context::of(srq.context), srq,
           [&](const ibv_async_event& e) { return is_about_srq(e.event_type) && e.element.srq == &srq; });
  wait_for_acks(srq.mutex, srq.cond, srq.events_completed, srq.unacked_async);
}

}  // namespace softhca

using namespace softhca;

SOFTHCA_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  // A child must not take what the parent waits for: they share the descriptor.
  int error = in_child(context);
  if (error == 0) error = Context::of(context)->async.pop(*event);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

SOFTHCA_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  if (is_about_qp(event->event_type)) {
    ibv_qp* qp = event->element.qp;
    acknowledge(qp->mutex, qp->cond, qp->events_completed, 1);
  } else if (is_about_cq(event->event_type)) {
    ibv_cq* cq = event->element.cq;
    acknowledge(cq->mutex, cq->cond, cq->async_events_completed, 1);
  } else if (is_about_srq(event->event_type)) {
    ibv_srq* srq = event->element.srq;
    acknowledge(srq->mutex, srq->cond, srq->events_completed, 1);
  }
}
