// SPDX-License-Identifier: BSD-3-Clause
//
// The verbs objects of a process of test_softhca_storm. Written against the public verbs API alone.
#pragma once

#include <fcntl.h>

#include <string>

#include "test/softhca/storm_memory.h"

namespace storm {

#define STORM_REQUIRE(condition)                                                                             \
  do {                                                                                                       \
    if (!(condition)) fail(*v_.board, v_.name.c_str(), "%s:%d: not so: %s", __FILE__, __LINE__, #condition); \
  } while (0)

constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

/// What a request is of: the upper byte of its wr_id, with the pair's other process below it.
enum Use : uint64_t { kShareds, kXrcs, kDatagramReceives, kOwns, kRcSends, kXrcSends, kDatagramSends };
constexpr uint64_t id_of(Use use, unsigned peer, uint64_t number) {
  return uint64_t{use} << 56 | uint64_t{peer} << 48 | (number & 0xffffffff);
}

struct Verbs {
  Board* board;
  std::string name;  // of this process, for what it says
  unsigned me;
  uint32_t life;
  Layout* memory;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* buffers = nullptr;
  ibv_mr* targets = nullptr;
  ibv_xrcd* domain = nullptr;
  ibv_srq* shared = nullptr;
  ibv_srq* xrc = nullptr;
  ibv_qp* datagrams = nullptr;
  ibv_ah* ah = nullptr;
  ibv_ah_attr path{};

  Verbs(Board* where, unsigned number, uint32_t its_life, int domain_fd)
      : board(where),
        name("process " + std::to_string(number) + ", life " + std::to_string(its_life)),
        me(number),
        life(its_life),
        memory(Memory::make()) {
    Verbs& v_ = *this;
    STORM_REQUIRE(memory != nullptr);
    ibv_device** list = ibv_get_device_list(nullptr);
    STORM_REQUIRE(list != nullptr && list[0] != nullptr);
    context = ibv_open_device(list[0]);
    STORM_REQUIRE(context != nullptr);
    ibv_free_device_list(list);
    fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
    ibv_port_attr port{};
    STORM_REQUIRE(ibv_query_port(context, 1, &port) == 0);
    path.port_num = 1;
    path.dlid = port.lid;
    if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
      path.is_global = 1;
      STORM_REQUIRE(ibv_query_gid(context, 1, 0, &path.grh.dgid) == 0);
      path.grh.hop_limit = 1;
    }
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 2048, nullptr, nullptr, 0);
    STORM_REQUIRE(pd != nullptr && cq != nullptr);
    buffers = ibv_reg_mr(pd, memory, offsetof(Layout, targets), IBV_ACCESS_LOCAL_WRITE);
    targets = ibv_reg_mr(pd, memory->targets, sizeof memory->targets, kAccess);
    ah = ibv_create_ah(pd, &path);
    STORM_REQUIRE(buffers != nullptr && targets != nullptr && ah != nullptr);
    make_queues(domain_fd);
    make_datagrams();
  }

  ibv_sge sge(const void* at, size_t length) const {
    return {reinterpret_cast<uint64_t>(at), static_cast<uint32_t>(length), buffers->lkey};
  }

  void post_shared(unsigned n) { post_to(shared, kShareds, memory->shared[n], n); }
  void post_xrc(unsigned n) { post_to(xrc, kXrcs, memory->xrc[n], n); }
  void post_datagram(unsigned n) { post_receive(datagrams, kDatagramReceives, 0, n, memory->datagrams[n], 2048); }
  void post_receive(ibv_qp* qp, Use use, unsigned peer, unsigned n, void* at, size_t bytes) {
    Verbs& v_ = *this;
    ibv_sge list = sge(at, bytes);
    ibv_recv_wr wr{id_of(use, peer, n), nullptr, &list, 1};
    ibv_recv_wr* bad = nullptr;
    STORM_REQUIRE(ibv_post_recv(qp, &wr, &bad) == 0);
  }

