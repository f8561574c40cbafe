// SPDX-License-Identifier: BSD-3-Clause
//
// Multicast: datagrams to groups, by GID and by the connection manager. One rule a test.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;

constexpr uint32_t kGroupQpn = 0xffffff;
constexpr uint32_t kHeader = 40;
constexpr ibv_gid kGroup{{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}};
constexpr ibv_gid kOther{{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8}};

struct GroupWorld : World {
  ibv_qp* make_datagram(uint32_t qkey = 11) const {
    ibv_qp* qp = make_qp(nullptr, IBV_QPT_UD);
    ibv_qp_attr attr = init_attributes();
    attr.qkey = qkey;
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    ck_assert_int_eq(set_state(qp, IBV_QPS_RTR), 0);
    attr.qp_state = IBV_QPS_RTS;
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return qp;
  }
  /// With receive requests; the first message goes to `offset`.
  ibv_qp* member(size_t offset, uint32_t qkey = 11) const {
    ibv_qp* qp = make_datagram(qkey);
    for (uint64_t i = 0; i < 4; ++i) ck_assert_int_eq(post_recv(qp, 10 + i, offset + 512 * i, 512), 0);
    ck_assert_int_eq(ibv_attach_mcast(qp, &kGroup, 0xc001), 0);
    return qp;
  }
  /// How many have got it.
  unsigned send(ibv_qp* from, const ibv_gid& group = kGroup) const {
    ibv_ah_attr path{};
    path.port_num = 1;
    path.is_global = 1;
    path.grh.dgid = group;
    path.grh.hop_limit = 1;
    path.dlid = port.link_layer == IBV_LINK_LAYER_INFINIBAND ? 0xc001 : 0;
    ibv_ah* ah = ibv_create_ah(pd, &path);
    ck_assert_ptr_nonnull(ah);
    ibv_sge list = sge(0, 64);
    ibv_send_wr wr{};
    wr.wr_id = 1;
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {ah, kGroupQpn, 11};
    ck_assert_int_eq(post(from, wr), 0);
    unsigned received = 0;
    for (bool sent = false; !sent;) {  // what it brings is there before it completes
      const ibv_wc wc = next();
      ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
      sent = wc.wr_id == 1;
      if (!sent) ++received;
    }
    ck_assert_int_eq(ibv_destroy_ah(ah), 0);
    return received;
  }
};

START_TEST(all_who_are_attached) {
  GroupWorld w;
  ibv_qp *sender = w.make_datagram(), *a = w.member(4096), *b = w.member(8192);
  w.member(12288, 12);  // another Q_Key
  w.memory[0] = 0x5a;
  ck_assert_uint_eq(w.send(sender), 2);
  ck_assert(w.memory[4096 + kHeader] == 0x5a && w.memory[8192 + kHeader] == 0x5a && w.memory[12288 + kHeader] == 0);
  ck_assert_uint_eq(w.send(sender, kOther), 0);
  ck_assert_uint_eq(w.send(a), 2);  // itself too
  ck_assert_int_eq(ibv_detach_mcast(a, &kGroup, 0xc001), 0);
  ck_assert_uint_eq(w.send(sender), 1);
  ck_assert_int_eq(ibv_destroy_qp(b), 0);
  ck_assert_uint_eq(w.send(sender), 0);
}
END_TEST

START_TEST(attached_once) {
  GroupWorld w;
  ibv_qp *sender = w.make_datagram(), *a = w.member(4096);
  ck_assert_int_eq(ibv_attach_mcast(a, &kGroup, 0xc001), 0);
  ck_assert_uint_eq(w.send(sender), 1);
  ck_assert_int_eq(ibv_detach_mcast(a, &kGroup, 0xc001), 0);
  ck_assert_int_eq(ibv_detach_mcast(a, &kGroup, 0xc001), EINVAL);
}
END_TEST

START_TEST(what_is_refused) {
  GroupWorld w;
  ck_assert_int_gt(w.limits.max_mcast_grp, 0);
  ck_assert_int_eq(ibv_attach_mcast(w.make_datagram(), &w.gid, 0), EINVAL);
  ck_assert_int_eq(ibv_attach_mcast(w.make_qp(), &kGroup, 0), EINVAL);
}
END_TEST

