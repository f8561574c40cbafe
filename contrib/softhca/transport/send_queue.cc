// SPDX-License-Identifier: BSD-3-Clause
// Send requests before they are executed: what may be posted, and the ring.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "device/attributes.h"
#include "transport/message.h"
#include "transport/requester.h"
#include "transport/transport.h"
#include "verbs/qp_states.h"

namespace softhca {
namespace {

constexpr uint32_t kUdMtu = 4096;             // port_attributes
constexpr uint32_t kMostFrame = kUdMtu + 18;  // with a VLAN tag

constexpr unsigned bit(int n) {
  return 1U << n;
}
constexpr unsigned kSends = bit(IBV_WR_SEND) | bit(IBV_WR_SEND_WITH_IMM);
constexpr unsigned kWrites = bit(IBV_WR_RDMA_WRITE) | bit(IBV_WR_RDMA_WRITE_WITH_IMM);
constexpr unsigned kWindows = bit(IBV_WR_SEND_WITH_INV) | bit(IBV_WR_LOCAL_INV) | bit(IBV_WR_BIND_MW);
constexpr unsigned kReads = bit(IBV_WR_RDMA_READ);
constexpr unsigned kAtomics =
    bit(IBV_WR_ATOMIC_CMP_AND_SWP) | bit(IBV_WR_ATOMIC_FETCH_AND_ADD) | bit(IBV_WR_ATOMIC_WRITE);
constexpr unsigned kImmediates = bit(IBV_WR_SEND_WITH_IMM) | bit(IBV_WR_RDMA_WRITE_WITH_IMM);

// The opcodes that a QP of this type takes.
unsigned opcodes_of(uint32_t type, Personality personality) {
  unsigned opcodes = 0;
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
      opcodes = kSends | kWrites | kWindows | kReads | kAtomics;
      break;
    case IBV_QPT_UC:
      opcodes = kSends | kWrites | kWindows;
      break;
    case IBV_QPT_UD:
      opcodes = kSends;
      break;
    case IBV_QPT_RAW_PACKET:
      opcodes = bit(IBV_WR_SEND);
      break;
    default:
      break;
  }
  return personality == Personality::Iwarp ? opcodes & ~(kImmediates | kAtomics) : opcodes;
}

bool has_payload(ibv_wr_opcode opcode) {
  return opcode != IBV_WR_LOCAL_INV && opcode != IBV_WR_BIND_MW;
}

// ATOMIC WRITE always has room for its eight bytes: the extended interface knows no other way (size_send_queue).
bool may_be_inline(const Qp& qp, ibv_wr_opcode opcode, uint64_t length) {
  return (length <= qp.sq.max_inline && (is_send(opcode) || is_write(opcode))) || opcode == IBV_WR_ATOMIC_WRITE;
}

uint32_t longest(uint32_t type, const Config& config) {
  if (is_connected(type)) return config.max_message;
  return type == IBV_QPT_UD ? kUdMtu : kMostFrame;
}

// Lengths and numbers; sets the entry's data.
int copy_data(const Qp& qp, const ibv_send_wr& wr, const Config& config, SendEntry& entry) {
  const bool iwarp = config.personality == Personality::Iwarp;
  entry.length = 0;
  entry.num_sge = 0;
  if (!has_payload(wr.opcode)) return 0;
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > qp.sq.max_sge) return EINVAL;
  if (iwarp && wr.opcode == IBV_WR_RDMA_READ && wr.num_sge > 1) return EINVAL;
  uint64_t length = 0;
  for (int i = 0; i < wr.num_sge; ++i) length += wr.sg_list[i].length;
  if ((bit(wr.opcode) & kAtomics) != 0 && length != sizeof(uint64_t)) return EINVAL;
  const bool inlined = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (inlined && !may_be_inline(qp, wr.opcode, length)) return EINVAL;
  if (length > longest(qp.qp_base.qp_type, config)) return EINVAL;
  entry.length = static_cast<uint32_t>(length);
  if (!inlined) {
    entry.num_sge = static_cast<uint32_t>(wr.num_sge);
    if (wr.num_sge != 0)
      std::memcpy(static_cast<void*>(entry.data), wr.sg_list, static_cast<size_t>(wr.num_sge) * sizeof(Sge));
    return 0;
  }
  auto* to = reinterpret_cast<uint8_t*>(entry.data);
  for (int i = 0; i < wr.num_sge; ++i)
    to = std::copy_n(reinterpret_cast<const uint8_t*>(wr.sg_list[i].addr), wr.sg_list[i].length, to);
  return 0;
}

