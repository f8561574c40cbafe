// SPDX-License-Identifier: BSD-3-Clause
// Raw packet queue pairs: whole Ethernet frames. The ports of a fabric are those of a hub: each sees every frame, the sender's
// own too, and the rules of the port say which queue pairs get it (verbs/flow.cc).
#include <netinet/in.h>

#include <algorithm>

#include "transport/engine.h"
#include "transport/message.h"
#include "transport/transport.h"
#include "transport/unanswered.h"

namespace softhca {
namespace {

constexpr uint16_t kVlan = 0x8100;
constexpr uint16_t kIpv4 = 0x0800;
constexpr uint16_t kIpv6 = 0x86dd;
constexpr size_t kEthernetBytes = 14;
constexpr size_t kVlanBytes = 4;
constexpr size_t kIpv4Bytes = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kPortsBytes = 4;
constexpr size_t kMostHeaders = kEthernetBytes + kVlanBytes + 60 + kPortsBytes;  // an IPv4 header has up to 60 bytes
constexpr unsigned kMostTargets = 64;                                            // of one frame

// The first bytes of a frame.
struct Headers {
  uint8_t bytes[kMostHeaders];
  size_t length = 0;

  explicit Headers(std::span<const iovec> frame) {
    for (const iovec& piece : frame) {
      const size_t n = std::min(piece.iov_len, sizeof bytes - length);
      std::memcpy(bytes + length, piece.iov_base, n);
      length += n;
    }
  }
  bool has(size_t offset, size_t count) const { return offset + count <= length; }
  uint16_t number_at(size_t offset) const { return static_cast<uint16_t>(bytes[offset] << 8 | bytes[offset + 1]); }
  template <size_t kBytes>
  void get(uint8_t (&to)[kBytes], size_t offset, size_t count = kBytes) const {
    std::memcpy(to, bytes + offset, count);
  }
};

// What is behind the IP header that ends there.
void add_ports(const Headers& h, size_t at, PacketKey& key) {
  if ((key.protocol != IPPROTO_TCP && key.protocol != IPPROTO_UDP) || !h.has(at, kPortsBytes)) return;
  key.transport = key.protocol;
  h.get(key.src_port, at);
  h.get(key.dst_port, at + 2);
}

PacketKey key_of(const Headers& h) {
  PacketKey key{};
  h.get(key.dst_mac, 0);
  h.get(key.src_mac, 6);
  size_t at = kEthernetBytes - 2;
  if (h.number_at(at) == kVlan && h.has(at, kVlanBytes + 2)) {
    h.get(key.vlan, at + 2);
    at += kVlanBytes;
  }
  h.get(key.ether_type, at);
  const uint16_t type = h.number_at(at);
  at += 2;
  if (type == kIpv4 && h.has(at, kIpv4Bytes)) {
    key.ip = 4;
    key.traffic_class = h.bytes[at + 1];
    key.hop_limit = h.bytes[at + 8];
    key.protocol = h.bytes[at + 9];
    h.get(key.src_ip, at + 12, 4);
    h.get(key.dst_ip, at + 16, 4);
    const bool first_fragment = (h.number_at(at + 6) & 0x1fff) == 0;
    if (first_fragment) add_ports(h, at + size_t{h.bytes[at] & 15U} * 4, key);
  } else if (type == kIpv6 && h.has(at, kIpv6Bytes)) {
    key.ip = 6;
    key.traffic_class = static_cast<uint8_t>(h.bytes[at] << 4 | h.bytes[at + 1] >> 4);
    h.get(key.flow_label, at);
    key.flow_label[0] = 0;
    key.flow_label[1] &= 15;
    key.protocol = h.bytes[at + 6];
    key.hop_limit = h.bytes[at + 7];
    h.get(key.src_ip, at + 8);
    h.get(key.dst_ip, at + 24);
    add_ports(h, at + kIpv6Bytes, key);
  }
  return key;
}

bool matches(const PacketKey& key, const FlowShared& flow) {
  const auto* k = reinterpret_cast<const uint8_t*>(&key);
  const auto* value = reinterpret_cast<const uint8_t*>(&flow.value);
  const auto* mask = reinterpret_cast<const uint8_t*>(&flow.mask);
  for (size_t i = 0; i < sizeof key; ++i)
    if (((k[i] ^ value[i]) & mask[i]) != 0) return false;
  return true;
}

struct Target {
  uint32_t slot;
  uint32_t incarnation;
  uint32_t qpn;
};

// Who gets the frame.
unsigned find_targets(Fabric& fabric, const PacketKey& key, Target (&targets)[kMostTargets]) {
  Hub& hub = fabric.hub();
  uint32_t best[kPortIds];
  std::fill(std::begin(best), std::end(best), kRankOfSniffers);
  unsigned count = 0;
  RobustGuard guard(hub.flows_lock, fabric.stamp());
  const std::span all(hub.flows, std::min(hub.flows_end.load(std::memory_order_acquire), kMaxFlows));
  const auto counts = [&](const FlowShared& flow) {
    return flow.in_use.load(std::memory_order_acquire) != 0 && link_up(fabric, flow.port_id) &&
           fabric.believed_alive(flow.slot, flow.incarnation) && matches(key, flow);
  };
  for (const FlowShared& flow : all)
    if (counts(flow)) best[flow.port_id] = std::min(best[flow.port_id], flow.rank);
  for (const FlowShared& flow : all) {
    if (flow.qpn == 0 || !counts(flow) || (flow.rank != best[flow.port_id] && flow.rank != kRankOfSniffers)) continue;
    // Two rules for one queue pair bring it one copy.
    const auto is_there = [&flow](const Target& t) { return t.qpn == flow.qpn; };
    if (count == kMostTargets || std::any_of(targets, targets + count, is_there)) continue;
    targets[count++] = {flow.slot, flow.incarnation, flow.qpn};
  }
  return count;
}

// The destination's lock is held.
void deliver_frame(const Message& m, const Target& target, Slot& slot, QpShared& dest) {
  Unanswered frame(m, slot, target.slot, target.incarnation, dest);
  if (!frame.take(m)) return;
  CqEntry completion;
  clear_header(completion);
  completion.opcode = static_cast<uint8_t>(IBV_WC_RECV);
  completion.byte_len = m.request.length;
  completion.solicited = (m.request.flags & IBV_SEND_SOLICITED) != 0;
  frame.deliver(m, m.local, completion);
}

}  // namespace

Reply send_frame(const Message& m) {
  const Headers headers(m.local);
  if (headers.length < kEthernetBytes || !link_up(m.fabric, m.from.shared->port_id)) return {Reply::Ack};
  Target targets[kMostTargets];
  const unsigned count = find_targets(m.fabric, key_of(headers), targets);
  for (const Target& target : std::span(targets, count)) {
    Slot* slot = m.fabric.peer(target.slot);
    if (slot == nullptr) continue;
    engine::introduce(m.fabric, target.slot, *slot);
    QpShared& dest = slot->qps[index_of_qpn(target.qpn)];
    RobustGuard guard(dest.lock, m.fabric.stamp());
    if (dest.qp_num.load(std::memory_order_acquire) == target.qpn && dest.type == IBV_QPT_RAW_PACKET &&
        responds(dest.state.load(std::memory_order_relaxed)))
      deliver_frame(m, target, *slot, dest);
  }
  return {Reply::Ack};
}

}  // namespace softhca
