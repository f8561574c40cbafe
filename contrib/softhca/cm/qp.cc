// SPDX-License-Identifier: BSD-3-Clause
// QPs of ids: made with what they need, moved to where the connection wants them.
#include <fcntl.h>
#include <rdma/rdma_verbs.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cm/address.h"
#include "cm/identifier.h"
#include "device/port.h"
#include "verbs/call.h"
#include "verbs/objects.h"

namespace softhca::cm {
namespace {

constexpr uint8_t kAckTimeout = 16;  // 4.096 us << 16 = 0.27 s
constexpr uint8_t kHopLimit = 64;

// The QP of an id, found by its number: the user may have destroyed it without telling the id. lookup_mutex() is held
// as long as it is used.
Qp* qp_of(const Id& id) {
  if (id.local_qpn == 0 || (id.qp == nullptr && !iwarp())) return nullptr;
  const unsigned slot = slot_of_qpn(id.local_qpn);
  const unsigned index = index_of_qpn(id.local_qpn);
  Qp* qp = slot == kHubSlot          ? tables().targets[index].load(std::memory_order_acquire)
           : slot == fabric().slot() ? tables().qps[index].load(std::memory_order_acquire)
                                     : nullptr;
  return qp != nullptr && qp->base()->qp_num == id.local_qpn ? qp : nullptr;
}

bool answered(const Id& id) {
  return id.state >= State::Responded && id.state != State::Failed;
}

int datagram_attr(const Id& id, ibv_qp_attr* attr, int* mask) {
  *mask = IBV_QP_STATE;
  switch (attr->qp_state) {
    case IBV_QPS_INIT:
      attr->pkey_index = 0;
      attr->port_num = id.port_num;
      attr->qkey = RDMA_UDP_QKEY;
      *mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
      return 0;
    case IBV_QPS_RTR:
      return 0;
    case IBV_QPS_RTS:
      attr->sq_psn = 0;
      *mask |= IBV_QP_SQ_PSN;
      return 0;
    default:
      return EINVAL;
  }
}

// What a connected QP needs; on iWARP too, where users do not see it.
int connected_attr(Id& id, ibv_qp_attr* attr, int* mask) {
  const bool initiator = id.qp_type == IBV_QPT_RC || id.qp_type == IBV_QPT_XRC_SEND;
  const bool responder = id.qp_type == IBV_QPT_RC || id.qp_type == IBV_QPT_XRC_RECV;
  *mask = IBV_QP_STATE;
  switch (attr->qp_state) {
    case IBV_QPS_INIT:
      attr->pkey_index = 0;
      attr->port_num = id.port_num;
      attr->qp_access_flags = 0;
      if (id.state >= State::Connecting) {
        attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (iwarp())
          attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ;
        else if (responder && id.responder_resources != 0)
          attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
      }
      *mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
      return 0;
    case IBV_QPS_RTR:
      if (!answered(id)) return EINVAL;
      fill_address_vector(id, &attr->ah_attr);
      attr->path_mtu = static_cast<ibv_mtu>(id.path_mtu);
      attr->dest_qp_num = id.remote_qpn;
      attr->rq_psn = id.remote_psn;
      *mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
      if (responder) {
        attr->max_dest_rd_atomic = id.responder_resources;
        attr->min_rnr_timer = 0;
        *mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      }
      return 0;
    case IBV_QPS_RTS:
      if (!answered(id)) return EINVAL;
      attr->sq_psn = id.local_psn;
      *mask |= IBV_QP_SQ_PSN;
      if (initiator) {
        attr->retry_cnt = id.retry_count;
        attr->rnr_retry = id.rnr_retry_count;
        attr->max_rd_atomic = id.initiator_depth;
        *mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
      }
      if (initiator || responder) {
        attr->timeout = id.ack_timeout != 0 ? id.ack_timeout : kAckTimeout;
        *mask |= IBV_QP_TIMEOUT;
      }
      return 0;
    default:
      return EINVAL;
  }
}

int move(Id& id, Qp& qp, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  int mask = 0;
  if (const int error = datagram(id) ? datagram_attr(id, &attr, &mask) : connected_attr(id, &attr, &mask)) return error;
  return modify_qp_internal(qp, attr, mask);
}

ibv_pd* default_pd(const Id& id) {
  Lock lock(manager().mutex);
  return default_pd(*device_of(id));
}

ibv_xrcd* default_xrcd(const Id& id) {
  Lock lock(manager().mutex);
  Manager::OpenDevice& device = *device_of(id);
  if (device.xrcd == nullptr) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    device.xrcd = ibv_open_xrcd(device.context, &attr);
  }
  return device.xrcd;
}

void destroy_cqs(Id& id) {
  if (id.recv_cq != nullptr) ibv_destroy_cq(id.recv_cq);
  if (id.send_cq != nullptr) ibv_destroy_cq(id.send_cq);
  if (id.recv_cq_channel != nullptr) ibv_destroy_comp_channel(id.recv_cq_channel);
  if (id.send_cq_channel != nullptr) ibv_destroy_comp_channel(id.send_cq_channel);
  id.recv_cq = id.send_cq = nullptr;
  id.recv_cq_channel = id.send_cq_channel = nullptr;
}

int make_cq(Id& id, uint32_t entries, ibv_comp_channel** channel, ibv_cq** cq) {
  *channel = ibv_create_comp_channel(id.verbs);
  if (*channel == nullptr) return errno;
  *cq = ibv_create_cq(id.verbs, static_cast<int>(std::max(entries, 1U)), &static_cast<rdma_cm_id&>(id), *channel, 0);
  return *cq != nullptr ? 0 : errno;
}

int make_srq(Id& id, ibv_srq_init_attr_ex* attr) {
  if (id.verbs == nullptr || attr == nullptr || id.srq != nullptr) return EINVAL;
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr) {
    attr->pd = id.pd != nullptr ? id.pd : default_pd(id);
    if (attr->pd == nullptr) return errno;
    attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  } else if (attr->pd->context != id.verbs) {
    return EINVAL;
  }
  bool own_cq = false;
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && attr->srq_type == IBV_SRQT_XRC) {
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || attr->xrcd == nullptr) {
      attr->xrcd = default_xrcd(id);
      if (attr->xrcd == nullptr) return errno;
      attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
    }
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attr->cq == nullptr) {
      own_cq = id.recv_cq == nullptr;
      const int error = own_cq ? make_cq(id, attr->attr.max_wr, &id.recv_cq_channel, &id.recv_cq) : 0;
      if (error != 0) {
        destroy_cqs(id);
        return error;
      }
      attr->cq = id.recv_cq;
      attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    }
  }
  id.srq = ibv_create_srq_ex(id.verbs, attr);
  if (id.srq == nullptr) {
    const int error = errno;
    if (own_cq) destroy_cqs(id);
    return error;
  }
  id.pd = attr->pd;
  return 0;
}

}  // namespace

