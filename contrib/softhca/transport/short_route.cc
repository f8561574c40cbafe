// SPDX-License-Identifier: BSD-3-Clause
#include "transport/short_route.h"

#include <cstring>

#include "transport/adding.h"
#include "transport/keys.h"
#include "transport/message.h"
#include "transport/taking.h"

namespace softhca {
namespace {

// The word that says whether a port is down; nullptr: there is none.
const std::atomic<uint32_t>* down_of(Fabric& fabric, uint32_t port_id) {
  return port_id - 1 < kPortIds - 1 ? &fabric.hub().ports[port_id].down : nullptr;
}

// The entries of a ring of receive requests, of which each has room for one element; nullptr: the ring is not sane.
const uint8_t* requests_of(Slot& owner, const RecvRing& ring) {
  if (!is_power_of_two(ring.capacity) || ring.stride < sizeof(RecvEntry) + sizeof(Sge)) return nullptr;
  return Fabric::at(owner, ring.offset, uint64_t{ring.capacity} * ring.stride);
}

void make_header(const Qp& qp, const QpShared& dest, ShortRoute& route) {
  CqEntry entry;
  clear_header(entry);
  entry.qp_num = qp.shared->dest_qpn;
  entry.src_qp = qp.qp_base.qp_num;
  entry.pkey_index = dest.pkey_index;
  entry.status = IBV_WC_SUCCESS;
  entry.opcode = static_cast<uint8_t>(IBV_WC_RECV);
  std::memcpy(route.header, &entry, sizeof route.header);
}

}  // namespace

bool find_destination(Fabric& fabric, Qp& qp) {
  SendQueue& sq = qp.sq;
  const QpShared& own = *qp.shared;
  ShortRoute found;
  found.port_down = down_of(fabric, own.port_id);
  found.dest_port_down = down_of(fabric, own.dest_port_id);
  if (found.port_down == nullptr || found.dest_port_down == nullptr || sq.peer == nullptr) return false;
  found.sent = &fabric.self().sent[qp.index];
  found.dest = &sq.peer->qps[index_of_qpn(own.dest_qpn)];
  sq.route = found;
  return true;
}

bool look_at_destination(Qp& qp) {
  const SendQueue& sq = qp.sq;
  ShortRoute& route = qp.sq.route;
  Slot& owner = *sq.peer;
  const QpShared& dest = *route.dest;
  route.dest_state = 0;
  route.entries_offset = 0;
  const uint64_t state = dest.state.look(std::memory_order_acquire);
  // The first message has more to do.
  if (QpState::incarnation_in(state) != sq.peer_incarnation || !accepts(qp, *qp.shared, dest) ||
      dest.comm_established == 0)
    return false;
  route.srq = dest.srq != 0 ? &owner.srqs[(dest.srq - 1) % kSrqsPerSlot] : nullptr;
  if (route.srq != nullptr && route.srq->in_use.load(std::memory_order_acquire) == 0) return false;
  route.ring = route.srq != nullptr ? &route.srq->ring : &route.dest->rq;
  route.requests = requests_of(owner, *route.ring);
  if (route.requests == nullptr) return false;
  route.request_mask = route.ring->capacity - 1;
  route.request_stride = route.ring->stride;
  route.posted_seen = route.ring->posted.load(std::memory_order_acquire);
  route.cq_index = dest.recv_cq % kCqsPerSlot;
  route.cq = &owner.cqs[route.cq_index];
  route.user = user_of(qp.shared->dest_qpn);
  route.pd = dest.pd;
  make_header(qp, dest, route);
  route.dest_state = state;
  return true;
}

bool look_at_entries(Slot& owner, ShortRoute& route) {
  const CqShared& cq = *route.cq;
  route.entries_offset = 0;
  if (cq.in_use.load(std::memory_order_relaxed) == 0 || !is_power_of_two(cq.capacity)) return false;
  uint8_t* at = Fabric::at(owner, cq.offset, uint64_t{cq.capacity} * sizeof(CqEntry));
  if (at == nullptr) return false;
  route.entries = reinterpret_cast<CqEntry*>(at);
  route.entries_capacity = cq.capacity;
  route.entries_offset = cq.offset;
  return true;
}

}  // namespace softhca