// The parameters that depend on the opcode and the QP's type.
int copy_parameters(const Qp& qp, const ibv_send_wr& wr, SendEntry& entry) {
  entry.imm_or_rkey = wr.invalidate_rkey;
  if (qp.qp_base.qp_type == IBV_QPT_UD) {
    if (wr.wr.ud.ah == nullptr) return EINVAL;
    const Ah& ah = *static_cast<const Ah*>(wr.wr.ud.ah);
    entry.ah = wr.wr.ud.ah;
    entry.dest_port_id = ah.dest_port_id;
    entry.remote_qpn = wr.wr.ud.remote_qpn;
    entry.remote_qkey = wr.wr.ud.remote_qkey;
    entry.dlid_path_bits = ah.attr.src_path_bits;
    entry.sl = ah.attr.sl;
    entry.grh = ah.attr.is_global;
    return 0;
  }
  if (qp.qp_base.qp_type == IBV_QPT_XRC_SEND) entry.remote_srqn = wr.qp_type.xrc.remote_srqn;
  if (wr.opcode == IBV_WR_BIND_MW) {
    if (wr.bind_mw.mw == nullptr) return EINVAL;
    entry.mw = wr.bind_mw.mw;
    entry.mw_rkey = wr.bind_mw.rkey;
    entry.bind = wr.bind_mw.bind_info;
    entry.rkey = entry.bind.mr != nullptr ? entry.bind.mr->lkey : 0;
  } else if (is_atomic(wr.opcode)) {
    entry.remote_addr = wr.wr.atomic.remote_addr;
    entry.rkey = wr.wr.atomic.rkey;
    entry.compare_add = wr.wr.atomic.compare_add;
    entry.swap = wr.wr.atomic.swap;
  } else {
    entry.remote_addr = wr.wr.rdma.remote_addr;
    entry.rkey = wr.wr.rdma.rkey;
  }
  return 0;
}

uint64_t mix(uint64_t x) {
  x = (x ^ x >> 31) * 0x7fb5d329728ea185;
  x = (x ^ x >> 27) * 0x81dadef4bc2dd44d;
  return x ^ x >> 33;
}

// Config::async_us: when the request may start. Of eight, one may at once.
void choose_start(Fabric& fabric, const Qp& qp, uint32_t number, SendEntry& entry) {
  const Config& config = fabric.config();
  entry.delayed = kNotDelayed;
  if (config.async_us == 0) return;
  const uint64_t random = mix(config.seed ^ mix(uint64_t{fabric.slot()} << 48 ^ uint64_t{qp.index} << 32 ^ number));
  if (random % 8 == 0) return;
  entry.delayed = kDelayed;
  entry.start_ns = Fabric::now_ns() + (random >> 3) % (uint64_t{config.async_us} * 1000 + 1);
}

}  // namespace

size_t size_send_queue(SendQueue& sq, const ibv_qp_cap& cap) {
  sq.capacity = std::bit_ceil(std::max(cap.max_send_wr, 1U));
  sq.max_sge = cap.max_send_sge;
  sq.max_inline = cap.max_inline_data;
  const size_t data = std::max({cap.max_send_sge * sizeof(Sge), size_t{cap.max_inline_data}, sizeof(uint64_t)});
  sq.stride = static_cast<uint32_t>((sizeof(SendEntry) + data + 63) / 64 * 64);
  return size_t{sq.capacity} * sq.stride;
}

int append(Qp& qp, const ibv_send_wr& wr) {
  Fabric& fabric = *Fabric::get();
  SendQueue& sq = qp.sq;
  const uint32_t state = qp.shared->state.load(std::memory_order_acquire);
  if (state < IBV_QPS_RTS || qp.target) return EINVAL;
  if (wr.opcode < 0 || wr.opcode >= 32 ||
      (opcodes_of(qp.base()->qp_type, fabric.config().personality) & bit(wr.opcode)) == 0)
    return EINVAL;
  if (sq.tail - sq.reaped.load(std::memory_order_acquire) >= qp.cap.max_send_wr) return ENOMEM;
  SendEntry& entry = sq.at(sq.tail);
  entry.wr_id = wr.wr_id;
  entry.opcode = wr.opcode;
  entry.flags = wr.send_flags;
  if (const int error = copy_data(qp, wr, fabric.config(), entry)) return error;
  if (const int error = copy_parameters(qp, wr, entry)) return error;
  entry.attempts = 0;
  entry.rnr_attempts = 0;
  entry.started = 0;
  entry.fate = {KillAt::Nowhere, IBV_WC_SUCCESS};
  choose_start(fabric, qp, sq.posted++, entry);
  sq.route.has_seen = false;
  ++sq.tail;
  return 0;
}

}  // namespace softhca
