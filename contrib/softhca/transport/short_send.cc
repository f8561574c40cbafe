// SPDX-License-Identifier: BSD-3-Clause
// The most frequent request, in one go: a SEND of a reliable connection, with nothing before it in its queue, whose payload travels
// through shared memory to a receive request of one element. It does what append, run_send_queue, respond and complete do
// one after the other, with the same stores in the same order, and in a third of the instructions.
#include <cerrno>
#include <mutex>
#include <utility>

#include "faults/faults.h"
#include "transport/adding.h"
#include "transport/completing.h"
#include "transport/gather.h"
#include "transport/keys.h"
#include "transport/landing.h"
#include "transport/message.h"
#include "transport/prefetch.h"
#include "transport/requester.h"
#include "transport/taking.h"
#include "transport/transport.h"

namespace softhca {
namespace {

constexpr unsigned kMostPieces = 4;
constexpr uint32_t kPsnMask = 0xffffff;

struct Payload {
  const uint8_t* only;  // where it is in one piece; nullptr: in several
  uint32_t length;
};
constexpr uint32_t kNotShort = UINT32_MAX;  // a length: it cannot go this way
struct Pieces {
  iovec list[kMostPieces];
  unsigned count = 0;
};

// The request may go this way, and next.
bool may_go(const Qp& qp, const ibv_send_wr& wr) {
  const SendQueue& sq = qp.sq;
  const QpShared& own = *qp.shared;
  return static_cast<uint32_t>(wr.opcode) < 32 && (sq.short_opcodes >> wr.opcode & 1) != 0 &&
         !faults::active.load(std::memory_order_relaxed) && sq.head == sq.tail &&
         sq.tail - sq.reaped.load(std::memory_order_acquire) < qp.cap.max_send_wr &&
         own.state.load(std::memory_order_acquire) == IBV_QPS_RTS && own.must_wait.load(std::memory_order_acquire) == 0;
}

// Gives the length of all.
[[gnu::noinline]] uint32_t collect_pieces(Fabric& fabric, const Qp& qp, const ibv_send_wr& wr, Pieces& pieces) {
  const auto count = static_cast<unsigned>(wr.num_sge);
  if (count > kMostPieces || count > qp.sq.max_sge) return kNotShort;
  const bool inlined = (wr.send_flags & IBV_SEND_INLINE) != 0;
  uint64_t length = 0;
  for (const ibv_sge *from = wr.sg_list, *end = from + count; from != end; ++from) {
    if (from->length == 0) continue;
    uint64_t addr = from->addr;
    if (!inlined && !own_key_allows(fabric.self(), qp.shared->pd, Sge{addr, from->length, from->lkey}, 0, &addr))
      return kNotShort;
    pieces.list[pieces.count++] = {reinterpret_cast<void*>(addr), from->length};
    length += from->length;
  }
  if (length > qp.sq.short_bytes || (inlined && length > qp.sq.max_inline)) return kNotShort;
  return static_cast<uint32_t>(length);
}

// Most are in one piece.
[[gnu::always_inline]] inline Payload collect(Fabric& fabric, const Qp& qp, const ibv_send_wr& wr, Pieces& pieces) {
  if (wr.num_sge != 1 || wr.sg_list->length == 0) [[unlikely]]
    return {nullptr, collect_pieces(fabric, qp, wr, pieces)};
  const ibv_sge& from = *wr.sg_list;
  uint64_t addr = from.addr;
  if (from.length > qp.sq.short_bytes) return {nullptr, kNotShort};
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    if (from.length > qp.sq.max_inline) return {nullptr, kNotShort};
  } else if (!own_key_allows(fabric.self(), qp.shared->pd, Sge{addr, from.length, from.lkey}, 0, &addr)) {
    return {nullptr, kNotShort};
  }
  return {reinterpret_cast<const uint8_t*>(addr), from.length};
}

// A call of the library's copy: where GCC knows that it is at most kLandingBytes it copies byte by byte (rep movsb).
[[gnu::noipa]] void copy_long(uint8_t* to, const uint8_t* from, uint32_t length) {
  std::memcpy(to, from, length);
}

// Many have 8 to 16 bytes: two words, which overlap, and no call.
[[gnu::always_inline]] inline void copy(const Payload& payload, const Pieces& pieces, uint8_t* to) {
  if (payload.only == nullptr) [[unlikely]]
    return gather({pieces.list, pieces.count}, to);
  constexpr uint32_t kWord = sizeof(uint64_t);
  if (payload.length - kWord > kWord) {
    copy_long(to, payload.only, payload.length);
    return;
  }
  uint64_t words[2];
  std::memcpy(&words[0], payload.only, kWord);
  std::memcpy(&words[1], payload.only + payload.length - kWord, kWord);
  std::memcpy(to, &words[0], kWord);
  std::memcpy(to + payload.length - kWord, &words[1], kWord);
}

// Holds a lock, or has nothing to do with it.
template <bool kHolds>
class GuardIf {
 public:
  GuardIf(RobustLock& lock, RobustLock::Stamp me) : lock_(lock) {
    if constexpr (kHolds) lock.lock(me);
  }
  ~GuardIf() { release(); }
  GuardIf(const GuardIf&) = delete;
  GuardIf& operator=(const GuardIf&) = delete;
  void release() {
    if constexpr (kHolds)
      if (std::exchange(held_, false)) lock_.unlock();
  }