int init_qp_attr(Id& id, ibv_qp_attr* attr, int* mask) {
  if (id.port_id == 0) return EINVAL;
  if (datagram(id)) return datagram_attr(id, attr, mask);
  if (!iwarp() || attr->qp_state == IBV_QPS_INIT) return connected_attr(id, attr, mask);
  *mask = 0;  // the connection manager moves it on
  return 0;
}

void fill_address_vector(Id& id, ibv_ah_attr* ah) {
  Fabric& f = fabric();
  *ah = {};
  ah->port_num = id.port_num;
  if (f.config().personality == Personality::Ib) {
    ah->dlid = path_lid(f, id.peer_port_id);
    ah->src_path_bits = static_cast<uint8_t>(path_lid(f, id.port_id) - lid_of(f, id.port_id));
    ah->sl = static_cast<uint8_t>(f.config().sm_sl);
    return;
  }
  ah->is_global = 1;
  ah->grh.sgid_index = static_cast<uint8_t>(gid_index(f.config()));
  ah->grh.hop_limit = kHopLimit;
  ah->grh.traffic_class = id.tos;
  gid_at(f, id.peer_port_id, ah->grh.sgid_index, &ah->grh.dgid);
}

int connect_qp(Id& id) {
  std::lock_guard guard(lookup_mutex());
  Qp* qp = qp_of(id);
  // iWARP connects the QP itself: there has to be one.
  if (qp == nullptr) return iwarp() ? EINVAL : 0;
  // The active side sends first: the passive one waits for it.
  qp->shared->must_wait.store(iwarp() && id.state == State::Requested, std::memory_order_release);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
    if (const int error = move(id, *qp, state)) return error;
  return 0;
}

void fail_qp(Id& id) {
  std::lock_guard guard(lookup_mutex());
  Qp* qp = qp_of(id);
  if (qp == nullptr) return;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  (void)modify_qp_internal(*qp, attr, IBV_QP_STATE);
}

