// SPDX-License-Identifier: BSD-3-Clause
//
// The extended calls: cq_ex, qp_ex, memory windows, XRC. One rule a test.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "test/softhca/xrc_world.h"

namespace {

using namespace verbs_test;

START_TEST(extended_cq) {
  World w;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_STANDARD_FLAGS | uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
  ibv_cq_ex* cq = ibv_create_cq_ex(w.context, &attr);
  ck_assert_ptr_nonnull(cq);
  ibv_qp_init_attr init = w.qp_attributes();
  init.recv_cq = ibv_cq_ex_to_cq(cq);
  ibv_qp* receiver = ibv_create_qp(w.pd, &init);
  ibv_qp* sender = w.make_qp();
  w.connect(sender, receiver);
  ibv_poll_cq_attr poll{};
  ck_assert_int_eq(ibv_start_poll(cq, &poll), ENOENT);
  for (uint64_t i = 1; i <= 2; ++i) ck_assert_int_eq(w.post_recv(receiver, i, 4096, 64), 0);
  ibv_sge list = w.sge(0, 17);
  ibv_send_wr wr{};
  wr.sg_list = &list;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = 0x01020304;
  w.memory[16] = 0x77;
  for (int i = 0; i < 2; ++i) ck_assert_int_eq(World::post(sender, wr), 0);
  w.next();
  w.next();
  ck_assert_int_eq(ibv_start_poll(cq, &poll), 0);
  ck_assert_uint_eq(cq->wr_id, 1);
  ck_assert_int_eq(cq->status, IBV_WC_SUCCESS);
  ck_assert_int_eq(ibv_wc_read_opcode(cq), IBV_WC_RECV);
  ck_assert_uint_eq(ibv_wc_read_byte_len(cq), 17);
  ck_assert_uint_eq(ibv_wc_read_imm_data(cq), 0x01020304);
  ck_assert_uint_eq(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
  ck_assert_uint_eq(ibv_wc_read_qp_num(cq), receiver->qp_num);
  const uint64_t first = ibv_wc_read_completion_ts(cq);
  ck_assert_uint_eq(w.memory[4096 + 16], 0x77);
  ck_assert_int_eq(ibv_next_poll(cq), 0);
  ck_assert_uint_eq(cq->wr_id, 2);
  ck_assert_uint_ge(ibv_wc_read_completion_ts(cq), first);
  ck_assert_int_eq(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  ck_assert_int_eq(ibv_start_poll(cq, &poll), ENOENT);
}
END_TEST

/// Between ibv_start_poll and ibv_end_poll a thread makes other calls, and another thread resets a queue pair meanwhile.
START_TEST(reset_while_the_queue_is_polled) {
  World w;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* cq = ibv_create_cq_ex(w.context, &attr);
  ck_assert_ptr_nonnull(cq);
  ibv_qp_init_attr init = w.qp_attributes();
  (_i == 0 ? init.recv_cq : init.send_cq) = ibv_cq_ex_to_cq(cq);
  ibv_qp* polled = ibv_create_qp(w.pd, &init);
  ibv_qp* other = w.make_qp();
  w.connect(polled, other);
  ibv_qp* sender = _i == 0 ? other : polled;
  ck_assert_int_eq(w.post_recv(sender == polled ? other : polled, 1, 4096, 64), 0);
  ck_assert_int_eq(w.post_send(sender, 2, 0, 8), 0);
  w.next();
  ibv_poll_cq_attr poll{};
  while (ibv_start_poll(cq, &poll) != 0) {
  }
  std::thread resetter([&] { ck_assert_int_eq(World::set_state(polled, IBV_QPS_RESET), 0); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < end) ck_assert_int_eq(World::state_of(polled), IBV_QPS_RTS);
  ibv_end_poll(cq);
  resetter.join();
  ck_assert_int_eq(World::state_of(polled), IBV_QPS_RESET);
}
END_TEST

ibv_qp_ex* make_extended(const World& w, uint64_t flags) {
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = w.cq;
  attr.cap = {4, 4, 2, 2, 32};
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = w.pd;
  attr.send_ops_flags = flags;
  ibv_qp* qp = ibv_create_qp_ex(w.context, &attr);
  return qp != nullptr ? ibv_qp_to_qp_ex(qp) : nullptr;
}

START_TEST(extended_qp) {
  World w;
  ck_assert_ptr_null(ibv_qp_to_qp_ex(w.make_qp()));
  ck_assert_ptr_null(make_extended(w, IBV_QP_EX_WITH_TSO));
  ibv_qp_ex* qp = make_extended(w, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND_WITH_IMM);
  ck_assert_ptr_nonnull(qp);
  ibv_qp* peer = w.make_qp();
  w.connect(&qp->qp_base, peer);
  ck_assert_int_eq(w.post_recv(peer, 50, 8192, 64), 0);
  std::memcpy(w.memory.data(), "from sge", 8);
  char text[] = "inline";

  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, w.mr->rkey, w.address(4096));
  const ibv_sge two[] = {w.sge(0, 4), w.sge(4, 4)};
  ibv_wr_set_sge_list(qp, 2, two);
  qp->wr_id = 2;
  ibv_wr_send_imm(qp, 99);
  ibv_wr_set_inline_data(qp, text, sizeof text);
  text[0] = 'X';  // has been copied
  ck_assert(w.is_empty());
  ck_assert_int_eq(ibv_wr_complete(qp), 0);

  bool received = false;
  for (int i = 0; i < 3; ++i) {
    const ibv_wc wc = w.next();
    ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    if (wc.wr_id == 50) {
      ck_assert_uint_eq(wc.imm_data, 99);
      received = true;
    }
  }
  ck_assert(received);
  ck_assert_int_eq(std::memcmp(w.memory.data() + 4096, "from sge", 8), 0);
  ck_assert_int_eq(std::memcmp(w.memory.data() + 8192, "inline", 7), 0);
}
END_TEST

START_TEST(extended_qp_all_or_nothing) {
  World w;
  ibv_qp_ex* qp = make_extended(w, IBV_QP_EX_WITH_RDMA_WRITE);
  w.connect(&qp->qp_base, w.make_qp());
  const auto write = [&](uint64_t wr_id) {
    qp->wr_id = wr_id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, w.mr->rkey, w.address(4096));
    ibv_wr_set_sge(qp, w.mr->lkey, w.address(0), 8);
  };
  ibv_wr_start(qp);
  write(1);
  ibv_wr_abort(qp);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ck_assert_int_eq(ibv_query_qp(&qp->qp_base, &attr, IBV_QP_CAP, &init), 0);
  ibv_wr_start(qp);
  for (uint64_t i = 0; i <= attr.cap.max_send_wr; ++i) write(10 + i);
  ck_assert_int_eq(ibv_wr_complete(qp), ENOMEM);
  ibv_wr_start(qp);
  write(2);
  std::vector<char> much(4096);
  ibv_wr_rdma_write(qp, w.mr->rkey, w.address(4096));
  ibv_wr_set_inline_data(qp, much.data(), much.size());
  ck_assert_int_ne(ibv_wr_complete(qp), 0);
  ibv_wr_start(qp);
  write(3);
  ck_assert_int_eq(ibv_wr_complete(qp), 0);
  w.expect(3, IBV_WC_SUCCESS);
  ck_assert(w.is_empty());
}
END_TEST

START_TEST(window_type_1) {
  World w;
  const auto qps = w.pair();
  ibv_mw* mw = ibv_alloc_mw(w.pd, IBV_MW_TYPE_1);
  ck_assert_ptr_nonnull(mw);
  // Local write access is of no use in a window, but many programs ask for it.
  const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  ibv_mw_bind bind{7, IBV_SEND_SIGNALED, {w.mr, w.address(4096), 64, access}};
  const uint32_t before = mw->rkey;
  ck_assert_int_eq(ibv_bind_mw(qps[1], mw, &bind), 0);
  w.expect(7, IBV_WC_SUCCESS);
  ck_assert_uint_ne(mw->rkey, before);
  ck_assert_int_eq(ibv_dereg_mr(w.mr), EBUSY);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 64, w.address(4096), mw->rkey), 0);
  w.expect(1, IBV_WC_SUCCESS);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 2, 65, w.address(4096), mw->rkey), 0);
  w.expect(2, IBV_WC_REM_ACCESS_ERR);
  ck_assert_int_eq(ibv_dealloc_mw(mw), 0);
  ck_assert_int_eq(ibv_dereg_mr(w.mr), 0);
}
END_TEST

