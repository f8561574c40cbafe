// SPDX-License-Identifier: BSD-3-Clause
// Flow steering (ibv_create_flow(3)): rules that say which frames a raw packet queue pair gets.
#include <netinet/in.h>

#include <cstring>
#include <span>

#include "verbs/call.h"
#include "verbs/verbs_ops.h"

namespace softhca {
namespace {

// Behind all priorities that a program can give.
constexpr uint32_t kRankOfMulticast = 1 << 16;
constexpr uint32_t kRankOfAll = 2 << 16;

struct Flow : ibv_flow {
  uint32_t index;  // in the hub
  Qp* of;
};

// One field of a rule: value and mask lie one after the other in a specification.
template <size_t kBytes, typename Field>
void add(uint8_t (&value)[kBytes], uint8_t (&mask)[kBytes], const Field& from, const Field& from_mask) {
  static_assert(sizeof from <= kBytes);
  std::memcpy(value, &from, sizeof from);
  std::memcpy(mask, &from_mask, sizeof from);
}
void add(uint8_t& value, uint8_t& mask, uint8_t from, uint8_t from_mask) {
  value = from;
  mask = from_mask;
}
// It has to be of that kind.
void require(uint8_t& value, uint8_t& mask, uint8_t kind) {
  add(value, mask, kind, 0xff);
}

template <typename Spec>
void add_ipv4(const Spec& spec, PacketKey& value, PacketKey& mask) {
  require(value.ip, mask.ip, 4);
  add(value.src_ip, mask.src_ip, spec.val.src_ip, spec.mask.src_ip);
  add(value.dst_ip, mask.dst_ip, spec.val.dst_ip, spec.mask.dst_ip);
}

// What one specification adds. 0 or an errno.
int add_spec(const ibv_flow_spec& spec, FlowShared& flow) {
  PacketKey& value = flow.value;
  PacketKey& mask = flow.mask;
  const auto sized = [&](const auto& form) { return spec.hdr.size == sizeof form; };
  switch (spec.hdr.type) {
    case IBV_FLOW_SPEC_ETH:
      if (!sized(spec.eth)) return EINVAL;
      add(value.dst_mac, mask.dst_mac, spec.eth.val.dst_mac, spec.eth.mask.dst_mac);
      add(value.src_mac, mask.src_mac, spec.eth.val.src_mac, spec.eth.mask.src_mac);
      add(value.ether_type, mask.ether_type, spec.eth.val.ether_type, spec.eth.mask.ether_type);
      add(value.vlan, mask.vlan, spec.eth.val.vlan_tag, spec.eth.mask.vlan_tag);
      return 0;
    case IBV_FLOW_SPEC_IPV4:
      if (!sized(spec.ipv4)) return EINVAL;
      add_ipv4(spec.ipv4, value, mask);
      return 0;
    case IBV_FLOW_SPEC_IPV4_EXT:
      if (!sized(spec.ipv4_ext)) return EINVAL;
      if (spec.ipv4_ext.mask.flags != 0) return EOPNOTSUPP;
      add_ipv4(spec.ipv4_ext, value, mask);
      add(value.protocol, mask.protocol, spec.ipv4_ext.val.proto, spec.ipv4_ext.mask.proto);
      add(value.traffic_class, mask.traffic_class, spec.ipv4_ext.val.tos, spec.ipv4_ext.mask.tos);
      add(value.hop_limit, mask.hop_limit, spec.ipv4_ext.val.ttl, spec.ipv4_ext.mask.ttl);
      return 0;
    case IBV_FLOW_SPEC_IPV6:
      if (!sized(spec.ipv6)) return EINVAL;
      require(value.ip, mask.ip, 6);
      add(value.src_ip, mask.src_ip, spec.ipv6.val.src_ip, spec.ipv6.mask.src_ip);
      add(value.dst_ip, mask.dst_ip, spec.ipv6.val.dst_ip, spec.ipv6.mask.dst_ip);
      add(value.flow_label, mask.flow_label, spec.ipv6.val.flow_label, spec.ipv6.mask.flow_label);
      add(value.protocol, mask.protocol, spec.ipv6.val.next_hdr, spec.ipv6.mask.next_hdr);
      add(value.traffic_class, mask.traffic_class, spec.ipv6.val.traffic_class, spec.ipv6.mask.traffic_class);
      add(value.hop_limit, mask.hop_limit, spec.ipv6.val.hop_limit, spec.ipv6.mask.hop_limit);
      return 0;
    case IBV_FLOW_SPEC_TCP:
    case IBV_FLOW_SPEC_UDP:
      if (!sized(spec.tcp_udp)) return EINVAL;
      require(value.transport, mask.transport, spec.hdr.type == IBV_FLOW_SPEC_TCP ? IPPROTO_TCP : IPPROTO_UDP);
      add(value.src_port, mask.src_port, spec.tcp_udp.val.src_port, spec.tcp_udp.mask.src_port);
      add(value.dst_port, mask.dst_port, spec.tcp_udp.val.dst_port, spec.tcp_udp.mask.dst_port);
      return 0;
    case IBV_FLOW_SPEC_ACTION_DROP:
      flow.qpn = 0;
      return 0;
    default:
      return EOPNOTSUPP;
  }
}

int set_rank(const ibv_flow_attr& attr, FlowShared& flow) {
  switch (attr.type) {
    case IBV_FLOW_ATTR_NORMAL:
      flow.rank = attr.priority;
      return attr.num_of_specs != 0 ? 0 : EINVAL;
    case IBV_FLOW_ATTR_MC_DEFAULT:
      flow.rank = kRankOfMulticast;
      flow.value.dst_mac[0] = flow.mask.dst_mac[0] = 1;
      break;
    case IBV_FLOW_ATTR_ALL_DEFAULT:
      flow.rank = kRankOfAll;
      break;
    case IBV_FLOW_ATTR_SNIFFER:
      flow.rank = kRankOfSniffers;
      break;
    default:
      return EINVAL;
  }
  return attr.num_of_specs == 0 ? 0 : EINVAL;
}

// The whole rule. 0 or an errno. The specifications say how long they are; as in libibverbs, nobody looks at ibv_flow_attr::size.
int compile(const ibv_flow_attr& attr, FlowShared& flow) {
  if (attr.comp_mask != 0) return EINVAL;
  if (attr.flags != 0) return EOPNOTSUPP;
  if (const int error = set_rank(attr, flow)) return error;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&attr);
  size_t at = sizeof attr;
  for (unsigned i = 0; i < attr.num_of_specs; ++i) {
    ibv_flow_spec spec{};
    std::memcpy(&spec.hdr, bytes + at, sizeof spec.hdr);
    if (spec.hdr.size < sizeof spec.hdr || spec.hdr.size > sizeof spec) return EINVAL;
    std::memcpy(static_cast<void*>(&spec), bytes + at, spec.hdr.size);
    at += spec.hdr.size;
    if (const int error = add_spec(spec, flow)) return error;
  }
  return 0;
}

// `flows_lock` is held. A free place, or that of a process that is gone; kMaxFlows: none.
uint32_t find_place(Fabric& fabric) {
  Hub& hub = fabric.hub();
  const uint32_t end = hub.flows_end.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < end; ++i) {
    const FlowShared& flow = hub.flows[i];
    if (flow.in_use.load(std::memory_order_relaxed) == 0 || !fabric.alive(flow.slot, flow.incarnation)) return i;
  }
  if (end < kMaxFlows) hub.flows_end.store(end + 1, std::memory_order_release);
  return end;
}

}  // namespace

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) {
  Context& owner = *Context::of(qp->context);
  if (const int error = cannot_use(owner)) return fail(error);
  if (qp->qp_type != IBV_QPT_RAW_PACKET || !valid_port(attr->port)) return fail(EINVAL);
  Fabric& fabric = *Fabric::get();
  FlowShared rule{};
  rule.qpn = qp->qp_num;
  if (const int error = compile(*attr, rule)) return fail(error);
  auto flow = make<Flow>();
  if (flow == nullptr) return fail(ENOMEM);
  {
    RobustGuard guard(fabric.hub().flows_lock, fabric.stamp());
    flow->index = find_place(fabric);
    if (flow->index == kMaxFlows) return fail(ENOMEM);
    FlowShared& shared = fabric.hub().flows[flow->index];
    shared.in_use.store(0, std::memory_order_relaxed);
    shared.slot = fabric.slot();
    shared.incarnation = fabric.incarnation();
    shared.qpn = rule.qpn;
    shared.port_id = port_id_on(owner, attr->port);
    shared.rank = rule.rank;
    shared.value = rule.value;
    shared.mask = rule.mask;
    shared.in_use.store(1, std::memory_order_release);
  }
  flow->of = Qp::of(qp);
  flow->of->flows.fetch_add(1);
  flow->context = qp->context;
  flow->handle = flow->index;
  owner.objects.fetch_add(1);
  return flow.release();
}

int destroy_flow(ibv_flow* flow) {
  if (const int error = in_child(flow->context)) return error;
  Fabric& fabric = *Fabric::get();
  auto* mine = static_cast<Flow*>(flow);
  {
    RobustGuard guard(fabric.hub().flows_lock, fabric.stamp());
    fabric.hub().flows[mine->index].in_use.store(0, std::memory_order_release);
  }
  mine->of->flows.fetch_sub(1);
  Context::of(flow->context)->objects.fetch_sub(1);
  delete mine;
  return 0;
}

}  // namespace softhca
