// SPDX-License-Identifier: BSD-3-Clause
// Connections: rdma_listen, rdma_connect, rdma_accept, rdma_reject, rdma_establish, rdma_notify, rdma_disconnect.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cm/address.h"
#include "cm/identifier.h"
#include "cm/listeners.h"
#include "device/port.h"

namespace softhca::cm {
namespace {

constexpr uint64_t kTimewaitNs = 1000ULL * 1000 * 1000;
constexpr unsigned kLooks = 10;
constexpr uint64_t kLookNs = 5ULL * 1000 * 1000;
constexpr int kMaxBacklog = 1024;

// Bytes that the user can send with a request.
unsigned request_space(const Id& id) {
  if (iwarp()) return kMaxPrivate;
  const unsigned header = id.route.addr.src_addr.sa_family == AF_IB ? 0 : kIpHeaderBytes;
  return (datagram(id) ? kSidrReqPrivate : kReqPrivate) - header;
}

// The numbers that say how many reads each side can have; `*_RES` and `*_DEPTH`: as many as the device can.
int check_depths(const Id& id, const rdma_conn_param& param) {
  const Manager::OpenDevice& device = *device_of(id);
  if (param.responder_resources != RDMA_MAX_RESP_RES && param.responder_resources > device.max_rd_atom) return EINVAL;
  if (param.initiator_depth != RDMA_MAX_INIT_DEPTH && param.initiator_depth > device.max_init_rd_atom) return EINVAL;
  return 0;
}

void set_qp(Id& id, Message& m, const rdma_conn_param* param) {
  if (id.qp != nullptr) {
    m.qpn = id.qp->qp_num;
    m.srq = id.qp->srq != nullptr;
  } else if (param != nullptr) {
    m.qpn = param->qp_num & 0xffffff;
    m.srq = param->srq;
  }
  id.local_qpn = m.qpn;
  m.psn = id.local_psn;
  m.qkey = id.qkey;
  m.responder_resources = id.responder_resources;
  m.initiator_depth = id.initiator_depth;
}

uint8_t three_bits(uint8_t count) {
  return std::min<uint8_t>(count, 7);
}

int connect(Id& id, const rdma_conn_param* param) {
  if (id.state != State::RouteResolved) return EINVAL;
  const Manager::OpenDevice& device = *device_of(id);
  if (datagram(id) && iwarp()) return ENOSYS;
  if (id.ps == RDMA_PS_TCP) {
    if (param == nullptr && id.qp == nullptr) return EINVAL;
    if (param != nullptr)
      if (const int error = check_depths(id, *param)) return error;
  }
  const bool all_res = param == nullptr || param->responder_resources == RDMA_MAX_RESP_RES;
  const bool all_depth = param == nullptr || param->initiator_depth == RDMA_MAX_INIT_DEPTH;
  id.responder_resources = all_res ? device.max_rd_atom : param->responder_resources;
  id.initiator_depth = all_depth ? device.max_init_rd_atom : param->initiator_depth;
  id.retry_count = param != nullptr ? three_bits(param->retry_count) : 7;

  Message m = message_to_peer(id, datagram(id) ? Kind::SidrReq : Kind::Req);
  std::vector<uint8_t> data = id.connect_data;
  if (param != nullptr && param->private_data != nullptr) {
    const auto* bytes = static_cast<const uint8_t*>(param->private_data);
    data.insert(data.end(), bytes, bytes + param->private_data_len);
  }
  if (data.size() > request_space(id)) return EINVAL;
  set_private_data(m, data.data(), data.size());
  id.local_psn = random_psn();
  set_qp(id, m, param);
  m.path_mtu = id.path_mtu;
  m.retry_count = id.retry_count;
  m.rnr_retry_count = param != nullptr ? three_bits(param->rnr_retry_count) : 7;
  m.flow_control = param != nullptr && param->flow_control != 0;
  id.state = State::Connecting;
  id.looks = 0;
  send_and_repeat(id, m);
  return 0;
}

int accept(Id& id, const rdma_conn_param* param) {
  if (id.state != State::Requested) return EINVAL;
  if (datagram(id)) return accept_datagram(id, param);
  if (id.ps == RDMA_PS_TCP) {
    if (param == nullptr && id.qp == nullptr) return EINVAL;
    if (param != nullptr)
      if (const int error = check_depths(id, *param)) return error;
  }
  const Manager::OpenDevice& device = *device_of(id);
  if (param == nullptr || param->responder_resources == RDMA_MAX_RESP_RES)
    id.responder_resources = std::min(id.responder_resources, device.max_rd_atom);
  else
    id.responder_resources = param->responder_resources;
  if (param == nullptr || param->initiator_depth == RDMA_MAX_INIT_DEPTH)
    id.initiator_depth = std::min(id.initiator_depth, device.max_init_rd_atom);
  else
    id.initiator_depth = param->initiator_depth;
  Message m = message_to_peer(id, Kind::Rep);
  set_qp(id, m, param);
  m.rnr_retry_count = param != nullptr ? three_bits(param->rnr_retry_count) : 7;
  m.flow_control = param != nullptr && param->flow_control != 0;
  int error = 0;
  if (param != nullptr && param->private_data != nullptr) {
    if (param->private_data_len > (iwarp() ? kMaxPrivate : kRepPrivate))
      error = EINVAL;
    else
      set_private_data(m, param->private_data, param->private_data_len);
  }
  if (error == 0) error = connect_qp(id);
  if (error != 0) {  // an acceptance that fails is a rejection
    fail_qp(id);
    Message reject = message_to_peer(id, Kind::Rej);
    reject.status = kRejConsumer;
    send_to_peer(id, reject);
    id.state = State::Failed;
    return error;
  }
  id.state = State::Accepted;
  send_and_repeat(id, m);
  return 0;
}

int reject(Id& id, const void* data, uint8_t length) {
  if (id.state != State::Requested && id.state != State::Responded) return EINVAL;
  const unsigned space = iwarp() ? kMaxPrivate : datagram(id) ? kSidrRepPrivate : kRejPrivate;
  if (length > space || (length != 0 && data == nullptr)) return EINVAL;
  Message m = message_to_peer(id, datagram(id) ? Kind::SidrRep : Kind::Rej);
  m.status = datagram(id) ? kSidrReject : kRejConsumer;
  set_private_data(m, data, length);
  disarm(id);
  id.state = State::Failed;
  send_to_peer(id, m);
  return 0;
}

int disconnect(Id& id) {
  fail_qp(id);  // also when there is no connection: programs wait for its requests to be flushed
  if (id.state < State::Connecting) return EINVAL;
  if (id.state == State::Connected) {
    id.state = State::Disconnecting;
    send_and_repeat(id, message_to_peer(id, Kind::Dreq));
  } else if (id.state == State::Disconnected) {
    send_to_peer(id, message_to_peer(id, Kind::Drep));
    enter_timewait(id);
  }
  return 0;
}

int listen(Id& id, int backlog) {
  if (id.state == State::Idle) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    if (const int error = bind_address(id, reinterpret_cast<const sockaddr*>(&any))) return error;
  }
  Lock lock(manager().mutex);
  if (id.state != State::Bound) return EINVAL;
  if (const int error = start_listening(fabric(), id.listener)) return error;
  id.backlog = backlog > 0 && backlog < kMaxBacklog ? backlog : kMaxBacklog;
  id.state = State::Listening;
  return 0;
}

}  // namespace