// Binds a type 2 window of 64 bytes through `qp`, as request 1, and gives its key.
uint32_t bind_type_2(World& w, ibv_qp* qp) {
  ibv_mw* mw = ibv_alloc_mw(w.pd, IBV_MW_TYPE_2);
  ck_assert_ptr_nonnull(mw);
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = {w.mr, w.address(4096), 64, IBV_ACCESS_REMOTE_WRITE};
  ck_assert_int_eq(World::post(qp, wr), 0);
  w.expect(1, IBV_WC_SUCCESS);
  return wr.bind_mw.rkey;
}

START_TEST(window_type_2) {
  World w;
  const auto qps = w.pair();
  const uint32_t rkey = bind_type_2(w, qps[1]);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 2, 64, w.address(4096), rkey), 0);
  w.expect(2, IBV_WC_SUCCESS);
  // A message invalidates it at the receiver.
  ck_assert_int_eq(w.post_recv(qps[1], 3, 8192, 8), 0);
  ibv_send_wr send{};
  send.wr_id = 4;
  send.opcode = IBV_WR_SEND_WITH_INV;
  send.invalidate_rkey = rkey;
  ck_assert_int_eq(World::post(qps[0], send), 0);
  bool told = false;
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = w.next();
    ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    if (wc.wr_id == 3) told = (wc.wc_flags & IBV_WC_WITH_INV) != 0 && wc.invalidated_rkey == rkey;
  }
  ck_assert(told);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 5, 64, w.address(4096), rkey), 0);
  w.expect(5, IBV_WC_REM_ACCESS_ERR);
}
END_TEST

