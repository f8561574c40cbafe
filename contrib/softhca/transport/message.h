// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One message on its way: from the requester, who makes it, to the responder's half, which the same thread executes on the
// destination QP.
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstring>
#include <span>

#include "transport/arrival.h"
#include "transport/remote_memory.h"
#include "verbs/objects.h"

namespace softhca {

struct Message {
  Fabric& fabric;
  Qp& from;
  const SendEntry& request;
  std::span<const iovec> local;  // what is sent, or where the answer goes
  uint32_t packets;
  KillAt kill_at;  // a fault
};

struct Reply {
  enum Kind : uint8_t { Ack, Lost, NotReady, Error } kind;
  ibv_wc_status status = IBV_WC_SUCCESS;  // Error: how the request completes
  uint8_t rnr_timer = 0;                  // NotReady
};

// Executes a message of a connected QP (RC, UC, XRC) on SendQueue::peer.
Reply respond(const Message& message);
// The same for UD; it never fails, except for what is wrong here.
Reply send_datagram(const Message& message);
// The same for raw packets.
Reply send_frame(const Message& message);

// iWARP: a QP that fails, or is closed, takes the other side's with it, which gets `events` (QpEventBits) besides. Qp::sq_mutex
// held.
void close_connection(Fabric& fabric, Qp& qp, uint32_t events = 0);

// FETCH_ADD and CMP_SWAP on an address in the owner's memory; *before: what was there.
[[nodiscard]] Copy execute_atomic(Fabric& fabric, const Owner& owner, uint64_t addr, const SendEntry& request,
                                  uint64_t* before);

// Stores a word there, which is seen as a whole or not at all.
[[nodiscard]] Copy store_word(Fabric& fabric, const Owner& owner, uint64_t addr, uint64_t word);

void kill_this_process();

inline bool responds(uint32_t state) {
  return state >= IBV_QPS_RTR && state <= IBV_QPS_SQE;
}

// All but the payload, which nobody reads beyond landing_len.
inline void clear_header(CqEntry& entry) {
  std::memset(static_cast<void*>(&entry), 0, offsetof(CqEntry, turn));
}

// Whether a port that a QP has, or is connected to, is up; 0 is none.
inline bool link_up(Fabric& fabric, uint32_t port_id) {
  return port_id - 1 < kPortIds - 1 && fabric.hub().ports[port_id].down.load(std::memory_order_acquire) == 0;
}

// Whether a connected destination takes messages from this QP at all. If not, it is as if nobody were there.
inline bool accepts(const Qp& from, const QpShared& own, const QpShared& dest) {
  if (dest.qp_num.load(std::memory_order_acquire) != own.dest_qpn) return false;
  if (!responds(dest.state.load(std::memory_order_relaxed))) return false;
  if (dest.type != (own.type == IBV_QPT_XRC_SEND ? uint32_t{IBV_QPT_XRC_RECV} : own.type)) return false;
  if (dest.dest_qpn != from.qp_base.qp_num || dest.port_id != own.dest_port_id || dest.dest_port_id != own.port_id)
    return false;
  return own.type == IBV_QPT_UC || dest.expected_psn.load(std::memory_order_relaxed) == from.sq.psn;
}

// How many packets a message of this length would have.
inline uint32_t packets_of(const QpShared& own, uint32_t length) {
  constexpr uint32_t kLeast = 256;
  if (length <= kLeast) return 1;
  const unsigned shift = own.path_mtu == 0 ? 10 : 7 + (own.path_mtu & 7);
  return ((length - 1) >> shift) + 1;
}

inline bool is_send(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}
inline bool is_write(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
inline bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
inline bool has_imm(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
}  // namespace softhca
