// SPDX-License-Identifier: BSD-3-Clause
//
// Raw packet queue pairs and flow steering: which frames come to whom. One rule a test.
#include <arpa/inet.h>

#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;

constexpr uint8_t kDst[6] = {1, 0x50, 0x56, 0x19, 0x20, 0xa7};
constexpr uint8_t kOtherDst[6] = {2, 0x50, 0x56, 0x19, 0x20, 0xa7};
constexpr uint8_t kSrc[6] = {0x24, 0x8a, 7, 0xa5, 0x28, 0xc8};
constexpr uint8_t kSrcIp[4] = {1, 1, 1, 1};
constexpr uint8_t kDstIp[4] = {2, 2, 2, 2};

/// An IPv4 frame with the beginning of a TCP or UDP header.
struct Frame {
  std::vector<uint8_t> bytes = std::vector<uint8_t>(100);

  explicit Frame(const uint8_t (&dst)[6] = kDst, bool tagged = false, uint8_t protocol = 17, uint16_t to_port = 5678) {
    std::memcpy(bytes.data(), dst, 6);
    std::memcpy(bytes.data() + 6, kSrc, 6);
    uint8_t* at = bytes.data() + 12;
    if (tagged) at = put(put(at, 0x8100), 0xac0c);
    at = put(at, 0x0800);
    at[0] = 0x45;
    at[8] = 64;
    at[9] = protocol;
    std::memcpy(at + 12, kSrcIp, 4);
    std::memcpy(at + 16, kDstIp, 4);
    put(put(at + 20, 1234), to_port);
  }
  static uint8_t* put(uint8_t* at, uint16_t value) {
    at[0] = static_cast<uint8_t>(value >> 8);
    at[1] = static_cast<uint8_t>(value);
    return at + 2;
  }
};

/// Rules for ibv_create_flow.
struct Rule {
  alignas(8) uint8_t bytes[512] = {};
  ibv_flow_attr& attr = *reinterpret_cast<ibv_flow_attr*>(bytes);

  explicit Rule(ibv_flow_attr_type type = IBV_FLOW_ATTR_NORMAL, uint16_t priority = 0) {
    attr.type = type;
    attr.size = sizeof attr;
    attr.priority = priority;
    attr.port = 1;
  }
  template <typename Spec>
  Rule& with(ibv_flow_spec_type type, Spec spec) {
    spec.type = type;
    spec.size = sizeof spec;
    std::memcpy(bytes + attr.size, &spec, sizeof spec);
    attr.size = static_cast<uint16_t>(attr.size + sizeof spec);
    ++attr.num_of_specs;
    return *this;
  }
  Rule& to(const uint8_t (&dst)[6]) {
    ibv_flow_spec_eth eth{};
    std::memcpy(eth.val.dst_mac, dst, 6);
    std::memset(eth.mask.dst_mac, 0xff, 6);
    return with(IBV_FLOW_SPEC_ETH, eth);
  }
  Rule& port(ibv_flow_spec_type type, uint16_t number) {
    ibv_flow_spec_tcp_udp spec{};
    spec.val.dst_port = htons(number);
    spec.mask.dst_port = 0xffff;
    return with(type, spec);
  }
};

struct RawWorld : World {
  ibv_qp* sender = make_raw();

  ibv_qp* make_raw() const {
    ibv_qp* qp = make_qp(nullptr, IBV_QPT_RAW_PACKET);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
    ck_assert_int_eq(set_state(qp, IBV_QPS_RTR), 0);
    ck_assert_int_eq(set_state(qp, IBV_QPS_RTS), 0);
    return qp;
  }
  /// One that has eight receive requests: number n is `first` + n, and its 1 KiB at 4096 + n KiB.
  ibv_qp* receiver(uint64_t first = 10) const {
    ibv_qp* qp = make_raw();
    for (uint64_t i = 0; i < 8; ++i) ck_assert_int_eq(post_recv(qp, first + i, 4096 + 1024 * i, 1024), 0);
    return qp;
  }
  ibv_flow* steer(ibv_qp* qp, const Rule& rule) const {
    ibv_flow* flow = ibv_create_flow(qp, &const_cast<Rule&>(rule).attr);
    ck_assert_ptr_nonnull(flow);
    return flow;
  }
  /// Sends it, and gives the completions of receivers.
  std::vector<ibv_wc> send(const Frame& frame) const {
    std::memcpy(memory.data(), frame.bytes.data(), frame.bytes.size());
    ck_assert_int_eq(post_send(sender, 1, 0, static_cast<uint32_t>(frame.bytes.size())), 0);
    std::vector<ibv_wc> received;
    for (bool sent = false; !sent;) {  // what it brings is there before it completes
      const ibv_wc wc = next();
      ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
      sent = wc.wr_id == 1;
      if (!sent) received.push_back(wc);
    }
    return received;
  }
  size_t copies_of(const Frame& frame) const { return send(frame).size(); }
};

