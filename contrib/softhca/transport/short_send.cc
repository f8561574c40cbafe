// SPDX-License-Identifier: BSD-3-Clause
// The most frequent request, in one go: a SEND of a reliable connection, with nothing before it in its queue, whose payload travels
// through shared memory to a receive request of one element. It does what append, run_send_queue, respond and complete do
// one after the other, with the same stores in the same order, and in a third of the instructions.
#include <mutex>

#include "faults/faults.h"
#include "transport/adding.h"
#include "transport/gather.h"
#include "transport/keys.h"
#include "transport/landing.h"
#include "transport/message.h"
#include "transport/requester.h"
#include "transport/taking.h"
#include "transport/transport.h"

namespace softhca {
namespace {

constexpr unsigned kMostPieces = 4;
constexpr uint32_t kPsnMask = 0xffffff;

struct Payload {
  iovec pieces[kMostPieces];
  unsigned count = 0;
  uint32_t length = 0;
};

// The request may go this way, and next.
bool may_go(const Qp& qp, const ibv_send_wr& wr) {
  const SendQueue& sq = qp.sq;
  return static_cast<uint32_t>(wr.opcode) < 32 && (sq.short_opcodes >> wr.opcode & 1) != 0 &&
         !faults::active.load(std::memory_order_relaxed) && sq.head == sq.tail &&
         sq.tail - sq.reaped.load(std::memory_order_acquire) < qp.cap.max_send_wr &&
         qp.shared->state.load(std::memory_order_acquire) == IBV_QPS_RTS &&
         qp.shared->must_wait.load(std::memory_order_acquire) == 0;
}

bool collect(Fabric& fabric, const Qp& qp, const ibv_send_wr& wr, Payload& payload) {
  const auto count = static_cast<unsigned>(wr.num_sge);
  if (count > kMostPieces || count > qp.sq.max_sge) return false;
  const bool inlined = (wr.send_flags & IBV_SEND_INLINE) != 0;
  uint64_t length = 0;
  for (const ibv_sge *from = wr.sg_list, *end = from + count; from != end; ++from) {
    if (from->length == 0) continue;
    uint64_t addr = from->addr;
    if (!inlined && !own_key_allows(fabric.self(), qp.shared->pd, Sge{addr, from->length, from->lkey}, 0, &addr))
      return false;
    payload.pieces[payload.count++] = {reinterpret_cast<void*>(addr), from->length};
    length += from->length;
  }
  payload.length = static_cast<uint32_t>(length);
  if (inlined && length > qp.sq.max_inline) return false;
  const Config& config = fabric.config();
  return length <= config.landing && length <= config.max_message;
}

// Most are in one piece, and many have 8 to 16 bytes: two words, which overlap, and no call.
void copy(const Payload& payload, uint8_t* to) {
  if (payload.count != 1) [[unlikely]]
    return gather({payload.pieces, payload.count}, to);
  const auto* from = static_cast<const uint8_t*>(payload.pieces[0].iov_base);
  constexpr uint32_t kWord = sizeof(uint64_t);
  if (payload.length - kWord > kWord) {
    std::memcpy(to, from, payload.length);
    return;
  }
  uint64_t words[2];
  std::memcpy(&words[0], from, kWord);
  std::memcpy(&words[1], from + payload.length - kWord, kWord);
  std::memcpy(to, &words[0], kWord);
  std::memcpy(to + payload.length - kWord, &words[1], kWord);
}

// Holds a lock if there is one.
class MaybeGuard {
 public:
  MaybeGuard(RobustLock* lock, RobustLock::Stamp me) : lock_(lock) {
    if (lock_ != nullptr) lock_->lock(me);
  }
  ~MaybeGuard() { release(); }
  MaybeGuard(const MaybeGuard&) = delete;
  MaybeGuard& operator=(const MaybeGuard&) = delete;
  void release() {
    if (lock_ != nullptr) lock_->unlock();
    lock_ = nullptr;
  }

