// SPDX-License-Identifier: BSD-3-Clause
//
// Two processes of a test: one sends to the other's memory, in one of several ways, when the other has gone or lacks something.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <functional>

#include "test/softhca/xrc_world.h"

namespace verbs_test {

constexpr uint32_t kHeader = 40;  // in front of a datagram
constexpr uint32_t kBytes = 4096;
/// Receives and writes go there: the same address in all processes of a test, and in each its own memory.
alignas(4096) inline uint8_t area[4 * kBytes];

/// What they tell each other.
struct Board {
  std::atomic<int> step;
  uint32_t sender_qpn;
  uint32_t peer_qpn;
  uint32_t srqn;
  uint32_t key;
};

/// Where they meet. Made before either of them.
struct Stage {
  Board* const board =
      static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const int fd = memfd_create("domain", 0);

  void reach(int step) const { board->step.store(step); }
  void await(int step) const {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (board->step.load() < step) {
      ck_assert_msg(std::chrono::steady_clock::now() < end, "step %d is not reached", step);
      pause_a_moment();
    }
  }
  static void pause_a_moment() {
    const timespec moment{0, 1000000};
    nanosleep(&moment, nullptr);
  }
};

inline pid_t play(const std::function<int()>& part) {
  const pid_t actor = fork();
  if (actor == 0) _exit(part());
  return actor;
}
/// How a process has ended, as waitpid says.
inline int end_of(pid_t actor) {
  int status = -1;
  ck_assert_int_eq(waitpid(actor, &status, 0), actor);
  return status;
}

enum Way { kDatagram, kWrite, kXrcSend, kXrcWrite, kXrcToEmptyQueue, kWays };
inline bool is_xrc(int way) {
  return way >= kXrcSend;
}

inline ibv_mr* register_area(const World& w) {
  ibv_mr* mr = ibv_reg_mr(w.pd, area, sizeof area, kAllAccess);
  ck_assert_ptr_nonnull(mr);
  return mr;
}

inline void to_datagrams(const World& w, ibv_qp* qp) {
  ibv_qp_attr attr = w.init_attributes();
  attr.qkey = 11;
  ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
  ck_assert_int_eq(World::set_state(qp, IBV_QPS_RTR), 0);
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = kPsn;
  ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

/// Whose memory is written to, or would be if it were not dead.
inline int be_peer(
    const Stage& stage, int way, const std::function<void()>& at_last = [] {}) {
  World w;
  Board& board = *stage.board;
  const ibv_mr* mr = register_area(w);
  board.key = mr->rkey;
  // In two pieces, so that the kernel copies them.
  ibv_sge pieces[2] = {{reinterpret_cast<uint64_t>(area), kHeader, mr->lkey},
                       {reinterpret_cast<uint64_t>(area) + kHeader, kBytes, mr->lkey}};
  ibv_recv_wr wr{1, nullptr, pieces, 2};
  ibv_recv_wr* bad = nullptr;
  stage.await(1);
  if (is_xrc(way)) {
    ibv_srq_init_attr_ex attributes{};
    attributes.attr = {16, 2, 0};
    attributes.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attributes.srq_type = IBV_SRQT_XRC;
    attributes.pd = w.pd;
    attributes.xrcd = open_domain(w, stage.fd);
    attributes.cq = w.cq;
    ibv_srq* srq = ibv_create_srq_ex(w.context, &attributes);
    if (srq == nullptr || ibv_get_srq_num(srq, &board.srqn) != 0) return 1;
    if (way != kXrcToEmptyQueue && ibv_post_srq_recv(srq, &wr, &bad) != 0) return 1;
  } else {
    ibv_qp* qp = w.make_qp(nullptr, way == kDatagram ? IBV_QPT_UD : IBV_QPT_RC);
    board.peer_qpn = qp->qp_num;
    if (way == kDatagram) {
      to_datagrams(w, qp);
      if (ibv_post_recv(qp, &wr, &bad) != 0) return 1;
    } else {
      w.to_init(qp);
      w.to_rtr(qp, board.sender_qpn);
      World::to_rts(qp);
    }
  }
  stage.reach(2);
  at_last();
  for (;;) pause();
}

/// The other process: it has an object of its own connected to the peer's when this is made.
struct Sender {
  World w;
  ibv_qp* qp = nullptr;

  Sender(const Stage& stage, int way) {
    Board& board = *stage.board;
    if (is_xrc(way)) {
      ibv_qp* target = new_target(w, open_domain(w, stage.fd));
      qp = w.make_qp(nullptr, IBV_QPT_XRC_SEND);
      w.connect(qp, target);
    } else {
      qp = w.make_qp(nullptr, way == kDatagram ? IBV_QPT_UD : IBV_QPT_RC);
    }
    board.sender_qpn = qp->qp_num;
    stage.reach(1);
    stage.await(2);
    if (way == kDatagram) to_datagrams(w, qp);
    if (way == kWrite) {
      w.to_init(qp);
      w.to_rtr(qp, board.peer_qpn);
      World::to_rts(qp);
    }
    std::fill(w.memory.begin(), w.memory.end(), 0x55);
  }

  ibv_wc send(const Board& board, int way) const {
    ibv_sge list = w.sge(0, kBytes);
    ibv_send_wr wr = to(board.srqn, way == kWrite || way == kXrcWrite ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, list);
    if (wr.opcode == IBV_WR_RDMA_WRITE) wr.wr.rdma = {reinterpret_cast<uint64_t>(area), board.key};
    if (way == kDatagram) {
      ibv_ah_attr path = w.path();
      wr.wr.ud = {ibv_create_ah(w.pd, &path), board.peer_qpn, 11};
      ck_assert_ptr_nonnull(wr.wr.ud.ah);
    }
    ck_assert_int_eq(World::post(qp, wr), 0);
    return w.next();
  }
};

}  // namespace verbs_test