int create_qp_ex(Id& id, ibv_qp_init_attr_ex* attr) {
  if (id.verbs == nullptr || attr == nullptr || id.qp != nullptr) return EINVAL;
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd == nullptr) {
    attr->pd = id.pd != nullptr ? id.pd : default_pd(id);
    if (attr->pd == nullptr) return errno;
    attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
  } else if (attr->pd->context != id.verbs) {
    return EINVAL;
  }
  int error = 0;
  if (attr->qp_type == IBV_QPT_XRC_RECV) {
    if ((attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attr->xrcd == nullptr) {
      attr->xrcd = default_xrcd(id);
      if (attr->xrcd == nullptr) return errno;
      attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    }
  } else {
    if (attr->send_cq == nullptr && id.send_cq == nullptr)
      error = make_cq(id, attr->cap.max_send_wr, &id.send_cq_channel, &id.send_cq);
    if (error == 0 && attr->recv_cq == nullptr && id.recv_cq == nullptr && attr->qp_type != IBV_QPT_XRC_SEND)
      error = make_cq(id, attr->cap.max_recv_wr, &id.recv_cq_channel, &id.recv_cq);
    if (attr->send_cq == nullptr) attr->send_cq = id.send_cq;
    if (attr->recv_cq == nullptr) attr->recv_cq = id.recv_cq;
    if (attr->srq == nullptr) attr->srq = id.srq;
  }
  ibv_qp* qp = error == 0 ? ibv_create_qp_ex(id.verbs, attr) : nullptr;
  if (qp == nullptr) {
    if (error == 0) error = errno;
    if (id.srq == nullptr) destroy_cqs(id);
    return error;
  }
  {
    Lock lock(manager().mutex);
    id.qp = qp;
    id.pd = attr->pd;
    id.local_qpn = qp->qp_num;
    Qp& made = *Qp::of(qp);
    error = move(id, made, IBV_QPS_INIT);
    if (datagram(id)) {
      if (error == 0) error = move(id, made, IBV_QPS_RTR);
      if (error == 0) error = move(id, made, IBV_QPS_RTS);
    }
  }
  if (error != 0) destroy_qp(id);
  return error;
}

int create_qp(Id& id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  if (attr == nullptr) return EINVAL;
  ibv_qp_init_attr_ex ex = extended(*attr, pd);
  const int error = create_qp_ex(id, &ex);
  if (error != 0) return error;
  attr->send_cq = ex.send_cq;
  attr->recv_cq = ex.recv_cq;
  attr->srq = ex.srq;
  attr->cap = ex.cap;
  return 0;
}

void destroy_qp(Id& id) {
  ibv_qp* qp = nullptr;
  {
    Lock lock(manager().mutex);
    qp = std::exchange(id.qp, nullptr);
    id.local_qpn = 0;
  }
  if (qp != nullptr) ibv_destroy_qp(qp);
  if (id.srq == nullptr || id.qp_type != IBV_QPT_XRC_RECV) destroy_cqs(id);
}

}  // namespace softhca::cm

using namespace softhca;
using namespace softhca::cm;

SOFTHCA_EXPORT int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* qp_init_attr) {
  return api("rdma_create_qp", id,
             [&]() -> int { return id == nullptr ? EINVAL : create_qp(*Id::of(id), pd, qp_init_attr); });
}

SOFTHCA_EXPORT int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* qp_init_attr) {
  return api("rdma_create_qp", id,
             [&]() -> int { return id == nullptr ? EINVAL : create_qp_ex(*Id::of(id), qp_init_attr); });
}

SOFTHCA_EXPORT void rdma_destroy_qp(rdma_cm_id* id) {
  if (id != nullptr && is_own(id)) destroy_qp(*Id::of(id));
}

SOFTHCA_EXPORT int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  return api("rdma_create_srq", id, [&]() -> int { return id == nullptr ? EINVAL : make_srq(*Id::of(id), attr); });
}

SOFTHCA_EXPORT int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
  return api("rdma_create_srq", id, [&]() -> int {
    if (id == nullptr || attr == nullptr) return EINVAL;
    ibv_srq_init_attr_ex ex{};
    ex.srq_context = attr->srq_context;
    ex.attr = attr->attr;
    // An XRC id has an XRC SRQ.
    const bool xrc = id->qp_type == IBV_QPT_XRC_RECV || id->qp_type == IBV_QPT_XRC_SEND;
    ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | (pd != nullptr ? IBV_SRQ_INIT_ATTR_PD : 0);
    ex.srq_type = xrc ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
    ex.pd = pd;
    const int error = make_srq(*Id::of(id), &ex);
    if (error == 0) attr->attr = ex.attr;
    return error;
  });
}

SOFTHCA_EXPORT void rdma_destroy_srq(rdma_cm_id* id) {
  if (id == nullptr || id->srq == nullptr || !is_own(id)) return;
  ibv_destroy_srq(std::exchange(id->srq, nullptr));
  if (id->qp == nullptr) destroy_cqs(*Id::of(id));
}

SOFTHCA_EXPORT int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* qp_attr, int* qp_attr_mask) {
  return api("rdma_init_qp_attr", id, [&]() -> int {
    if (id == nullptr || qp_attr == nullptr || qp_attr_mask == nullptr) return EINVAL;
    Lock lock(manager().mutex);
    return init_qp_attr(*Id::of(id), qp_attr, qp_attr_mask);
  });
}