void send_request(Id& id) {
  Message& m = id.sent;
  // Nobody beyond a port that is down can say that there is no listener.
  if (!port_up(fabric(), m.from_port_id) || !port_up(fabric(), m.to_port_id)) return expect_answer(id);
  const ListenerAddress listener =
      find_listener(fabric(), m.to_port_id, m.port_space, m.to_port, m.family, m.to_address);
  if (listener.slot == 0) {
    // Servers close one listener and open the next; on a network they have the time that a request takes to arrive.
    if (++id.looks < kLooks) return arm(id, kLookNs, send_request);
    if (datagram(id)) return fail_connection(id, RDMA_CM_EVENT_UNREACHABLE, kSidrUnsupported);
    return fail_connection(id, RDMA_CM_EVENT_REJECTED, iwarp() ? -ECONNREFUSED : kRejInvalidService);
  }
  set_peer(id, listener.slot, listener.incarnation, 0);
  m.to_incarnation = listener.incarnation;
  m.to_id = listener.id;
  send_to_peer(id, m);
  expect_answer(id);
}

void timed_out(Id& id) {
  switch (id.state) {
    case State::Connecting:
    case State::Accepted:
      say_goodbye(id);
      fail_connection(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
      break;
    case State::Disconnecting:
      end_connection(id, -ETIMEDOUT);
      break;
    default:
      break;
  }
}

void end_connection(Id& id, int status) {
  push(id, RDMA_CM_EVENT_DISCONNECTED, status);
  enter_timewait(id);
}

void enter_timewait(Id& id) {
  id.state = State::Closed;
  if (iwarp())
    disarm(id);
  else
    arm(id, kTimewaitNs, [](Id& i) { push(i, RDMA_CM_EVENT_TIMEWAIT_EXIT); });
}

void fail_connection(Id& id, rdma_cm_event_type type, int status, const Message* m) {
  disarm(id);
  id.state = State::Failed;
  auto event = make_event(id, type, status);
  if (m != nullptr) {
    rdma_conn_param& param = event->param.conn;
    std::memcpy(event->data, m->private_data, m->private_data_len);
    param.private_data_len = iwarp() ? m->private_data_len : static_cast<uint8_t>(kRejPrivate);
    param.private_data = param.private_data_len != 0 ? event->data : nullptr;
  }
  push(std::move(event));
}

}  // namespace softhca::cm

