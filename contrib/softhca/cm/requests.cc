// SPDX-License-Identifier: BSD-3-Clause
// Requests that arrive at a listener: each becomes a new id and an event. And SIDR, the lookup of a datagram service.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cm/address.h"
#include "cm/identifier.h"
#include "device/port.h"

namespace softhca::cm {
namespace {

Id* make_child(Id& listener, const Message& m, unsigned slot, uint32_t incarnation) {
  Id* child = make_id(listener.sync ? nullptr : listener.on, listener.context, listener.ps,
                      static_cast<ibv_qp_type>(m.qp_type));
  if (child == nullptr) return nullptr;
  bind_to_port(*child, m.to_port_id);
  child->peer_port_id = m.from_port_id;
  gid_at(fabric(), m.from_port_id, gid_index(fabric().config()), &child->route.addr.addr.ibaddr.dgid);
  from_bytes(&child->route.addr.src_storage, m.family, m.to_address, m.port_space, m.to_port);
  from_bytes(&child->route.addr.dst_storage, m.family, m.from_address, m.port_space, m.from_port);
  child->service_space = m.port_space;
  child->tos = listener.tos;
  child->ack_timeout = listener.ack_timeout;
  child->state = State::Requested;
  child->remote_qpn = m.qpn;
  child->remote_psn = m.psn;
  child->local_psn = random_psn();  // now: rdma_init_qp_attr tells it before rdma_accept
  child->path_mtu = m.path_mtu;
  child->responder_resources = m.initiator_depth;
  child->initiator_depth = m.responder_resources;
  child->retry_count = m.retry_count;
  child->rnr_retry_count = m.rnr_retry_count;
  child->qkey = RDMA_UDP_QKEY;
  set_peer(*child, slot, incarnation, m.from_id);
  return child;
}

// What the user sees of private data: all that InfiniBand's message has room for, or what was sent.
uint8_t visible_length(const Message& m, unsigned space) {
  if (iwarp()) return m.private_data_len;
  return static_cast<uint8_t>(m.family == AF_IB ? space : space - kIpHeaderBytes);
}

std::unique_ptr<Event> make_request_event(Id& listener, Id& child, const Message& m) {
  auto event = make_event(child, RDMA_CM_EVENT_CONNECT_REQUEST);
  event->owner = &listener;
  event->listen_id = &listener;
  std::memcpy(event->data, m.private_data, m.private_data_len);
  if (m.kind == Kind::SidrReq) {
    event->param.ud.private_data_len = visible_length(m, kSidrReqPrivate);
    event->param.ud.private_data = event->data;
    return event;
  }
  rdma_conn_param& param = event->param.conn;
  param.private_data_len = visible_length(m, kReqPrivate);
  param.private_data = param.private_data_len != 0 ? event->data : nullptr;
  param.responder_resources = m.initiator_depth;
  param.initiator_depth = m.responder_resources;
  param.flow_control = m.flow_control;
  param.retry_count = m.retry_count;
  param.rnr_retry_count = m.rnr_retry_count;
  param.srq = m.srq;
  param.qp_num = m.qpn;
  return event;
}

bool can_serve(const Id& listener, const Message& m) {
  if (listener.state != State::Listening || m.family == 0) return false;
  if (node_of_port_id(m.to_port_id) != fabric().node()) return false;
  switch (m.qp_type) {
    case IBV_QPT_UD:
      return m.kind == Kind::SidrReq;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_RC:
    case IBV_QPT_UC:
      return m.kind == Kind::Req && !datagram(listener) && m.path_mtu != 0;
    default:
      return false;
  }
}

}  // namespace

void handle_request(Fabric& f, const Message& m, unsigned slot, uint32_t incarnation) {
  if (Id* known = find_peer(slot, incarnation, m.from_id)) {  // it was sent again
    if (known->state == State::Requested) send_to_peer(*known, message_to_peer(*known, Kind::Mra));
    return;
  }
  const bool sidr = m.kind == Kind::SidrReq;
  Id* listener = find_id(m.to_id);
  if (listener == nullptr || !can_serve(*listener, m))
    return reject_request(f, m, slot, sidr ? kSidrUnsupported : kRejInvalidService);
  const faults::CmVerdict verdict =
      faults::active.load(std::memory_order_relaxed) ? faults::on_connect_request() : faults::CmVerdict::None;
  if (verdict == faults::CmVerdict::Silence) return;
  if (verdict == faults::CmVerdict::Reject || listener->requests >= listener->backlog)
    return reject_request(f, m, slot, sidr ? kSidrReject : kRejConsumer);
  Message request = m;
  // The two sides of an XRC connection have different types of QP.
  if (m.qp_type == IBV_QPT_XRC_SEND) request.qp_type = IBV_QPT_XRC_RECV;
  Id* child = make_child(*listener, request, slot, incarnation);
  if (child == nullptr) return;
  ++listener->requests;
  send_to_peer(*child, message_to_peer(*child, Kind::Mra));
  push(make_request_event(*listener, *child, m));
}

int accept_datagram(Id& id, const rdma_conn_param* param) {
  const uint8_t length = param != nullptr && param->private_data != nullptr ? param->private_data_len : 0;
  if (length > kSidrRepPrivate) return EINVAL;
  Message m = message_to_peer(id, Kind::SidrRep);
  m.qpn = id.qp != nullptr ? id.qp->qp_num : param != nullptr ? param->qp_num & 0xffffff : 0;
  m.qkey = id.qkey;
  if (length != 0) set_private_data(m, param->private_data, length);
  id.local_qpn = m.qpn;
  send_to_peer(id, m);
  id.state = State::Closed;  // a datagram service has no connection
  return 0;
}

void handle_sidr_reply(Id& id, const Message& m) {
  disarm(id);
  if (m.status != 0) return fail_connection(id, RDMA_CM_EVENT_UNREACHABLE, m.status);
  id.state = State::Closed;
  id.remote_qpn = m.qpn;
  auto event = make_event(id, RDMA_CM_EVENT_ESTABLISHED);
  rdma_ud_param& param = event->param.ud;
  std::memcpy(event->data, m.private_data, m.private_data_len);
  param.private_data = event->data;
  param.private_data_len = static_cast<uint8_t>(kSidrRepPrivate);
  fill_address_vector(id, &param.ah_attr);
  param.qp_num = m.qpn;
  param.qkey = m.qkey;
  push(std::move(event));
}

}  // namespace softhca::cm