 private:
  RobustLock& lock_;
  bool held_ = true;
};

const RecvEntry* request_of(const ShortRoute& route, uint32_t number) {
  return reinterpret_cast<const RecvEntry*>(route.requests +
                                            size_t{number & route.request_mask} * route.request_stride);
}

// Whether the request of a number is posted. Of a queue of its own nobody else takes any.
template <bool kShared>
[[gnu::always_inline]] inline bool is_posted(ShortRoute& route, const RecvRing& ring, uint32_t number) {
  if (!kShared && route.has_seen && route.posted_seen - number - 1 <= route.request_mask) return true;
  route.has_seen = true;
  route.posted_seen = ring.posted.load(std::memory_order_acquire);
  return route.posted_seen - number - 1 <= route.request_mask;
}

// The entry of a number in the receiver's completion queue, whose lock is held; nullptr: there is no room, or no ring.
[[gnu::always_inline]] inline CqEntry* entry_for(Slot& owner, ShortRoute& route, CqShared& cq, uint32_t tail) {
  if (cq.offset != route.entries_offset || cq.capacity != route.entries_capacity) [[unlikely]]
    if (!look_at_entries(owner, route)) return nullptr;
  if (full(cq, tail)) [[unlikely]]
    return nullptr;
  return route.entries + (tail & (route.entries_capacity - 1));
}

// At the destination, whose lock is held, and whose receive requests are those of a shared queue or its own. False: nothing has
// happened.
template <bool kShared>
[[gnu::always_inline]] inline bool land(Fabric& fabric, Qp& qp, const ibv_send_wr& wr, const Payload& payload,
                                        const Pieces& pieces, QpShared& dest) {
  SendQueue& sq = qp.sq;
  ShortRoute& route = sq.route;
  Slot& owner = *sq.peer;
  RecvRing& ring = *route.ring;
  GuardIf<kShared> taking(ring.lock, fabric.stamp());
  finish_taking(owner, ring);
  const uint32_t number = ring.taken.load(std::memory_order_relaxed);
  if (!is_posted<kShared>(route, ring, number)) [[unlikely]]
    return false;
  const RecvEntry* request = request_of(route, number);
  if (request->num_sge != 1) [[unlikely]]
    return false;
  Sge sink = request->sge[0];
  const uint64_t wr_id = request->wr_id;
  uint64_t addr = 0;
  if (sink.length < payload.length) return false;
  sink.length = payload.length;
  if (!receive_key_allows(owner, route.pd, route.user, sink, &addr)) [[unlikely]]
    return false;

  CqShared& cq = *route.cq;
  const bool solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  {
    RobustGuard adding(cq.lock, fabric.stamp());
    finish_adding(owner, cq);
    const uint32_t tail = cq.tail.load(std::memory_order_relaxed);
    CqEntry* entry = entry_for(owner, route, cq, tail);
    if (entry == nullptr) [[unlikely]]
      return false;
    Landed where{};
    uint8_t* landing = entry->landing;
    const bool in_ring = payload.length > kLandingBytes;
    if (in_ring) {
      if (!find_landing(cq, tail, payload.length, where)) return false;
      landing = landing_at(owner, cq, where.begin, payload.length);
      if (landing == nullptr) return false;
    }
    take_request(dest, ring, number, wr_id, kShared, kShared ? taking_for(dest, number) : 0);
    if constexpr (kShared) raise_limit(owner, *route.srq);
    taking.release();

    // The payload first: who polls looks at the header's cache line all the time, which is then written in one go.
    copy(payload, pieces, landing);
    if (in_ring) keep_landing(cq, where);
    std::atomic_signal_fence(std::memory_order_release);
    std::memcpy(static_cast<void*>(entry), route.header, sizeof route.header);
    entry->wr_id = wr_id;
    entry->landing_addr = addr;
    entry->byte_len = payload.length;
    entry->imm_or_rkey = wr.imm_data;
    entry->landing_len = static_cast<uint16_t>(payload.length);
    entry->wc_flags = wr.opcode == IBV_WR_SEND_WITH_IMM ? uint8_t{IBV_WC_WITH_IMM} : uint8_t{0};
    entry->solicited = static_cast<uint8_t>(wr.send_flags & IBV_SEND_SOLICITED);
    if (in_ring) note_landed(*entry, where);
    if (cq.stamped != 0) [[unlikely]]
      entry->timestamp_ns = Fabric::now_ns();
    cq.adding.store(uint64_t{tail} << 32 | route.user, std::memory_order_release);
    publish(cq, *entry, tail);
    dest.taken_valid.store(0, std::memory_order_release);
    cq.adding.store(0, std::memory_order_release);
  }
  const uint32_t armed = cq.armed.load(std::memory_order_seq_cst);
  if (wants_event(armed, solicited)) announce(fabric, sq.peer_slot, owner, route.cq_index, armed);
  // Its cache line is here when the next message needs it.
  if (route.posted_seen - number > 1) fetch_to_read(request_of(route, number + 1));
  return true;
}

[[gnu::noinline]] bool land_in_shared(Fabric& fabric, Qp& qp, const ibv_send_wr& wr, const Payload& payload,
                                      const Pieces& pieces, QpShared& dest) {
  return land<true>(fabric, qp, wr, payload, pieces, dest);
}

}  // namespace

