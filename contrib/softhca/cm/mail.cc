// SPDX-License-Identifier: BSD-3-Clause
// Messages between connection managers: sent into a mailbox, repeated, taken out, given to the id that they are for.
#include <algorithm>
#include <bitset>
#include <cerrno>
#include <cstring>
#include <deque>

#include "cm/address.h"
#include "cm/identifier.h"
#include "device/port.h"
#include "fabric/of_member.h"
#include "transport/engine.h"

namespace softhca::cm {
namespace {

constexpr uint64_t kMs = 1000 * 1000;
// A request that nobody answers is repeated for 8 seconds. Who says that it has arrived (Mra) may take a minute.
constexpr unsigned kTries = 16;
constexpr uint64_t kRepeatNs = 500 * kMs;
constexpr uint64_t kThinkingNs = 60'000 * kMs;
// A full mailbox is tried again soon: its owner only has to run for a moment.
constexpr uint64_t kFullNs = kMs;
constexpr uint64_t kGiveUpNs = 5000 * kMs;

bool put(Fabric& fabric, Slot& slot, const Message& m) {
  Mailbox& box = slot.mailbox;
  RobustGuard guard(box.lock, fabric.stamp());
  const uint32_t tail = box.tail.load(std::memory_order_relaxed);
  if (tail - box.head.load(std::memory_order_acquire) >= kMailSlots) return false;
  Mail& mail = box.mail[tail % kMailSlots];
  mail.length = sizeof m;
  mail.from_slot = static_cast<uint16_t>(fabric.slot());
  mail.from_incarnation = static_cast<uint16_t>(fabric.incarnation());
  std::memcpy(mail.bytes, &m, sizeof m);
  box.tail.store(tail + 1, std::memory_order_release);
  return true;
}

// Messages that did not fit, in the order in which they have to arrive. Guarded by Manager::mutex.
struct Waiting {
  unsigned slot;
  uint32_t incarnation;
  uint64_t until_ns;
  Message message;
};
std::deque<Waiting>& waiting() {
  return of_member<std::deque<Waiting>>();
}

// False: there is no room.
bool deliver(unsigned slot, uint32_t incarnation, const Message& m) {
  Fabric& f = fabric();
  Slot* to = f.peer(slot);
  if (to == nullptr || !f.believed_alive(slot, incarnation)) return true;
  if (!put(f, *to, m)) return false;
  engine::ring(*to, kLookMail);
  return true;
}

void deliver_waiting() {
  std::bitset<kSlots> full;
  const uint64_t now = Fabric::now_ns();
  std::erase_if(waiting(), [&](const Waiting& w) {
    if (now > w.until_ns || (!full[w.slot] && deliver(w.slot, w.incarnation, w.message))) return true;
    full[w.slot] = true;
    return false;
  });
  if (waiting().empty()) return;
  engine::call_at(now + kFullNs, [] {
    std::lock_guard guard(manager().mutex);
    deliver_waiting();
  });
}

void repeat(Id& id) {
  if (id.tries == 0) return timed_out(id);
  --id.tries;
  if (id.sent.kind == Kind::Req || id.sent.kind == Kind::SidrReq) return send_request(id);
  send_to_peer(id, id.sent);
  expect_answer(id);
}

bool is_from_peer(const Id& id, const Message& m, unsigned slot, uint32_t incarnation) {
  return id.peer_slot == slot && id.peer_incarnation == incarnation && (id.peer_id == m.from_id || id.peer_id == 0);
}

}  // namespace

void expect_answer(Id& id) {
  arm(id, kRepeatNs, repeat);
}

Message message_to_peer(Id& id, Kind kind) {
  Message m{};
  m.magic = kMessageMagic;
  m.kind = kind;
  m.qp_type = static_cast<uint8_t>(id.qp_type);
  m.family = static_cast<uint8_t>(id.src()->sa_family);
  m.to_incarnation = id.peer_incarnation;
  m.to_id = id.peer_id;
  m.from_id = id.number;
  m.from_port_id = id.port_id;
  m.to_port_id = id.peer_port_id;
  to_bytes(id.src(), m.from_address);
  to_bytes(id.dst(), m.to_address);
  m.from_port = port_number(id.src());
  m.to_port = port_number(id.dst());
  m.port_space = id.service_space;
  return m;
}

void set_private_data(Message& m, const void* data, size_t length) {
  m.private_data_len = static_cast<uint8_t>(length);
  if (length != 0) std::memcpy(m.private_data, data, length);
}

void send_to(unsigned slot, uint32_t incarnation, const Message& m) {
  // A message into or out of a port that is down is lost.
  if (!port_up(fabric(), m.from_port_id) || !port_up(fabric(), m.to_port_id)) return;
  const bool first = waiting().empty();
  const bool behind = std::any_of(waiting().begin(), waiting().end(), [&](const Waiting& w) { return w.slot == slot; });
  if (!behind && deliver(slot, incarnation, m)) return;
  waiting().push_back({slot, incarnation, Fabric::now_ns() + kGiveUpNs, m});
  if (first) deliver_waiting();
}

void send_and_repeat(Id& id, const Message& m) {
  id.sent = m;
  id.tries = kTries;
  repeat(id);
}

void reject_request(Fabric& f, const Message& request, unsigned slot, uint16_t reason) {
  Message m{};
  m.magic = kMessageMagic;
  m.kind = request.kind == Kind::SidrReq ? Kind::SidrRep : Kind::Rej;
  m.to_incarnation = f.peer(slot)->header.incarnation.load(std::memory_order_relaxed);
  m.to_id = request.from_id;
  m.from_id = request.to_id != 0 ? request.to_id : 1;
  m.from_port_id = request.to_port_id;
  m.to_port_id = request.from_port_id;
  m.status = reason;
  send_to(slot, m.to_incarnation, m);
}

void on_mail() {
  Fabric* f = Fabric::get();
  if (f == nullptr) return;
  Mailbox& box = f->self().mailbox;
  for (;;) {
    const uint32_t head = box.head.load(std::memory_order_relaxed);
    if (head == box.tail.load(std::memory_order_acquire)) return;
    const Mail& mail = box.mail[head % kMailSlots];
    const uint32_t length = mail.length;
    const unsigned slot = mail.from_slot;
    const uint16_t incarnation16 = mail.from_incarnation;
    Message m;
    std::memcpy(&m, mail.bytes, sizeof m);
    box.head.store(head + 1, std::memory_order_release);
    const Slot* from = slot != kHubSlot ? f->peer(slot) : nullptr;
    if (from == nullptr || !sane(m, length) || m.to_incarnation != f->incarnation()) continue;
    const uint32_t incarnation = from->header.incarnation.load(std::memory_order_relaxed);
    if ((incarnation & 0xffff) != incarnation16) continue;
    try {
      std::lock_guard guard(manager().mutex);
      handle(*f, m, slot, incarnation);
    } catch (const std::bad_alloc&) {
      // As if the message were lost.
    }
  }
}

void handle(Fabric& f, const Message& m, unsigned slot, uint32_t incarnation) {
  if (m.kind == Kind::Req || m.kind == Kind::SidrReq) return handle_request(f, m, slot, incarnation);
  Id* id = m.to_id != 0 ? find_id(m.to_id) : find_peer(slot, incarnation, m.from_id);
  if (id == nullptr || !is_from_peer(*id, m, slot, incarnation)) {
    if (m.kind != Kind::Dreq) return;
    // Whom it is for is gone, and with it the connection.
    Message reply{};
    reply.magic = kMessageMagic;
    reply.kind = Kind::Drep;
    reply.to_incarnation = incarnation;
    reply.to_id = m.from_id;
    reply.from_id = m.to_id != 0 ? m.to_id : 1;
    reply.from_port_id = m.to_port_id;
    reply.to_port_id = m.from_port_id;
    return send_to(slot, incarnation, reply);
  }
  switch (m.kind) {
    case Kind::Mra:
      if (id->state == State::Connecting || id->state == State::Accepted) arm(*id, kThinkingNs, timed_out);
      break;
    case Kind::Rep:
      if (id->state == State::Connected) {  // it was sent again before our answer arrived
        send_to_peer(*id, message_to_peer(*id, Kind::Rtu));
      } else if (id->state == State::Connecting && !datagram(*id)) {
        disarm(*id);
        set_peer(*id, slot, incarnation, m.from_id);
        id->state = State::Responded;
        id->remote_qpn = m.qpn;
        id->remote_psn = m.psn;
        id->responder_resources = m.initiator_depth;
        id->initiator_depth = m.responder_resources;
        id->rnr_retry_count = m.rnr_retry_count;
        send_to_peer(*id, message_to_peer(*id, Kind::Mra));
        auto event = make_event(*id, RDMA_CM_EVENT_CONNECT_RESPONSE);
        event->response = true;
        rdma_conn_param& param = event->param.conn;
        std::memcpy(event->data, m.private_data, m.private_data_len);
        param.private_data_len = iwarp() ? m.private_data_len : static_cast<uint8_t>(kRepPrivate);
        param.private_data = param.private_data_len != 0 ? event->data : nullptr;
        param.responder_resources = m.initiator_depth;
        param.initiator_depth = m.responder_resources;
        param.flow_control = m.flow_control;
        param.rnr_retry_count = m.rnr_retry_count;
        param.srq = m.srq;
        param.qp_num = m.qpn;
        push(std::move(event));
      }
      break;
    case Kind::Rtu:
      if (id->state == State::Accepted) {
        disarm(*id);
        id->state = State::Connected;
        push(*id, RDMA_CM_EVENT_ESTABLISHED);
      }
      break;
    case Kind::Rej:
      if (id->state == State::Connecting || id->state == State::Responded || id->state == State::Requested ||
          id->state == State::Accepted)
        fail_connection(*id, RDMA_CM_EVENT_REJECTED, iwarp() ? -ECONNREFUSED : m.status, &m);
      break;
    case Kind::Dreq:
      if (id->state == State::Connected || id->state == State::Accepted || id->state == State::Responded) {
        disarm(*id);
        if (iwarp()) {  // the connection of TCP below is closed, whatever the program does
          fail_qp(*id);
          send_to_peer(*id, message_to_peer(*id, Kind::Drep));
          end_connection(*id, 0);
        } else {
          id->state = State::Disconnected;
          push(*id, RDMA_CM_EVENT_DISCONNECTED);
        }
      } else if (id->state != State::Disconnected) {
        send_to_peer(*id, message_to_peer(*id, Kind::Drep));
        if (id->state == State::Disconnecting) end_connection(*id, 0);  // both at once
      }
      break;
    case Kind::Drep:
      if (id->state == State::Disconnecting) end_connection(*id, 0);
      break;
    case Kind::SidrRep:
      if (id->state == State::Connecting && datagram(*id)) {
        handle_sidr_reply(*id, m);
      } else if (id->state == State::Requested && datagram(*id)) {  // the asker has gone
        id->state = State::Failed;
      }
      break;
    default:
      break;
  }
}

void on_death(unsigned slot, uint32_t incarnation) {
  std::lock_guard guard(manager().mutex);
  for (const auto& [number, id] : manager().ids) {
    if (id->peer_slot != slot || id->peer_incarnation != incarnation) continue;
    switch (id->state) {
      case State::Connected:
      case State::Disconnecting:
        if (iwarp()) fail_qp(*id);
        end_connection(*id, 0);
        break;
      case State::Connecting:
      case State::Responded:
      case State::Requested:
      case State::Accepted:
        if (datagram(*id)) {
          if (id->state == State::Connecting) fail_connection(*id, RDMA_CM_EVENT_UNREACHABLE, kSidrReject);
        } else {
          fail_connection(*id, RDMA_CM_EVENT_REJECTED, iwarp() ? -ECONNRESET : kRejConsumer);
        }
        break;
      default:
        break;
    }
  }
}

}  // namespace softhca::cm