using namespace softhca;
using namespace softhca::cm;

SOFTHCA_EXPORT int rdma_listen(rdma_cm_id* id, int backlog) {
  return api("rdma_listen", id, [&]() -> int { return id == nullptr ? EINVAL : listen(*Id::of(id), backlog); });
}

SOFTHCA_EXPORT int rdma_connect(rdma_cm_id* id, rdma_conn_param* conn_param) {
  return api("rdma_connect", id, [&]() -> int {
    if (id == nullptr) return EINVAL;
    {
      Lock lock(manager().mutex);
      if (const int error = connect(*Id::of(id), conn_param)) return error;
    }
    return complete(*Id::of(id));
  });
}

SOFTHCA_EXPORT int rdma_accept(rdma_cm_id* id, rdma_conn_param* conn_param) {
  return api("rdma_accept", id, [&]() -> int {
    if (id == nullptr) return EINVAL;
    {
      Lock lock(manager().mutex);
      if (const int error = accept(*Id::of(id), conn_param)) return error;
    }
    return datagram(*Id::of(id)) ? 0 : complete(*Id::of(id));
  });
}

SOFTHCA_EXPORT int rdma_reject(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  return api("rdma_reject", id, [&]() -> int {
    if (id == nullptr) return EINVAL;
    Lock lock(manager().mutex);
    return reject(*Id::of(id), private_data, private_data_len);
  });
}

// The reason that it gives (ECE) differs; there is no ECE here.
SOFTHCA_EXPORT int rdma_reject_ece(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  return rdma_reject(id, private_data, private_data_len);
}

SOFTHCA_EXPORT int rdma_establish(rdma_cm_id* id) {
  return api("rdma_establish", id, [&]() -> int {
    if (id == nullptr || id->qp != nullptr) return EINVAL;
    Lock lock(manager().mutex);
    Id& self = *Id::of(id);
    if (self.state != State::Responded) return EINVAL;
    self.state = State::Connected;
    send_to_peer(self, message_to_peer(self, Kind::Rtu));
    return 0;
  });
}

SOFTHCA_EXPORT int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  return api("rdma_notify", id, [&]() -> int {
    if (id == nullptr) return EINVAL;
    Lock lock(manager().mutex);
    Id& self = *Id::of(id);
    if (self.state < State::Connecting) return EINVAL;
    if (iwarp()) return 0;
    if (event != IBV_EVENT_COMM_EST) return EINVAL;
    if (self.state == State::Connected) return EISCONN;
    if (self.state != State::Accepted) return EINVAL;
    disarm(self);
    self.state = State::Connected;
    push(self, RDMA_CM_EVENT_ESTABLISHED);
    return 0;
  });
}

SOFTHCA_EXPORT int rdma_disconnect(rdma_cm_id* id) {
  return api("rdma_disconnect", id, [&]() -> int {
    if (id == nullptr) return EINVAL;
    Id& self = *Id::of(id);
    bool event_comes = false;
    {
      Lock lock(manager().mutex);
      if (const int error = disconnect(self)) return error;
      event_comes = self.state == State::Disconnecting || self.unacked > self.delivered;
    }
    return event_comes ? complete(self) : 0;
  });
}