uint32_t short_opcodes(const Config& config, const Qp& qp) {
  if (qp.qp_base.qp_type != IBV_QPT_RC || qp.sq.linked || config.async_us != 0 || config.landing == 0) return 0;
  constexpr uint32_t kSend = 1U << IBV_WR_SEND;
  return config.personality == Personality::Iwarp ? kSend : kSend | 1U << IBV_WR_SEND_WITH_IMM;
}

namespace {

// Executes a request that was not appended, if it can be done at once and on the shortest way. False: nothing has happened.
[[gnu::always_inline]] inline bool send_short(Fabric& fabric, Qp& qp, const ibv_send_wr& wr) {
  if (!may_go(qp, wr)) return false;
  Pieces pieces;
  const Payload payload = collect(fabric, qp, wr, pieces);
  if (payload.length == kNotShort) return false;
  SendQueue& sq = qp.sq;
  ShortRoute& route = sq.route;
  if (route.dest == nullptr) [[unlikely]]
    if (!find_destination(fabric, qp)) return false;
  if (route.port_down->load(std::memory_order_acquire) != 0 ||
      route.dest_port_down->load(std::memory_order_acquire) != 0)
    return false;
  if (!Fabric::believed_alive(*sq.peer, sq.peer_incarnation)) return false;
  QpShared& dest = *route.dest;
  {
    RobustGuard guard(dest.lock, fabric.stamp());
    if (dest.state.look(std::memory_order_acquire) != route.dest_state) [[unlikely]]
      if (!look_at_destination(qp)) return false;
    if (dest.expected_psn.load(std::memory_order_relaxed) != sq.psn ||
        dest.must_wait.load(std::memory_order_relaxed) != 0)
      return false;
    if (route.srq == nullptr ? !land<false>(fabric, qp, wr, payload, pieces, dest)
                             : !land_in_shared(fabric, qp, wr, Payload(payload), pieces, dest))
      return false;
    sq.psn = (sq.psn + packets_of(*qp.shared, payload.length)) & kPsnMask;
    dest.expected_psn.store(sq.psn, std::memory_order_relaxed);
    dest.arrived.count_in(payload.length);
  }
  route.sent->count_out(payload.length);
  ++sq.posted;
  ++sq.tail;
  leave_first(sq);
  (void)complete_now(fabric, qp, {wr.wr_id, payload.length, wr.send_flags, IBV_WC_SEND}, IBV_WC_SUCCESS);
  return true;
}

}  // namespace

// Here, and not beside append(), so that nothing lies between it and send_short().
int post_send(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad) {
  Qp& qp = *Qp::of(base);
  Fabric* fabric = Fabric::get();
  int error = fabric == nullptr ? EPERM : qp.owner->fatal.load(std::memory_order_relaxed) ? EIO : 0;
  if (error != 0) {
    *bad = wr;
    return error;
  }
  std::lock_guard guard(qp.sq_mutex);
  for (; wr != nullptr; wr = wr->next) {
    if (send_short(*fabric, qp, *wr)) continue;
    if ((error = append(qp, *wr)) != 0) {
      *bad = wr;
      break;
    }
  }
  if (qp.sq.head != qp.sq.tail) run_send_queue(qp);
  return error;
}

}  // namespace softhca
