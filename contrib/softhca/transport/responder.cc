// SPDX-License-Identifier: BSD-3-Clause
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "transport/engine.h"
#include "transport/keys.h"
#include "transport/message.h"
#include "transport/remote_memory.h"
#include "transport/transport.h"

namespace softhca {
namespace {

constexpr uint32_t kPsnMask = 0xffffff;

enum class Found { Owner, Nobody, BadSrq };

// Who owns the memory that the message is about, if that process is there. An SRQ that is not is the sender's mistake, as long
// as its process is: destroyed, or of another domain (InfiniBand Architecture Specification, annex A14: NAK Invalid Request).
Found find_owner(const Message& m, QpShared& dest, Owner& owner) {
  const SendQueue& sq = m.from.sq;
  owner = {sq.peer, sq.peer_slot, sq.peer_incarnation, dest.pd, nullptr, 0, dest.recv_cq};
  if (dest.type != IBV_QPT_XRC_RECV) {
    if (dest.srq != 0) owner.srq = &sq.peer->srqs[(dest.srq - 1) % kSrqsPerSlot];
    return owner.srq == nullptr || owner.srq->in_use.load(std::memory_order_acquire) != 0 ? Found::Owner
                                                                                          : Found::Nobody;
  }
  const uint32_t srqn = m.request.remote_srqn;
  owner.number = slot_of_qpn(srqn);
  owner.slot = owner.number != kHubSlot ? m.fabric.peer(owner.number) : nullptr;
  if (owner.slot != nullptr) {
    SrqShared& srq = owner.slot->srqs[index_of_qpn(srqn) % kSrqsPerSlot];
    owner.incarnation = owner.slot->header.incarnation.load(std::memory_order_acquire);
    if (srq.in_use.load(std::memory_order_acquire) == 0 || srq.xrcd != dest.xrcd + 1 || srq.cq == 0)
      return m.fabric.alive(owner.number, owner.incarnation) ? Found::BadSrq : Found::Nobody;
    owner.srq = &srq;
    owner.srqn = srqn;
    owner.pd = srq.pd;
    owner.recv_cq = srq.cq - 1;
  } else {  // RDMA without an SRQ: memory of who made the QP
    if (is_send(m.request.opcode) || has_imm(m.request.opcode))
      return owner.number == kHubSlot ? Found::BadSrq : Found::Nobody;
    owner.number = dest.creator & 0xffff;
    owner.incarnation = dest.creator >> 16;
    owner.slot = owner.number < kSlots ? m.fabric.peer(owner.number) : nullptr;
  }
  const bool is_there = owner.slot != nullptr && m.fabric.believed_alive(owner.number, owner.incarnation);
  if (is_there) engine::introduce(m.fabric, owner.number, *owner.slot);
  return is_there ? Found::Owner : Found::Nobody;
}

// The responder fails: its owner flushes it, and the requester gets `status`.
Reply fail_responder(const Message& m, QpShared& dest, uint32_t event_bits, ibv_wc_status status) {
  dest.state.store(IBV_QPS_ERR, std::memory_order_release);
  tell_owner(m.fabric, m.from.sq.peer_slot, *m.from.sq.peer, dest, kQpFlush | event_bits);
  return {Reply::Error, status};
}

// The message asks for what is not allowed. UC drops it.
Reply refuse(const Message& m, QpShared& dest, uint32_t event_bits, ibv_wc_status status) {
  return dest.type == IBV_QPT_UC ? Reply{Reply::Lost} : fail_responder(m, dest, event_bits, status);
}

Reply after(const Message& m, QpShared& dest, Delivery delivery) {
  switch (delivery) {
    case Delivery::Done:
      return {Reply::Ack};
    case Delivery::TooLong:
      return fail_responder(m, dest, 0, IBV_WC_REM_INV_REQ_ERR);
    case Delivery::ReceiverFault:
      return fail_responder(m, dest, 0, IBV_WC_REM_OP_ERR);
    case Delivery::Overrun:
      return fail_responder(m, dest, kQpFatal, IBV_WC_REM_OP_ERR);
    case Delivery::SenderFault:
      return {Reply::Error, IBV_WC_LOC_PROT_ERR};
    case Delivery::SenderNoRoom:
      return {Reply::Error, IBV_WC_LOC_QP_OP_ERR};
    case Delivery::NoRoom:
    case Delivery::Lost:
      break;
  }
  return {Reply::Lost};
}

// What the completion says of the message.
void describe(const Message& m, const QpShared& dest, ibv_wc_opcode opcode, CqEntry& entry) {
  const SendEntry& request = m.request;
  clear_header(entry);
  entry.opcode = static_cast<uint8_t>(opcode);
  entry.byte_len = request.length;
  entry.src_qp = m.from.base()->qp_num;
  entry.pkey_index = dest.pkey_index;
  entry.imm_or_rkey = request.imm_or_rkey;
  entry.solicited = (request.flags & IBV_SEND_SOLICITED) != 0;
  if (has_imm(request.opcode)) entry.wc_flags = IBV_WC_WITH_IMM;
  if (request.opcode == IBV_WR_SEND_WITH_INV) entry.wc_flags = IBV_WC_WITH_INV;
}

// There is no receive request. iWARP cannot ask the sender to try again: the connection ends.
Reply not_ready(const Message& m, QpShared& dest) {
  if (m.fabric.config().personality == Personality::Iwarp) return fail_responder(m, dest, kQpFatal, IBV_WC_REM_OP_ERR);
  return {Reply::NotReady, IBV_WC_SUCCESS, dest.min_rnr_timer};
}

Reply receive(const Message& m, QpShared& dest, const Owner& owner) {
  Arrival arrival;
  arrival.kill_at = m.kill_at;
  if (!take(m.fabric, owner, dest, arrival)) return not_ready(m, dest);
  if (m.kill_at == KillAt::Middle) kill_this_process();
  if (m.request.opcode == IBV_WR_SEND_WITH_INV &&
      invalidate_key(*owner.slot, owner.pd, dest.qp_num.load(std::memory_order_relaxed), m.request.imm_or_rkey) != 0) {
    untake(m.fabric, owner, dest);
    return refuse(m, dest, kQpAccessErr, IBV_WC_REM_ACCESS_ERR);
  }
  CqEntry completion;
  describe(m, dest, IBV_WC_RECV, completion);
  return after(m, dest, deliver(m.fabric, owner, dest, arrival, m.local, completion));
}

// What the QP has not been told to take, of whatever length, is an invalid request; what the key does not allow is a
// violation of access (InfiniBand Architecture Specification, 9.9.3: unsupported opcode; R_Key violation).
Reply not_supported(const Message& m, QpShared& dest) {
  return refuse(m, dest, kQpReqErr, IBV_WC_REM_INV_REQ_ERR);
}
bool allows(const Message& m, const QpShared& dest, const Owner& owner, uint32_t length, uint32_t access,
            uint64_t* addr) {
  return remote_key_allows(*owner.slot, owner.pd, dest.qp_num.load(std::memory_order_relaxed), m.request.rkey,
                           m.request.remote_addr, length, access, addr);
}

Reply write(const Message& m, QpShared& dest, const Owner& owner) {
  const SendEntry& request = m.request;
  if ((dest.access & IBV_ACCESS_REMOTE_WRITE) == 0) return not_supported(m, dest);
  uint64_t addr = 0;
  if (request.length != 0 && !allows(m, dest, owner, request.length, IBV_ACCESS_REMOTE_WRITE, &addr))
    return refuse(m, dest, kQpAccessErr, IBV_WC_REM_ACCESS_ERR);
  Arrival arrival;
  arrival.kill_at = m.kill_at;
  const bool immediate = request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (immediate && !take(m.fabric, owner, dest, arrival)) return not_ready(m, dest);
  if (m.kill_at == KillAt::Middle) kill_this_process();
  const iovec remote{reinterpret_cast<void*>(addr), request.length};
  const Copy copied = request.length == 0 ? Copy::Done
                                          : write_to(m.fabric, owner.number, owner.incarnation, m.local, {&remote, 1},
                                                     Order::LastByteLast);
  if (copied == Copy::Done && !immediate) return {Reply::Ack};
  if (copied == Copy::Done) {
    CqEntry completion;
    describe(m, dest, IBV_WC_RECV_RDMA_WITH_IMM, completion);
    return after(m, dest, complete_arrival(m.fabric, owner, dest, arrival, completion));
  }
  if (immediate) untake(m.fabric, owner, dest);
  if (copied == Copy::LocalFault) return {Reply::Error, IBV_WC_LOC_PROT_ERR};
  if (copied == Copy::NoRoom) return {Reply::Error, IBV_WC_LOC_QP_OP_ERR};
  return copied == Copy::Gone ? Reply{Reply::Lost} : refuse(m, dest, kQpAccessErr, IBV_WC_REM_ACCESS_ERR);
}

Reply read(const Message& m, QpShared& dest, const Owner& owner) {
  const SendEntry& request = m.request;
  if ((dest.access & IBV_ACCESS_REMOTE_READ) == 0 || dest.max_dest_rd_atomic == 0) return not_supported(m, dest);
  if (request.length == 0) return {Reply::Ack};
  uint64_t addr = 0;
  if (!allows(m, dest, owner, request.length, IBV_ACCESS_REMOTE_READ, &addr))
    return refuse(m, dest, kQpAccessErr, IBV_WC_REM_ACCESS_ERR);
  if (m.kill_at == KillAt::Middle) kill_this_process();
  const iovec remote{reinterpret_cast<void*>(addr), request.length};
  switch (read_from(m.fabric, owner.number, owner.incarnation, m.local, {&remote, 1})) {
    case Copy::Done:
      return {Reply::Ack};
    case Copy::LocalFault:
      return {Reply::Error, IBV_WC_LOC_PROT_ERR};
    case Copy::NoRoom:
      return {Reply::Error, IBV_WC_LOC_QP_OP_ERR};
    case Copy::RemoteFault:
      return refuse(m, dest, kQpAccessErr, IBV_WC_REM_ACCESS_ERR);
    case Copy::Gone:
      break;
  }
  return {Reply::Lost};
}

Reply atomic(const Message& m, QpShared& dest, const Owner& owner) {
  const SendEntry& request = m.request;
  if ((dest.access & IBV_ACCESS_REMOTE_ATOMIC) == 0 || dest.max_dest_rd_atomic == 0 || request.remote_addr % 8 != 0)
    return not_supported(m, dest);
  uint64_t addr = 0;
  if (!allows(m, dest, owner, sizeof(uint64_t), IBV_ACCESS_REMOTE_ATOMIC, &addr))
    return refuse(m, dest, kQpAccessErr, IBV_WC_REM_ACCESS_ERR);
  if (m.kill_at == KillAt::Middle) kill_this_process();
  uint64_t before = 0;
  switch (execute_atomic(m.fabric, owner, addr, request, &before)) {
    case Copy::Done:
      break;
    case Copy::NoRoom:
      return {Reply::Error, IBV_WC_LOC_QP_OP_ERR};
    case Copy::Gone:
      return {Reply::Lost};
    case Copy::LocalFault:
    case Copy::RemoteFault:
      return refuse(m, dest, kQpAccessErr, IBV_WC_REM_ACCESS_ERR);
  }
  const auto* from = reinterpret_cast<const uint8_t*>(&before);
  for (const iovec& piece : m.local) {
    std::copy_n(from, piece.iov_len, static_cast<uint8_t*>(piece.iov_base));
    from += piece.iov_len;
  }
  return {Reply::Ack};
}

// Eight bytes at once; a WRITE in all else.
Reply atomic_write(const Message& m, QpShared& dest, const Owner& owner) {
  if ((dest.access & IBV_ACCESS_REMOTE_WRITE) == 0 || m.request.remote_addr % 8 != 0) return not_supported(m, dest);
  uint64_t addr = 0;
  if (!allows(m, dest, owner, sizeof(uint64_t), IBV_ACCESS_REMOTE_WRITE, &addr))
    return refuse(m, dest, kQpAccessErr, IBV_WC_REM_ACCESS_ERR);
  if (m.kill_at == KillAt::Middle) kill_this_process();
  uint64_t word = 0;
  auto* to = reinterpret_cast<uint8_t*>(&word);
  for (const iovec& piece : m.local) to = std::copy_n(static_cast<const uint8_t*>(piece.iov_base), piece.iov_len, to);
  switch (store_word(m.fabric, owner, addr, word)) {
    case Copy::Done:
      return {Reply::Ack};
    case Copy::NoRoom:
      return {Reply::Error, IBV_WC_LOC_QP_OP_ERR};
    case Copy::Gone:
      return {Reply::Lost};
    case Copy::LocalFault:
    case Copy::RemoteFault:
      break;
  }
  return refuse(m, dest, kQpAccessErr, IBV_WC_REM_ACCESS_ERR);
}

// It has come: what that says about the connection.
void note_arrival(const Message& m, QpShared& dest) {
  if (dest.must_wait.load(std::memory_order_relaxed) != 0) dest.must_wait.store(0, std::memory_order_release);
  if (dest.comm_established != 0) return;
  dest.comm_established = 1;
  if (dest.state.load(std::memory_order_relaxed) == IBV_QPS_RTR)
    tell_owner(m.fabric, m.from.sq.peer_slot, *m.from.sq.peer, dest, kQpCommEst);
}

Reply execute(const Message& m, QpShared& dest, const Owner& owner) {
  switch (m.request.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
      return receive(m, dest, owner);
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return write(m, dest, owner);
    case IBV_WR_RDMA_READ:
      return read(m, dest, owner);
    case IBV_WR_ATOMIC_WRITE:
      return atomic_write(m, dest, owner);
    default:
      return atomic(m, dest, owner);
  }
}

}  // namespace

void kill_this_process() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void close_connection(Fabric& fabric, Qp& qp, uint32_t events) {
  const SendQueue& sq = qp.sq;
  if (sq.peer == nullptr || !fabric.believed_alive(sq.peer_slot, sq.peer_incarnation)) return;
  QpShared& dest = sq.peer->qps[index_of_qpn(qp.shared->dest_qpn)];
  RobustGuard guard(dest.lock, fabric.stamp());
  if (dest.qp_num.load(std::memory_order_acquire) != qp.shared->dest_qpn || dest.dest_qpn != qp.base()->qp_num) return;
  const uint32_t state = dest.state.load(std::memory_order_relaxed);
  if (!responds(state)) return;
  dest.state.store(IBV_QPS_ERR, std::memory_order_release);
  tell_owner(fabric, sq.peer_slot, *sq.peer, dest, kQpFlush | events);
}

Reply respond(const Message& m) {
  const QpShared& own = *m.from.shared;
  const SendQueue& sq = m.from.sq;
  if (sq.peer == nullptr || !link_up(m.fabric, own.port_id) || !link_up(m.fabric, own.dest_port_id))
    return {Reply::Lost};
  if (sq.peer_slot != kHubSlot && !m.fabric.believed_alive(sq.peer_slot, sq.peer_incarnation)) return {Reply::Lost};
  QpShared& dest = sq.peer->qps[index_of_qpn(own.dest_qpn)];
  RobustGuard guard(dest.lock, m.fabric.stamp());
  if (!accepts(m.from, own, dest)) return {Reply::Lost};
  Owner owner;
  switch (find_owner(m, dest, owner)) {
    case Found::Owner:
      break;
    case Found::Nobody:
      return {Reply::Lost};
    case Found::BadSrq:
      return refuse(m, dest, kQpReqErr, IBV_WC_REM_INV_REQ_ERR);
  }
  note_arrival(m, dest);
  const Reply reply = execute(m, dest, owner);
  if (reply.kind == Reply::Ack) {
    dest.expected_psn.store((sq.psn + m.packets) & kPsnMask, std::memory_order_relaxed);
    const bool takes = m.request.opcode == IBV_WR_RDMA_READ;
    dest.arrived.count(takes ? 0 : m.request.length, takes ? m.request.length : 0);
  }
  return reply;
}

}  // namespace softhca