 private:
  void make_queues(int domain_fd) {
    Verbs& v_ = *this;
    ibv_xrcd_init_attr of{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, domain_fd, O_CREAT};
    domain = ibv_open_xrcd(context, &of);
    STORM_REQUIRE(domain != nullptr);
    ibv_srq_init_attr attributes{};
    attributes.attr = {kShared, 1, 0};
    shared = ibv_create_srq(pd, &attributes);
    ibv_srq_init_attr_ex more{};
    more.attr = {kShared, 1, 0};
    more.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    more.srq_type = IBV_SRQT_XRC;
    more.pd = pd;
    more.xrcd = domain;
    more.cq = cq;
    xrc = ibv_create_srq_ex(context, &more);
    STORM_REQUIRE(shared != nullptr && xrc != nullptr);
    for (unsigned n = 0; n < kShared; ++n) {
      post_shared(n);
      post_xrc(n);
    }
  }

  void make_datagrams() {
    Verbs& v_ = *this;
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {4 * kPeers, kDatagrams, 1, 1, 0};
    attr.qp_type = IBV_QPT_UD;
    datagrams = ibv_create_qp(pd, &attr);
    STORM_REQUIRE(datagrams != nullptr);
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_INIT;
    state.port_num = 1;
    state.qkey = qkey();
    STORM_REQUIRE(ibv_modify_qp(datagrams, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    state.qp_state = IBV_QPS_RTR;
    STORM_REQUIRE(ibv_modify_qp(datagrams, &state, IBV_QP_STATE) == 0);
    state.qp_state = IBV_QPS_RTS;
    STORM_REQUIRE(ibv_modify_qp(datagrams, &state, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    for (unsigned n = 0; n < kDatagrams; ++n) post_datagram(n);
  }

 public:
  // Of this life alone: the number of a queue pair may come again.
  uint32_t qkey() const { return life << 4 | me; }

 private:
  void post_to(ibv_srq* srq, Use use, void* at, unsigned n) {
    Verbs& v_ = *this;
    ibv_sge list = sge(at, kBufferBytes);
    ibv_recv_wr wr{id_of(use, 0, n), nullptr, &list, 1};
    ibv_recv_wr* bad = nullptr;
    STORM_REQUIRE(ibv_post_srq_recv(srq, &wr, &bad) == 0);
  }
};

/// The queue pairs of one connection: RC, and XRC in both directions.
struct QueuePairs {
  ibv_qp* rc;
  ibv_qp* initiator;
  ibv_qp* target;

  QueuePairs(Verbs& v_, bool with_shared_queue) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = v_.cq;
    attr.srq = with_shared_queue ? v_.shared : nullptr;
    attr.cap = {kSends, with_shared_queue ? 0U : kOwn, 1, 1, 64};
    attr.qp_type = IBV_QPT_RC;
    rc = ibv_create_qp(v_.pd, &attr);
    attr.srq = nullptr;
    attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
    attr.qp_type = IBV_QPT_XRC_SEND;
    initiator = ibv_create_qp(v_.pd, &attr);
    ibv_qp_init_attr_ex of_domain{};
    of_domain.qp_type = IBV_QPT_XRC_RECV;
    of_domain.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    of_domain.xrcd = v_.domain;
    target = ibv_create_qp_ex(v_.context, &of_domain);
    STORM_REQUIRE(rc != nullptr && initiator != nullptr && target != nullptr);
    for (ibv_qp* qp : {rc, initiator, target}) {
      ibv_qp_attr state{};
      state.qp_state = IBV_QPS_INIT;
      state.port_num = 1;
      state.qp_access_flags = kAccess;
      STORM_REQUIRE(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
                    0);
    }
  }

  void connect(Verbs& v_, uint32_t to_rc, uint32_t to_initiator, uint32_t to_target) const {
    connect_one(v_, rc, to_rc, true, true);
    connect_one(v_, initiator, to_target, false, true);
    connect_one(v_, target, to_initiator, true, false);
  }

  void to_error(Verbs& v_) const {
    for (ibv_qp* qp : {rc, initiator, target}) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_ERR;
      STORM_REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    }
  }

  void destroy(Verbs& v_) const {
    for (ibv_qp* qp : {rc, initiator, target}) STORM_REQUIRE(ibv_destroy_qp(qp) == 0);
  }

 private:
  // The transport gives up after some 20 ms.
  static void connect_one(Verbs& v_, ibv_qp* qp, uint32_t dest, bool responder, bool requester) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = dest;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr = v_.path;
    STORM_REQUIRE(ibv_modify_qp(qp, &attr,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    (responder ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 10;
    attr.retry_cnt = 4;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    STORM_REQUIRE(ibv_modify_qp(qp, &attr,
                                IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                                    (requester ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)) ==
                  0);
  }
};

}  // namespace storm
