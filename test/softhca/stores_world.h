// SPDX-License-Identifier: BSD-3-Clause
//
// What both processes of test_softhca_stores are made of: objects, connections and requests of one kind of message.
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "test/softhca/bare_verbs.h"

namespace stores_test {

using bare_verbs::Address;
using bare_verbs::Device;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kDepth = 8;  // receive requests
constexpr uint32_t kHeader = 40;
constexpr uint32_t kBufferBytes = 8192;
constexpr uint32_t kQkey = 17;
constexpr int kPatienceMs = 5000;
constexpr int kShortMs = 20;  // in which something does not happen
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
constexpr uint8_t kFromPeer = 0xa5;
constexpr uint8_t kFromHere = 0x5a;

struct Mode {
  const char* name;
  ibv_qp_type type;
  bool shared;  // receive requests are of an SRQ
  ibv_wr_opcode opcode;
  uint32_t length;
};
constexpr Mode kModes[] = {
    {"a message", IBV_QPT_RC, false, IBV_WR_SEND, 8},
    {"a longer message", IBV_QPT_RC, false, IBV_WR_SEND, 1000},
    {"a message to a shared queue", IBV_QPT_RC, true, IBV_WR_SEND, 8},
    {"a longer message to a shared queue", IBV_QPT_RC, true, IBV_WR_SEND, 1000},
    {"a write with a message to a shared queue", IBV_QPT_RC, true, IBV_WR_RDMA_WRITE_WITH_IMM, 64},
    {"a message that is too long", IBV_QPT_RC, true, IBV_WR_SEND, kBufferBytes + 8},
    {"a datagram", IBV_QPT_UD, false, IBV_WR_SEND, 8},
    {"a datagram to a shared queue", IBV_QPT_UD, true, IBV_WR_SEND, 8},
};

struct World : Device {
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;       // of receives
  ibv_cq* send_cq = nullptr;  // of sends
  ibv_srq* srq = nullptr;
  std::vector<uint8_t> memory = std::vector<uint8_t>((kDepth + 2) * size_t{kBufferBytes});
  ibv_mr* mr = nullptr;

  World() {
    channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, 64, nullptr, channel, 0);
    send_cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), kAccess);
    srq = make_srq(kDepth);
    REQUIRE(cq != nullptr && send_cq != nullptr && mr != nullptr);
  }

  Address address(const ibv_qp* qp) const {
    return {qp->qp_num, mr->rkey, reinterpret_cast<uint64_t>(buffer(kDepth + 1)), port.lid, gid};
  }

  ibv_qp* make_qp(const Mode& mode) const {
    ibv_qp_init_attr attr{};
    attr.send_cq = send_cq;
    attr.recv_cq = cq;
    attr.srq = mode.shared ? srq : nullptr;
    attr.cap = {4, mode.shared ? 0U : kDepth, 1, 1, 0};
    attr.qp_type = mode.type;
    attr.sq_sig_all = 1;
    ibv_qp* qp = ibv_create_qp(pd, &attr);
    REQUIRE(qp != nullptr);
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags = kAccess;
    init.qkey = kQkey;
    const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    REQUIRE(ibv_modify_qp(qp, &init, mask | (mode.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
    return qp;
  }

  void connect(ibv_qp* qp, const Address& to) const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = to.qpn;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr = path(to);
    const bool connected = qp->qp_type == IBV_QPT_RC;
    REQUIRE(ibv_modify_qp(qp, &attr,
                          !connected ? IBV_QP_STATE
                                     : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 10;
    attr.retry_cnt = 4;
    attr.rnr_retry = 4;
    REQUIRE(ibv_modify_qp(qp, &attr,
                          !connected ? IBV_QP_STATE | IBV_QP_SQ_PSN
                                     : IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
  }

  uint8_t* buffer(uint64_t n) const { return const_cast<uint8_t*>(memory.data()) + n * kBufferBytes; }
  void post_receive(ibv_qp* qp, uint64_t n) const {
    Device::post_receive(qp, srq, n, buffer(n), kBufferBytes, mr->lkey);
  }
  // From the buffers behind those of receive requests, of which the last is where writes go.
  ibv_send_wr request(ibv_sge& sge, ibv_wr_opcode opcode, uint32_t length, uint8_t content, ibv_ah* ah,
                      const Address& to) const {
    std::memset(buffer(kDepth), content, length);
    sge = {reinterpret_cast<uint64_t>(buffer(kDepth)), length, mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM) wr.wr.rdma = {to.memory, to.rkey};
    if (ah != nullptr) wr.wr.ud = {ah, to.qpn, kQkey};
    return wr;
  }
  static void post(ibv_qp* qp, ibv_send_wr& wr) {
    ibv_send_wr* bad = nullptr;
    REQUIRE(ibv_post_send(qp, &wr, &bad) == 0);
  }
  void expect_sent() const {
    ibv_wc wc;
    const auto limit = Clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (ibv_poll_cq(send_cq, 1, &wc) == 0) REQUIRE(Clock::now() < limit);
    REQUIRE(wc.status == IBV_WC_SUCCESS);
  }
};

inline Address exchange(int socket, const Address& mine) {
  Address theirs{};
  REQUIRE(write(socket, &mine, sizeof mine) == sizeof mine);
  REQUIRE(recv(socket, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs);
  return theirs;
}
inline void meet(int socket) {
  char byte = 0;
  REQUIRE(write(socket, &byte, 1) == 1 && read(socket, &byte, 1) == 1);
}

}  // namespace stores_test