 private:
  RobustLock* lock_;
};

// What the receiver has written last comes from its processor's cache: all at once, and not one after the other.
void fetch_ahead(const SendQueue& sq, const QpShared& dest) {
  constexpr size_t kLine = 64;
  __builtin_prefetch(sq.next_entry, 1);
  __builtin_prefetch(sq.next_entry + kLine, 1);
  __builtin_prefetch(&dest.rq.posted);
  __builtin_prefetch(sq.next_request);
}

// At the destination, whose lock is held. False: nothing has happened.
bool land(Fabric& fabric, Qp& qp, const ibv_send_wr& wr, const Payload& payload, QpShared& dest) {
  SendQueue& sq = qp.sq;
  const QpShared& own = *qp.shared;
  Slot& owner = *sq.peer;
  SrqShared* srq = dest.srq != 0 ? &owner.srqs[(dest.srq - 1) % kSrqsPerSlot] : nullptr;
  if (srq != nullptr && srq->in_use.load(std::memory_order_acquire) == 0) return false;
  RecvRing& ring = srq != nullptr ? srq->ring : dest.rq;
  MaybeGuard taking(srq != nullptr ? &srq->ring.lock : nullptr, fabric.stamp());
  finish_taking(owner, ring);
  const uint32_t number = ring.taken.load(std::memory_order_relaxed);
  const RecvEntry* request = next_request(owner, ring, number);
  if (request == nullptr || request->num_sge != 1) return false;
  Sge sink = request->sge[0];
  const uint64_t wr_id = request->wr_id;
  uint64_t addr = 0;
  if (sink.length < payload.length) return false;
  sink.length = payload.length;
  if (!receive_key_allows(owner, dest.pd, own.dest_qpn, sink, &addr)) return false;

  const uint32_t index = dest.recv_cq % kCqsPerSlot;
  CqShared& cq = owner.cqs[index];
  const bool solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  {
    RobustGuard adding(cq.lock, fabric.stamp());
    finish_adding(owner, cq);
    const uint32_t tail = cq.tail.load(std::memory_order_relaxed);
    CqEntry* entry = next_entry(owner, cq, tail);
    if (entry == nullptr) return false;
    Landed where{};
    uint8_t* landing = entry->landing;
    if (payload.length > kLandingBytes) {
      if (!find_landing(cq, tail, payload.length, where)) return false;
      landing = landing_at(owner, cq, where.begin, payload.length);
      if (landing == nullptr) return false;
    }
    take_request(dest, ring, number, wr_id, srq != nullptr, srq != nullptr ? taking_for(dest, number) : 0);
    if (srq != nullptr) raise_limit(owner, *srq);
    taking.release();

    entry->wr_id = wr_id;
    entry->landing_addr = addr;
    entry->timestamp_ns = 0;
    entry->byte_len = payload.length;
    entry->qp_num = own.dest_qpn;
    entry->src_qp = own.qp_num.load(std::memory_order_relaxed);
    entry->imm_or_rkey = wr.imm_data;
    entry->vendor_err = entry->srqn = 0;
    entry->landing_len = static_cast<uint16_t>(payload.length);
    entry->slid = 0;
    entry->pkey_index = dest.pkey_index;
    entry->retires = 0;
    entry->status = IBV_WC_SUCCESS;
    entry->opcode = static_cast<uint8_t>(IBV_WC_RECV);
    entry->wc_flags = wr.opcode == IBV_WR_SEND_WITH_IMM ? uint8_t{IBV_WC_WITH_IMM} : uint8_t{0};
    entry->sl = 0;
    entry->solicited = solicited;
    entry->in_ring = 0;
    if (payload.length > kLandingBytes) {
      keep_landing(cq, where);
      entry->in_ring = 1;
      std::memcpy(entry->landing, &where, sizeof where);
    }
    copy(payload, landing);
    sq.next_request = reinterpret_cast<const uint8_t*>(request) + ring.stride;
    sq.next_entry = reinterpret_cast<const uint8_t*>(entry) + sizeof *entry;
    if (cq.stamped != 0) entry->timestamp_ns = Fabric::now_ns();
    cq.adding.store(uint64_t{tail} << 32 | (index_of_qpn(own.dest_qpn) + 1), std::memory_order_release);
    cq.tail.store(tail + 1, std::memory_order_seq_cst);
    dest.taken_valid.store(0, std::memory_order_release);
    cq.adding.store(0, std::memory_order_release);
  }
  const uint32_t armed = cq.armed.load(std::memory_order_seq_cst);
  if (wants_event(armed, solicited)) announce(fabric, sq.peer_slot, owner, index, armed);
  return true;
}

}  // namespace

uint32_t short_opcodes(const Config& config, const Qp& qp) {
  if (qp.qp_base.qp_type != IBV_QPT_RC || qp.sq.linked || config.async_us != 0 || config.landing == 0) return 0;
  constexpr uint32_t kSend = 1U << IBV_WR_SEND;
  return config.personality == Personality::Iwarp ? kSend : kSend | 1U << IBV_WR_SEND_WITH_IMM;
}

bool send_short(Fabric& fabric, Qp& qp, const ibv_send_wr& wr) {
  Payload payload;
  if (!may_go(qp, wr) || !collect(fabric, qp, wr, payload)) return false;
  SendQueue& sq = qp.sq;
  const QpShared& own = *qp.shared;
  if (!link_up(fabric, own.port_id) || !link_up(fabric, own.dest_port_id)) return false;
  if (!Fabric::believed_alive(*sq.peer, sq.peer_incarnation)) return false;
  QpShared& dest = sq.peer->qps[index_of_qpn(own.dest_qpn)];
  fetch_ahead(sq, dest);
  {
    RobustGuard guard(dest.lock, fabric.stamp());
    // The first message has more to do.
    if (!accepts(qp, own, dest) || dest.comm_established == 0 || dest.must_wait.load(std::memory_order_relaxed) != 0)
      return false;
    if (!land(fabric, qp, wr, payload, dest)) return false;
    sq.psn = (sq.psn + packets_of(own, payload.length)) & kPsnMask;
    dest.expected_psn.store(sq.psn, std::memory_order_relaxed);
    dest.arrived.count(payload.length, 0);
  }
  fabric.self().sent[qp.index].count(0, payload.length);
  ++sq.posted;
  ++sq.tail;
  leave_first(sq);
  (void)complete_request(fabric, qp, {wr.wr_id, payload.length, wr.send_flags, IBV_WC_SEND}, IBV_WC_SUCCESS);
  return true;
}

}  // namespace softhca
