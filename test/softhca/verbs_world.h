// SPDX-License-Identifier: BSD-3-Clause
//
// Two QPs of one process, connected to each other, on the first device that there is. Written against the public verbs API
// alone. Every test runs in a process of its own (Check forks), so that a test may leave things behind.
#pragma once

#include <infiniband/verbs.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "test/unit/check_main.h"

namespace verbs_test {

constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr unsigned kQpAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtsMask =
    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT;
constexpr int kRtsMaskTarget = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
constexpr uint32_t kPsn = 77;
/// How long something may take that happens at once when the machine is idle: a test that waits for ever says where, then.
constexpr std::chrono::milliseconds kPatience{100'000};

/// Whether there is a device whose QPs a program may connect itself (not iWARP). Leaves nothing open.
inline bool have_device() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  const bool usable = list != nullptr && count > 0 && list[0]->transport_type == IBV_TRANSPORT_IB;
  if (list != nullptr) ibv_free_device_list(list);
  return usable;
}

struct World {
  ibv_context* context;
  ibv_device_attr limits{};
  ibv_port_attr port{};
  ibv_gid gid{};
  ibv_pd* pd = nullptr;
  // Never freed: the objects stay behind too, and requests that are under way still use it.
  std::vector<uint8_t>& memory = *new std::vector<uint8_t>(16384);
  ibv_mr* mr = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;