/// Neither the owner nor a peer can end a type 2 window through a QP that it is not bound to.
START_TEST(window_type_2_has_one_qp) {
  World w;
  const auto qps = w.pair();
  const auto others = w.pair();
  const uint32_t rkey = bind_type_2(w, qps[1]);
  ibv_send_wr invalidate{};
  invalidate.wr_id = 2;
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.invalidate_rkey = rkey;
  ck_assert_int_eq(World::post(w.pair()[0], invalidate), 0);
  w.expect(2, IBV_WC_MW_BIND_ERR);
  ck_assert_int_eq(w.post_recv(others[1], 3, 8192, 8), 0);
  invalidate.wr_id = 4;
  invalidate.opcode = IBV_WR_SEND_WITH_INV;
  ck_assert_int_eq(World::post(others[0], invalidate), 0);
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = w.next();
    ck_assert_int_eq(wc.status, wc.wr_id == 4 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
  }
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 5, 64, w.address(4096), rkey), 0);
  w.expect(5, IBV_WC_SUCCESS);
  invalidate.wr_id = 6;
  invalidate.opcode = IBV_WR_LOCAL_INV;
  ck_assert_int_eq(World::post(qps[1], invalidate), 0);
  w.expect(6, IBV_WC_SUCCESS);
}
END_TEST