START_TEST(a_whole_frame) {
  RawWorld w;
  ibv_qp* qp = w.receiver();
  ck_assert_uint_eq(w.copies_of(Frame()), 0);  // nobody has asked for it
  w.steer(qp, Rule().to(kDst));
  const Frame frame;
  const auto got = w.send(frame);
  ck_assert_uint_eq(got.size(), 1);
  ck_assert(got[0].wr_id == 10 && got[0].opcode == IBV_WC_RECV && got[0].qp_num == qp->qp_num);
  ck_assert_uint_eq(got[0].byte_len, frame.bytes.size());
  ck_assert_int_eq(std::memcmp(w.memory.data() + 4096, frame.bytes.data(), frame.bytes.size()), 0);
  ck_assert_uint_eq(w.copies_of(Frame(kOtherDst)), 0);
}
END_TEST

START_TEST(addresses_and_ports) {
  RawWorld w;
  ibv_flow_spec_ipv4_ext ip{};
  std::memcpy(&ip.val.dst_ip, kDstIp, 4);
  ip.mask.dst_ip = UINT32_MAX;
  ip.val.ttl = 64;
  ip.mask.ttl = 0xff;
  ibv_flow* flow = w.steer(w.receiver(), Rule().with(IBV_FLOW_SPEC_IPV4_EXT, ip).port(IBV_FLOW_SPEC_UDP, 5678));
  ck_assert_uint_eq(w.copies_of(Frame()), 1);
  ck_assert_uint_eq(w.copies_of(Frame(kDst, true)), 1);      // behind a VLAN tag
  ck_assert_uint_eq(w.copies_of(Frame(kDst, false, 6)), 0);  // TCP
  ck_assert_uint_eq(w.copies_of(Frame(kDst, false, 17, 80)), 0);
  ck_assert_int_eq(ibv_destroy_flow(flow), 0);
  ck_assert_uint_eq(w.copies_of(Frame()), 0);
}
END_TEST

START_TEST(tags) {
  RawWorld w;
  ibv_flow_spec_eth eth{};
  eth.val.vlan_tag = htons(0x0c0c);
  eth.mask.vlan_tag = htons(0x0fff);
  w.steer(w.receiver(), Rule().with(IBV_FLOW_SPEC_ETH, eth));
  ck_assert_uint_eq(w.copies_of(Frame(kDst, true)), 1);
  ck_assert_uint_eq(w.copies_of(Frame()), 0);
}
END_TEST

START_TEST(ipv6) {
  RawWorld w;
  Frame frame;
  uint8_t* ip = Frame::put(frame.bytes.data() + 12, 0x86dd);
  std::memset(ip, 0, 60);
  ip[0] = 0x60;
  ip[6] = 6;
  ip[8 + 15] = 7;   // ::7
  ip[24 + 15] = 8;  // ::8
  Frame::put(ip + 42, 80);
  ibv_flow_spec_ipv6 spec{};
  spec.val.src_ip[15] = 7;
  spec.val.dst_ip[15] = 8;
  std::memset(spec.mask.src_ip, 0xff, 16);
  std::memset(spec.mask.dst_ip, 0xff, 16);
  w.steer(w.receiver(), Rule().with(IBV_FLOW_SPEC_IPV6, spec).port(IBV_FLOW_SPEC_TCP, 80));
  ck_assert_uint_eq(w.copies_of(frame), 1);
  ip[24 + 15] = 9;
  ck_assert_uint_eq(w.copies_of(frame), 0);
  ck_assert_uint_eq(w.copies_of(Frame()), 0);
}
END_TEST

/// The lowest number decides; of equal ones all get it, and a sniffer always.
START_TEST(priorities) {
  RawWorld w;
  ibv_qp *first = w.receiver(10), *second = w.receiver(20), *third = w.receiver(30);
  w.steer(first, Rule(IBV_FLOW_ATTR_NORMAL, 2).to(kDst));
  ibv_flow* better = w.steer(second, Rule(IBV_FLOW_ATTR_NORMAL, 1).to(kDst));
  auto got = w.send(Frame());
  ck_assert(got.size() == 1 && got[0].qp_num == second->qp_num);
  ck_assert_int_eq(ibv_destroy_flow(better), 0);
  got = w.send(Frame());
  ck_assert(got.size() == 1 && got[0].qp_num == first->qp_num);
  w.steer(third, Rule(IBV_FLOW_ATTR_NORMAL, 2).to(kDst));
  ck_assert_uint_eq(w.copies_of(Frame()), 2);
  w.steer(second, Rule(IBV_FLOW_ATTR_SNIFFER));
  ck_assert_uint_eq(w.copies_of(Frame()), 3);
  got = w.send(Frame(kOtherDst));
  ck_assert(got.size() == 1 && got[0].qp_num == second->qp_num);
}
END_TEST

