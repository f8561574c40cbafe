// SPDX-License-Identifier: BSD-3-Clause
// Ids with a QP in one call: rdma_create_ep, rdma_get_request.
#include <rdma/rdma_verbs.h>

#include <cerrno>

#include "cm/identifier.h"

namespace softhca::cm {
namespace {

constexpr int kTimeoutMs = 2000;

// A call of ours that gives -1 and sets errno.
int error_of(int result) {
  return result == 0 ? 0 : errno;
}

int set_up(Id& id, const rdma_addrinfo& info, ibv_pd* pd, ibv_qp_init_attr* attr) {
  if ((info.ai_flags & RAI_PASSIVE) != 0) {
    if (const int error = bind_address(id, info.ai_src_addr)) return error;
    if (attr != nullptr) {
      id.request_qp = std::make_unique<ibv_qp_init_attr>(*attr);
      id.request_qp->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
      id.pd = pd;
    }
    return 0;
  }
  if (info.ai_dst_addr == nullptr) return EINVAL;
  int error = error_of(rdma_resolve_addr(&id, info.ai_src_addr, info.ai_dst_addr, kTimeoutMs));
  if (error != 0) return error;
  error = error_of(info.ai_route_len != 0
                       ? rdma_set_option(&id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, info.ai_route, info.ai_route_len)
                       : rdma_resolve_route(&id, kTimeoutMs));
  if (error != 0) return error;
  if (attr != nullptr) {
    attr->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
    if (const int e = create_qp(id, pd, attr)) return e;
  }
  if (info.ai_connect_len != 0) {
    const auto* bytes = static_cast<const uint8_t*>(info.ai_connect);
    id.connect_data.assign(bytes, bytes + info.ai_connect_len);
  }
  return 0;
}

int get_request(Id& listener, rdma_cm_id** id) {
  if (!listener.sync || listener.state != State::Listening) return EINVAL;
  if (listener.event != nullptr) acknowledge(static_cast<Event*>(listener.event));
  Event* event = nullptr;
  if (const int error = next_event(*listener.own_channel, &event)) return error;
  int error = event->status < 0 ? -event->status : event->status;
  if (error == 0 && event->event != RDMA_CM_EVENT_CONNECT_REQUEST) error = EINVAL;
  if (error != 0) {
    listener.event = event;
    return error;
  }
  Id& child = *Id::of(event->id);
  if (listener.request_qp != nullptr) {
    ibv_qp_init_attr attr = *listener.request_qp;
    error = create_qp(child, listener.pd, &attr);
    if (error != 0) {
      acknowledge(event);
      destroy_id(child);  // which rejects it
      return error;
    }
  }
  child.event = event;
  *id = &child;
  return 0;
}

}  // namespace
}  // namespace softhca::cm

using namespace softhca;
using namespace softhca::cm;

SOFTHCA_EXPORT int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* qp_init_attr) {
  if (const int error = start()) {
    errno = error;
    return -1;
  }
  return api("rdma_create_ep", [&]() -> int {
    if (id == nullptr || res == nullptr) return EINVAL;
    if (res->ai_port_space == RDMA_PS_IPOIB) return EPROTONOSUPPORT;
    Lock lock(manager().mutex);
    Id* made = make_id(nullptr, nullptr, static_cast<rdma_port_space>(res->ai_port_space),
                       static_cast<ibv_qp_type>(res->ai_qp_type));
    lock.unlock();
    if (made == nullptr) return errno;
    if (const int error = set_up(*made, *res, pd, qp_init_attr)) {
      rdma_destroy_ep(made);
      return error;
    }
    *id = made;
    return 0;
  });
}

SOFTHCA_EXPORT void rdma_destroy_ep(rdma_cm_id* id) {
  if (id == nullptr || !is_own(id)) return;
  if (id->qp != nullptr) rdma_destroy_qp(id);
  if (id->srq != nullptr) rdma_destroy_srq(id);
  destroy_id(*Id::of(id));
}

SOFTHCA_EXPORT int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** id) {
  return api("rdma_get_request", listen,
             [&]() -> int { return listen == nullptr || id == nullptr ? EINVAL : get_request(*Id::of(listen), id); });
}
