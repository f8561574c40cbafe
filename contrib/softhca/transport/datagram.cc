// SPDX-License-Identifier: BSD-3-Clause
// UD: every message names its destination, nothing is acknowledged, and what nobody waits for is lost.
#include <arpa/inet.h>

#include <algorithm>

#include "device/port.h"
#include "transport/engine.h"
#include "transport/message.h"
#include "transport/transport.h"
#include "transport/unanswered.h"

namespace softhca {
namespace {

constexpr size_t kIpv4Bytes = 20;  // RoCE v2 over IPv4 has its IP header at the end of the 40 bytes
constexpr uint8_t kNextHeaderIb = 0x1b;
constexpr uint8_t kProtocolUdp = 17;
constexpr size_t kTransportHeaders = 8 + 12 + 8 + 4;  // what a packet has besides: UDP, BTH, DETH, ICRC

uint16_t internet_checksum(const uint8_t* bytes, size_t length) {
  uint32_t sum = 0;
  for (size_t i = 0; i < length; i += 2) sum += static_cast<uint32_t>(bytes[i] << 8 | bytes[i + 1]);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

void put16(uint8_t* to, size_t value) {
  to[0] = static_cast<uint8_t>(value >> 8);
  to[1] = static_cast<uint8_t>(value);
}

bool is_ipv4(const ibv_gid& gid) {
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

// The global header as hardware leaves it in front of the message.
void make_header(Fabric& fabric, const SendEntry& request, uint8_t (&header)[sizeof(ibv_grh)]) {
  const Ah& ah = *static_cast<const Ah*>(request.ah);
  ibv_gid from{};
  if (!gid_at(fabric, ah.port_id, ah.attr.grh.sgid_index, &from)) return;
  const bool version2 = gid_type_at(fabric.config(), ah.attr.grh.sgid_index) == IBV_GID_TYPE_ROCE_V2;
  const ibv_global_route& route = ah.attr.grh;
  if (version2 && is_ipv4(from)) {
    uint8_t* ip = header + sizeof header - kIpv4Bytes;
    ip[0] = 0x45;
    ip[1] = route.traffic_class;
    put16(ip + 2, kIpv4Bytes + kTransportHeaders + request.length);
    ip[6] = 0x40;  // not to be fragmented
    ip[8] = route.hop_limit;
    ip[9] = kProtocolUdp;
    std::memcpy(ip + 12, from.raw + 12, 4);
    std::memcpy(ip + 16, route.dgid.raw + 12, 4);
    put16(ip + 10, internet_checksum(ip, kIpv4Bytes));
    return;
  }
  ibv_grh grh{};
  grh.version_tclass_flow = htonl(6U << 28 | uint32_t{route.traffic_class} << 20 | (route.flow_label & 0xfffff));
  grh.paylen = htons(static_cast<uint16_t>(request.length + kTransportHeaders));
  grh.next_hdr = version2 ? kProtocolUdp : kNextHeaderIb;
  grh.hop_limit = route.hop_limit;
  grh.sgid = from;
  grh.dgid = route.dgid;
  std::memcpy(header, &grh, sizeof grh);
}

bool accepts(const Message& m, const QpShared& own, const QpShared& dest, uint32_t qpn, uint32_t port_id) {
  // With the highest bit set the QP's own key is sent.
  const uint32_t qkey = m.request.remote_qkey >> 31 != 0 ? own.qkey : m.request.remote_qkey;
  return dest.qp_num.load(std::memory_order_acquire) == qpn && dest.type == IBV_QPT_UD &&
         responds(dest.state.load(std::memory_order_relaxed)) && dest.port_id == port_id && dest.qkey == qkey &&
         (dest.pkey & 0x7fff) == (own.pkey & 0x7fff);
}

void deliver_datagram(const Message& m, const QpShared& own, unsigned slot_number, Slot& slot, QpShared& dest) {
  const uint32_t incarnation = slot.header.incarnation.load(std::memory_order_acquire);
  if (!m.fabric.believed_alive(slot_number, incarnation)) return;
  engine::introduce(m.fabric, slot_number, slot);
  Unanswered datagram(m, slot, slot_number, incarnation, dest);
  if (!datagram.take(m)) return;

  const SendEntry& request = m.request;
  uint8_t header[sizeof(ibv_grh)] = {};
  if (request.grh != 0) make_header(m.fabric, request, header);
  iovec message[kMaxPieces];
  message[0] = {header, sizeof header};
  std::copy(m.local.begin(), m.local.end(), message + 1);
  CqEntry completion;
  clear_header(completion);
  completion.opcode = static_cast<uint8_t>(IBV_WC_RECV);
  completion.byte_len = request.length + static_cast<uint32_t>(sizeof header);
  completion.src_qp = m.from.base()->qp_num;
  completion.slid = static_cast<uint16_t>(lid_of(m.fabric, own.port_id) | request.dlid_path_bits);
  completion.sl = request.sl;
  completion.pkey_index = dest.pkey_index;
  completion.solicited = (request.flags & IBV_SEND_SOLICITED) != 0;
  completion.imm_or_rkey = request.imm_or_rkey;
  if (request.grh != 0) completion.wc_flags |= IBV_WC_GRH;
  if (has_imm(request.opcode)) completion.wc_flags |= IBV_WC_WITH_IMM;
  datagram.deliver(m, {message, m.local.size() + 1}, completion);
}

struct Member {
  uint32_t slot;
  uint32_t qpn;
};
constexpr unsigned kMembersAtOnce = 64;

// Some of the group's members, and from `next` on; how many. `next` is then where to go on.
unsigned find_members(Fabric& fabric, const ibv_gid& group, uint32_t& next, Member (&members)[kMembersAtOnce]) {
  Hub& hub = fabric.hub();
  unsigned count = 0;
  RobustGuard guard(hub.groups_lock, fabric.stamp());
  const uint32_t end = std::min(hub.groups_end.load(std::memory_order_acquire), kMaxGroupMembers);
  for (; next < end && count < kMembersAtOnce; ++next) {
    const GroupMember& member = hub.groups[next];
    if (member.in_use.load(std::memory_order_acquire) != 0 &&
        std::memcmp(member.group, group.raw, sizeof member.group) == 0 &&
        fabric.believed_alive(member.slot, member.incarnation))
      members[count++] = {member.slot, member.qpn};
  }
  return count;
}

// To all who are attached, the sender too if it is.
void send_to_group(const Message& m, const QpShared& own) {
  if (m.request.grh == 0 || !link_up(m.fabric, own.port_id)) return;
  const ibv_gid& group = static_cast<const Ah*>(m.request.ah)->attr.grh.dgid;
  Member members[kMembersAtOnce];
  uint32_t next = 0;
  while (const unsigned count = find_members(m.fabric, group, next, members))
    for (const Member& member : std::span(members, count)) {
      Slot* slot = m.fabric.peer(member.slot);
      if (slot == nullptr) continue;
      QpShared& dest = slot->qps[index_of_qpn(member.qpn)];
      RobustGuard guard(dest.lock, m.fabric.stamp());
      if (accepts(m, own, dest, member.qpn, dest.port_id) && link_up(m.fabric, dest.port_id))
        deliver_datagram(m, own, member.slot, *slot, dest);
    }
}

}  // namespace

Reply send_datagram(const Message& m) {
  const QpShared& own = *m.from.shared;
  if (own.type == IBV_QPT_RAW_PACKET) return send_frame(m);
  if (m.request.remote_qpn == kMulticastQpn) {
    send_to_group(m, own);
    return {Reply::Ack};
  }
  const unsigned slot_number = slot_of_qpn(m.request.remote_qpn);
  Slot* slot = slot_number != kHubSlot ? m.fabric.peer(slot_number) : nullptr;
  if (slot == nullptr || !link_up(m.fabric, own.port_id) || !link_up(m.fabric, m.request.dest_port_id))
    return {Reply::Ack};
  QpShared& dest = slot->qps[index_of_qpn(m.request.remote_qpn)];
  RobustGuard guard(dest.lock, m.fabric.stamp());
  if (accepts(m, own, dest, m.request.remote_qpn, m.request.dest_port_id))
    deliver_datagram(m, own, slot_number, *slot, dest);
  return {Reply::Ack};
}

}  // namespace softhca
