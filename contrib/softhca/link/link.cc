// SPDX-License-Identifier: BSD-3-Clause
#include "link/link.h"

#include <algorithm>

#include "link/wire.h"
#include "transport/message.h"
#include "transport/requester.h"

namespace softhca::link {
namespace {

// What it takes from when a message is due until the other process sees it, about: it is begun so much earlier, so that a ping-pong
// takes the latency that was set.
constexpr uint64_t kCarryingNs = 1'900;
constexpr uint64_t kCarryingUnansweredNs = 500;  // of UD and UC
// The same of an acknowledgement, which this process sees itself.
constexpr uint64_t kAnsweringNs = 850;

bool is_local(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}
// What the request itself carries; the answer to a READ carries the rest.
uint64_t bytes_sent(const SendEntry& entry) {
  return is_send(entry.opcode) || is_write(entry.opcode) ? entry.length : 0;
}

// 0: nobody has the address.
uint32_t destination(const Qp& qp, const SendEntry& entry) {
  return qp.qp_base.qp_type == IBV_QPT_UD ? entry.dest_port_id : qp.shared->dest_port_id;
}

// How long what leaves the port is on its way: the latency and a part of the jitter, chosen by the place of the message.
uint64_t travel_ns(Fabric& fabric, uint32_t port_id, const Qp& qp, uint32_t number) {
  if (port_id == 0) return 0;
  const Config& config = fabric.config();
  const uint64_t jitter = config.jitter.at(port_id);
  if (jitter == 0) return config.latency.at(port_id);
  uint64_t x = config.seed ^ uint64_t { port_id } << 48 ^ uint64_t { qp.index } << 32 ^ number;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return config.latency.at(port_id) + (x ^ x >> 31) % (jitter + 1);
}

// By how much it is begun earlier. A READ and an atomic operation are seen by nobody but their answer.
uint64_t begun_earlier_ns(Fabric& fabric, const Qp& qp, const SendEntry& entry) {
  const uint32_t port_id = qp.shared->port_id;
  if (port_id == 0 || !(is_send(entry.opcode) || is_write(entry.opcode))) return 0;
  const ibv_qp_type type = qp.qp_base.qp_type;
  const bool is_answered = type != IBV_QPT_UD && type != IBV_QPT_UC && type != IBV_QPT_RAW_PACKET;
  return std::min(fabric.config().latency.at(port_id), is_answered ? kCarryingNs : kCarryingUnansweredNs);
}

// A port sends so many bytes from `from` on; when the last one leaves.
uint64_t send_from(Fabric& fabric, uint32_t port_id, uint64_t from, uint64_t bytes) {
  const uint64_t bandwidth = port_id == 0 ? 0 : fabric.config().bandwidth.at(port_id);
  return bandwidth == 0 ? from
                        : occupy(fabric.hub().ports[port_id].sends_until_ns, from, transfer_ns(bytes, bandwidth));
}

// A port receives so many bytes, the last one at `last` if nothing else comes; when it has all.
uint64_t receive_by(Fabric& fabric, uint32_t port_id, uint64_t last, uint64_t bytes) {
  const uint64_t bandwidth = port_id == 0 ? 0 : fabric.config().bandwidth.at(port_id);
  return bandwidth == 0 ? last
                        : occupy_by(fabric.hub().ports[port_id].receives_until_ns, last, transfer_ns(bytes, bandwidth));
}

// The answer to an executed request.
uint64_t answered_ns(Fabric& fabric, const Qp& qp, const SendEntry& entry) {
  const uint32_t from = destination(qp, entry);
  if (entry.opcode == IBV_WR_RDMA_READ)
    return send_from(fabric, from, entry.start_ns, entry.length) + travel_ns(fabric, from, qp, qp.sq.head);
  const uint64_t way = from == 0 ? 0 : fabric.config().latency.at(from);
  return entry.start_ns + begun_earlier_ns(fabric, qp, entry) + way - std::min(way, kAnsweringNs);
}

SendEntry& first_unanswered(SendQueue& sq) {
  return sq.at(sq.head - sq.unanswered);
}

}  // namespace

bool is_set(const Config& config) {
  return config.bandwidth.is_set() || config.latency.is_set() || config.jitter.is_set();
}

void depart(Fabric& fabric, Qp& qp, uint64_t now_ns) {
  SendQueue& sq = qp.sq;
  if (static_cast<int32_t>(sq.head - sq.departed) > 0) sq.departed = sq.head;  // it was flushed
  for (; sq.departed != sq.tail; ++sq.departed) {
    SendEntry& entry = sq.at(sq.departed);
    if (is_local(entry.opcode)) continue;
    const uint64_t leaves = entry.delayed != kNotDelayed ? std::max(now_ns, entry.start_ns) : now_ns;
    const uint64_t sent = send_from(fabric, qp.shared->port_id, leaves, bytes_sent(entry));
    const uint64_t arrives = sent + travel_ns(fabric, qp.shared->port_id, qp, sq.departed);
    sq.arrives_ns = std::max(sq.arrives_ns, arrives - begun_earlier_ns(fabric, qp, entry));
    entry.delayed = kOnLink;
    entry.start_ns = sq.arrives_ns;
  }
}

bool queues_at_port(Fabric& fabric, const Qp& qp, SendEntry& entry, uint64_t now_ns) {
  entry.start_ns = receive_by(fabric, destination(qp, entry), entry.start_ns, bytes_sent(entry));
  return entry.start_ns > now_ns;
}

void await_answer(Fabric& fabric, Qp& qp, bool acknowledged) {
  SendQueue& sq = qp.sq;
  SendEntry& entry = sq.at(sq.head);
  if (is_local(entry.opcode) ? sq.unanswered == 0 : !acknowledged) {
    (void)retire_first(qp, IBV_WC_SUCCESS);
    return;
  }
  if (!is_local(entry.opcode)) sq.answered_ns = std::max(sq.answered_ns, answered_ns(fabric, qp, entry));
  entry.start_ns = sq.answered_ns;
  entry.delayed = entry.opcode == IBV_WR_RDMA_READ ? kOnLink : kNotDelayed;
  leave_first(sq);
  ++sq.unanswered;
}

uint64_t take_answers(Fabric& fabric, Qp& qp, uint64_t now_ns) {
  SendQueue& sq = qp.sq;
  while (sq.unanswered != 0) {
    SendEntry& entry = first_unanswered(sq);
    if (entry.start_ns <= now_ns && entry.delayed == kOnLink) {
      entry.delayed = kNotDelayed;
      entry.start_ns = receive_by(fabric, qp.shared->port_id, entry.start_ns, entry.length);
    }
    if (entry.start_ns > now_ns) return entry.start_ns;
    --sq.unanswered;
    (void)complete_request(qp, entry, IBV_WC_SUCCESS);
  }
  return 0;
}

void take_all_answers(Qp& qp) {
  while (qp.sq.unanswered != 0) {
    const SendEntry& entry = first_unanswered(qp.sq);
    --qp.sq.unanswered;
    (void)complete_request(qp, entry, IBV_WC_SUCCESS);
  }
}

uint64_t round_trip_ns(Fabric& fabric, const Qp& qp, const SendEntry& entry) {
  const uint32_t to = destination(qp, entry);
  const PerPort& latency = fabric.config().latency;
  return latency.at(qp.shared->port_id) + (to == 0 ? 0 : latency.at(to));
}

}  // namespace softhca::link