/// Two ids join a group by its IP address; one sends to both.
START_TEST(by_the_connection_manager) {
  rdma_event_channel* channel = rdma_create_event_channel();
  ck_assert_ptr_nonnull(channel);
  sockaddr_in group{}, here{};
  group.sin_family = here.sin_family = AF_INET;
  inet_pton(AF_INET, "239.1.2.3", &group.sin_addr);
  inet_pton(AF_INET, "127.64.0.1", &here.sin_addr);
  auto* address = reinterpret_cast<sockaddr*>(&group);
  static uint8_t memory[4096];
  rdma_cm_id* ids[2];
  ibv_mr* mr[2];
  ibv_ah_attr path{};
  uint32_t qkey = 0;
  const auto expect = [&](rdma_cm_event_type type) {
    rdma_cm_event* event = nullptr;
    ck_assert_int_eq(rdma_get_cm_event(channel, &event), 0);
    ck_assert_str_eq(rdma_event_str(event->event), rdma_event_str(type));
    if (type == RDMA_CM_EVENT_MULTICAST_JOIN) {
      path = event->param.ud.ah_attr;
      qkey = event->param.ud.qkey;
      ck_assert_uint_eq(event->param.ud.qp_num, kGroupQpn);
    }
    ck_assert_int_eq(rdma_ack_cm_event(event), 0);
  };
  for (unsigned i = 0; i < 2; ++i) {
    ck_assert_int_eq(rdma_create_id(channel, &ids[i], nullptr, RDMA_PS_UDP), 0);
    ck_assert_int_eq(rdma_join_multicast(ids[i], address, nullptr), -1);  // it has no port yet
    ck_assert_int_eq(rdma_resolve_addr(ids[i], reinterpret_cast<sockaddr*>(&here), address, 1000), 0);
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    ibv_qp_init_attr attr{};
    attr.cap = {4, 4, 1, 1, 0};
    attr.qp_type = IBV_QPT_UD;
    ck_assert_int_eq(rdma_create_qp(ids[i], nullptr, &attr), 0);
    mr[i] = ibv_reg_mr(ids[i]->pd, memory + 2048 * i, 2048, IBV_ACCESS_LOCAL_WRITE);
    ibv_sge sink{reinterpret_cast<uint64_t>(memory + 2048 * i), 256, mr[i]->lkey};
    ibv_recv_wr receive{5, nullptr, &sink, 1};
    ibv_recv_wr* bad = nullptr;
    ck_assert_int_eq(ibv_post_recv(ids[i]->qp, &receive, &bad), 0);
    ck_assert_int_eq(rdma_leave_multicast(ids[i], address), -1);
    ck_assert_int_eq(rdma_join_multicast(ids[i], address, nullptr), 0);
    expect(RDMA_CM_EVENT_MULTICAST_JOIN);
  }
  memory[1024] = 0x77;
  ibv_sge source{reinterpret_cast<uint64_t>(memory + 1024), 64, mr[0]->lkey};
  ibv_send_wr send{};
  send.sg_list = &source;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  send.wr.ud = {ibv_create_ah(ids[0]->pd, &path), kGroupQpn, qkey};
  const auto send_it = [&] {
    ck_assert_int_eq(World::post(ids[0]->qp, send), 0);
    ck_assert_int_eq(World::next(ids[0]->send_cq).status, IBV_WC_SUCCESS);
  };
  send_it();
  for (unsigned i = 0; i < 2; ++i) {
    ck_assert_int_eq(World::next(ids[i]->recv_cq).status, IBV_WC_SUCCESS);
    ck_assert_uint_eq(memory[2048 * i + kHeader], 0x77);
  }
  ck_assert_int_eq(rdma_leave_multicast(ids[1], address), 0);
  send_it();
  ibv_wc wc{};
  ck_assert_int_eq(ibv_poll_cq(ids[1]->recv_cq, 1, &wc), 0);
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite("softhca_multicast",
                                 {all_who_are_attached, attached_once, what_is_refused, by_the_connection_manager});
}