  /// On a device that is open already, or the first.
  explicit World(ibv_context* opened = open_first()) : context(opened) {
    ck_assert_ptr_nonnull(context);
    ck_assert_int_eq(ibv_query_device(context, &limits), 0);
    ck_assert_int_eq(ibv_query_port(context, 1, &port), 0);
    ck_assert_int_eq(ibv_query_gid(context, 1, 0, &gid), 0);
    pd = ibv_alloc_pd(context);
    ck_assert_ptr_nonnull(pd);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), kAllAccess);
    ck_assert_ptr_nonnull(mr);
    channel = ibv_create_comp_channel(context);
    ck_assert_ptr_nonnull(channel);
    cq = ibv_create_cq(context, 256, this, channel, 0);
    ck_assert_ptr_nonnull(cq);
  }

  static ibv_context* open_first() {
    ibv_device** list = ibv_get_device_list(nullptr);
    ck_assert(list != nullptr && list[0] != nullptr);
    ibv_context* opened = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    return opened;
  }

  uint64_t address(size_t offset) const { return reinterpret_cast<uint64_t>(memory.data() + offset); }
  ibv_sge sge(size_t offset, uint32_t length) const { return {address(offset), length, mr->lkey}; }

  ibv_qp_init_attr qp_attributes(ibv_qp_type type = IBV_QPT_RC) const {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {16, 16, 2, 2, 32};
    attr.qp_type = type;
    attr.sq_sig_all = 1;
    return attr;
  }
  ibv_qp* make_qp(ibv_srq* srq = nullptr, ibv_qp_type type = IBV_QPT_RC) const {
    ibv_qp_init_attr attr = qp_attributes(type);
    attr.srq = srq;
    ibv_qp* qp = ibv_create_qp(pd, &attr);
    ck_assert_ptr_nonnull(qp);
    return qp;
  }

  ibv_qp_attr init_attributes() const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kQpAccess;
    return attr;
  }
  ibv_ah_attr path() const {
    ibv_ah_attr ah{};
    ah.port_num = 1;
    ah.dlid = port.lid;
    if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
      ah.is_global = 1;
      ah.grh.dgid = gid;
      ah.grh.hop_limit = 1;
    }
    return ah;
  }
  ibv_qp_attr rtr_attributes(uint32_t dest) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.ah_attr = path();
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = dest;
    attr.rq_psn = kPsn;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    return attr;
  }
  static ibv_qp_attr rts_attributes() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = kPsn;
    attr.max_rd_atomic = 4;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.timeout = 10;
    return attr;
  }
  void to_init(ibv_qp* qp) const {
    ibv_qp_attr attr = init_attributes();
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, kInitMask), 0);
  }
  void to_rtr(ibv_qp* qp, uint32_t dest) const {
    ibv_qp_attr attr = rtr_attributes(dest);
    const int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, qp->qp_type == IBV_QPT_XRC_SEND ? kRtrMask & ~responder : kRtrMask), 0);
  }
  static void to_rts(ibv_qp* qp) {
    ibv_qp_attr attr = rts_attributes();
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, qp->qp_type == IBV_QPT_XRC_RECV ? kRtsMaskTarget : kRtsMask), 0);
  }
  static int set_state(ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  }
  static ibv_qp_state state_of(ibv_qp* qp) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ck_assert_int_eq(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
  }
  void connect(ibv_qp* a, ibv_qp* b) const {
    to_init(a);
    to_init(b);
    to_rtr(a, b->qp_num);
    to_rtr(b, a->qp_num);
    to_rts(a);
    to_rts(b);
  }
  std::array<ibv_qp*, 2> pair(ibv_srq* srq = nullptr) const {
    const std::array qps{make_qp(srq), make_qp(srq)};
    connect(qps[0], qps[1]);
    return qps;
  }

  int post_recv(ibv_qp* qp, uint64_t wr_id, size_t offset, uint32_t length) const {
    ibv_sge list = sge(offset, length);
    ibv_recv_wr wr{wr_id, nullptr, &list, 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }
  int post_srq_recv(ibv_srq* srq, uint64_t wr_id, size_t offset, uint32_t length) const {
    ibv_sge list = sge(offset, length);
    ibv_recv_wr wr{wr_id, nullptr, &list, 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }
  static int post(ibv_qp* qp, ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
  int post_send(ibv_qp* qp, uint64_t wr_id, size_t offset, uint32_t length) const {
    ibv_sge list = sge(offset, length);
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    return post(qp, wr);
  }
  /// RDMA with `length` bytes at offset 0 of the memory.
  int post_rdma(ibv_qp* qp, ibv_wr_opcode opcode, uint64_t wr_id, uint32_t length, uint64_t remote,
                uint32_t rkey) const {
    ibv_sge list = sge(0, length);
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    return post(qp, wr);
  }

  /// The next completion.
  static ibv_wc next(ibv_cq* from) {
    ibv_wc wc{};
    const auto end = std::chrono::steady_clock::now() + kPatience;
    int n = 0;
    while ((n = ibv_poll_cq(from, 1, &wc)) == 0) ck_assert_msg(std::chrono::steady_clock::now() < end, "no completion");
    ck_assert_int_eq(n, 1);
    return wc;
  }
  ibv_wc next() const { return next(cq); }
  void expect(uint64_t wr_id, ibv_wc_status status) const {
    const ibv_wc wc = next();
    ck_assert_msg(wc.wr_id == wr_id && wc.status == status, "completion %llu: %s; expected %llu: %s",
                  static_cast<unsigned long long>(wc.wr_id), ibv_wc_status_str(wc.status),
                  static_cast<unsigned long long>(wr_id), ibv_wc_status_str(status));
  }
  bool is_empty() const {
    ibv_wc wc{};
    return ibv_poll_cq(cq, 1, &wc) == 0;
  }

  /// Whether a descriptor becomes readable within so many milliseconds.
  static bool readable(int fd, int milliseconds) {
    pollfd p{fd, POLLIN, 0};
    return poll(&p, 1, milliseconds) == 1;
  }
  /// It does, however busy the machine is.
  static bool becomes_readable(int fd) { return readable(fd, static_cast<int>(kPatience.count())); }
  ibv_async_event next_event() const {
    ck_assert_msg(becomes_readable(context->async_fd), "no event");
    ibv_async_event event{};
    ck_assert_int_eq(ibv_get_async_event(context, &event), 0);
    return event;
  }
  /// The next event is that one; it is acknowledged.
  void expect_event(ibv_event_type type) const {
    ibv_async_event event = next_event();
    ck_assert_str_eq(ibv_event_type_str(event.event_type), ibv_event_type_str(type));
    ibv_ack_async_event(&event);
  }
};

}  // namespace verbs_test
