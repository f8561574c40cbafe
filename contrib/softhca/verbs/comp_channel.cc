// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/call.h"

using namespace softhca;

SOFTHCA_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  Context& owner = *Context::of(context);
  if (const int error = cannot_use(owner)) return fail(error);
  if (const int error = SOFTHCA_FAULTY("ibv_create_comp_channel")) return fail(error);
  auto channel = make<CompChannel>();
  if (channel == nullptr) return fail(ENOMEM);
  if (channel->events.fd() < 0) return fail(EMFILE);
  channel->context = context;
  channel->fd = channel->events.fd();
  owner.objects.fetch_add(1);
  return channel.release();
}

SOFTHCA_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  if (const int error = in_child(channel->context)) return error;
  if (__atomic_load_n(&channel->refcnt, __ATOMIC_ACQUIRE) != 0) return EBUSY;
  Context::of(channel->context)->objects.fetch_sub(1);
  delete static_cast<CompChannel*>(channel);
  return 0;
}

SOFTHCA_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  int error = in_child(channel->context);
  if (error == 0) error = static_cast<CompChannel*>(channel)->events.pop(*cq);
  if (error != 0) {
    errno = error;
    return -1;
  }
  *cq_context = (*cq)->cq_context;
  return 0;
}

SOFTHCA_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned int count) {
  if (count != 0) acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, count);
}