START_TEST(xrc) {
  World w;
  if ((w.limits.device_cap_flags & IBV_DEVICE_XRC) == 0) return;
  char name[] = "/tmp/xrc.XXXXXX";
  const int fd = mkstemp(name);
  ck_assert_ptr_null(open_domain(w, fd, 0));  // there is none yet
  ibv_xrcd* xrcd = open_domain(w, fd);
  ck_assert_ptr_nonnull(xrcd);
  ck_assert_ptr_null(open_domain(w, fd, O_CREAT | O_EXCL));
  ibv_xrcd* again = open_domain(w, fd, 0);
  ck_assert_ptr_nonnull(again);

  uint32_t srqn = 0;
  ibv_srq* srq = make_srq(w, xrcd, &srqn);
  ck_assert_int_eq(ibv_close_xrcd(xrcd), EBUSY);

  ibv_qp* target = new_target(w, xrcd);
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_SEND;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = w.pd;
  init.send_cq = w.cq;
  init.cap = {16, 0, 1, 0, 0};
  init.sq_sig_all = 1;
  ibv_qp* initiator = ibv_create_qp_ex(w.context, &init);
  ck_assert_ptr_nonnull(initiator);
  w.connect(initiator, target);

  // Another handle for the target, after which the first is not needed.
  ibv_qp* other = open_target(w, again, target->qp_num);
  ck_assert_ptr_nonnull(other);
  ck_assert_int_eq(ibv_destroy_qp(target), 0);
  ck_assert_int_eq(World::state_of(other), IBV_QPS_RTS);

  ck_assert_int_eq(w.post_srq_recv(srq, 9, 4096, 64), 0);
  ibv_sge list = w.sge(0, 8);
  ibv_send_wr wr = to(srqn, IBV_WR_SEND, list, 10);
  ck_assert_int_eq(World::post(initiator, wr), 0);
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = w.next();
    ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    ck_assert(wc.wr_id == 9 || wc.wr_id == 10);
  }
  ck_assert_int_eq(ibv_destroy_qp(other), 0);
  ck_assert_int_eq(ibv_destroy_srq(srq), 0);
  ck_assert_int_eq(ibv_close_xrcd(xrcd), 0);
  ck_assert_int_eq(ibv_close_xrcd(again), 0);
  ck_assert_ptr_null(open_domain(w, fd, 0));
  close(fd);
  unlink(name);
}
END_TEST

/// A target lives as long as any process has it open.
START_TEST(xrc_target_outlives_its_creator) {
  char name[] = "/tmp/xrc.XXXXXX";
  const int fd = mkstemp(name);
  int numbers[2];
  int opened[2];
  ck_assert_int_eq(pipe(numbers) | pipe(opened), 0);
  const pid_t creator = fork();
  if (creator == 0) {
    World w;
    if ((w.limits.device_cap_flags & IBV_DEVICE_XRC) == 0) _exit(0);
    const uint32_t number = new_target(w, open_domain(w, fd))->qp_num;
    char ready = 0;
    if (write(numbers[1], &number, sizeof number) != sizeof number || read(opened[0], &ready, 1) != 1) _exit(1);
    raise(SIGKILL);
  }
  World w;
  if ((w.limits.device_cap_flags & IBV_DEVICE_XRC) == 0) return;
  uint32_t number = 0;
  ck_assert_int_eq(read(numbers[0], &number, sizeof number), sizeof number);
  ibv_xrcd* xrcd = open_domain(w, fd, 0);
  ck_assert_ptr_nonnull(xrcd);
  ibv_qp* target = open_target(w, xrcd, number);
  ck_assert_ptr_nonnull(target);
  ck_assert_int_eq(write(opened[1], "", 1), 1);
  ck_assert_int_eq(waitpid(creator, nullptr, 0), creator);

  uint32_t srqn = 0;
  ibv_srq* srq = make_srq(w, xrcd, &srqn);
  ibv_qp* initiator = w.make_qp(nullptr, IBV_QPT_XRC_SEND);
  w.connect(initiator, target);
  ck_assert_int_eq(w.post_srq_recv(srq, 9, 4096, 64), 0);
  ibv_sge list = w.sge(0, 8);
  ibv_send_wr wr = to(srqn, IBV_WR_SEND, list, 9);
  ck_assert_int_eq(World::post(initiator, wr), 0);
  w.expect(9, IBV_WC_SUCCESS);
  w.expect(9, IBV_WC_SUCCESS);
  ck_assert_int_eq(ibv_destroy_qp(target), 0);
  ck_assert_ptr_null(open_target(w, xrcd, number));
  close(fd);
  unlink(name);
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite("softhca_extended", {extended_cq,
                                                      {reset_while_the_queue_is_polled, 2},
                                                      extended_qp,
                                                      extended_qp_all_or_nothing,
                                                      window_type_1,
                                                      window_type_2,
                                                      window_type_2_has_one_qp,
                                                      xrc,
                                                      xrc_target_outlives_its_creator});
}