START_TEST(what_no_rule_takes) {
  RawWorld w;
  ibv_qp *all = w.receiver(10), *multicast = w.receiver(20), *one = w.receiver(30);
  w.steer(all, Rule(IBV_FLOW_ATTR_ALL_DEFAULT));
  w.steer(multicast, Rule(IBV_FLOW_ATTR_MC_DEFAULT));
  auto got = w.send(Frame(kOtherDst));
  ck_assert(got.size() == 1 && got[0].qp_num == all->qp_num);
  got = w.send(Frame(kDst));
  ck_assert(got.size() == 1 && got[0].qp_num == multicast->qp_num);
  w.steer(one, Rule(IBV_FLOW_ATTR_NORMAL, UINT16_MAX).to(kDst));
  got = w.send(Frame(kDst));
  ck_assert(got.size() == 1 && got[0].qp_num == one->qp_num);
}
END_TEST

START_TEST(dropped) {
  RawWorld w;
  w.steer(w.receiver(), Rule(IBV_FLOW_ATTR_ALL_DEFAULT));
  w.steer(w.sender, Rule().to(kDst).with(IBV_FLOW_SPEC_ACTION_DROP, ibv_flow_spec_action_drop{}));
  ck_assert_uint_eq(w.copies_of(Frame(kDst)), 0);
  ck_assert_uint_eq(w.copies_of(Frame(kOtherDst)), 1);
}
END_TEST

START_TEST(rules_that_are_refused) {
  RawWorld w;
  const auto refused = [&](Rule& rule, int error, ibv_qp* qp = nullptr) {
    errno = 0;
    return ibv_create_flow(qp != nullptr ? qp : w.sender, &rule.attr) == nullptr && errno == error;
  };
  Rule none, port, flags, cut, unknown, good;
  port.to(kDst).attr.port = 9;
  flags.to(kDst).attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
  ibv_flow_spec_eth short_one{};
  cut.with(IBV_FLOW_SPEC_ETH, short_one);
  cut.bytes[sizeof(ibv_flow_attr) + offsetof(ibv_flow_spec_eth, size)] -= 1;
  unknown.with(IBV_FLOW_SPEC_ESP, ibv_flow_spec_esp{});
  good.to(kDst);
  ck_assert(refused(none, EINVAL) && refused(port, EINVAL) && refused(cut, EINVAL));
  ck_assert(refused(flags, EOPNOTSUPP) && refused(unknown, EOPNOTSUPP));
  ck_assert(refused(good, EINVAL, w.make_qp()));
  // Frames are as long as the link takes them, and there are no other requests.
  ck_assert_int_eq(w.post_send(w.sender, 1, 0, 4096 + 19), EINVAL);
  ck_assert_int_eq(w.post_rdma(w.sender, IBV_WR_RDMA_WRITE, 1, 8, w.address(4096), w.mr->rkey), EINVAL);
}
END_TEST

/// Its number is another's soon, and the rules would be that one's.
START_TEST(a_queue_pair_with_rules_stays) {
  RawWorld w;
  Rule rule;
  rule.to(kDst);
  ibv_flow* const flow = ibv_create_flow(w.sender, &rule.attr);
  ck_assert_ptr_nonnull(flow);
  ck_assert_int_eq(ibv_destroy_qp(w.sender), EBUSY);
  ck_assert_int_eq(ibv_destroy_flow(flow), 0);
  ck_assert_int_eq(ibv_destroy_qp(w.sender), 0);
}
END_TEST

START_TEST(not_on_infiniband) {
  World w;
  ibv_qp_init_attr attr = w.qp_attributes(IBV_QPT_RAW_PACKET);
  ck_assert(ibv_create_qp(w.pd, &attr) == nullptr && errno == EOPNOTSUPP);
}
END_TEST

bool is_ethernet() {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = ibv_open_device(list[0]);
  ibv_port_attr port{};
  const bool is = ibv_query_port(context, 1, &port) == 0 && port.link_layer == IBV_LINK_LAYER_ETHERNET;
  ibv_close_device(context);
  ibv_free_device_list(list);
  return is;
}

}  // namespace

int main() {
  if (!have_device()) return 77;
  if (!is_ethernet()) return fabric::test::run_suite("softhca_raw_packet", {not_on_infiniband});
  return fabric::test::run_suite(
      "softhca_raw_packet", {a_whole_frame, addresses_and_ports, tags, ipv6, priorities, what_no_rule_takes, dropped,
                             rules_that_are_refused, a_queue_pair_with_rules_stays});
}
