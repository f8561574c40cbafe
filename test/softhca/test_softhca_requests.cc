// SPDX-License-Identifier: BSD-3-Clause
//
// QP states, flushing, events. One rule a test.
#include <algorithm>
#include <atomic>

#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;

START_TEST(states_in_order) {
  World w;
  ibv_qp* qp = w.make_qp();
  ck_assert_int_eq(World::state_of(qp), IBV_QPS_RESET);
  ck_assert_int_eq(World::set_state(qp, IBV_QPS_RTS), EINVAL);
  w.to_init(qp);
  ck_assert_int_eq(World::state_of(qp), IBV_QPS_INIT);
  ck_assert_int_eq(qp->state, IBV_QPS_INIT);
  w.to_rtr(qp, qp->qp_num);
  World::to_rts(qp);
  ck_assert_int_eq(World::set_state(qp, IBV_QPS_SQD), 0);
  ck_assert_int_eq(World::set_state(qp, IBV_QPS_RTS), 0);
  ck_assert_int_eq(World::set_state(qp, IBV_QPS_INIT), EINVAL);
  ck_assert_int_eq(World::set_state(qp, IBV_QPS_ERR), 0);
  ck_assert_int_eq(World::set_state(qp, IBV_QPS_RTS), EINVAL);
  ck_assert_int_eq(World::set_state(qp, IBV_QPS_RESET), 0);
  w.connect(qp, w.make_qp());
}
END_TEST

START_TEST(attributes_are_checked) {
  World w;
  ibv_qp* qp = w.make_qp();
  ibv_qp_attr attr = w.init_attributes();
  attr.port_num = static_cast<uint8_t>(w.limits.phys_port_cnt + 1);
  ck_assert_int_eq(ibv_modify_qp(qp, &attr, kInitMask), EINVAL);
  attr = w.init_attributes();
  attr.pkey_index = w.limits.max_pkeys;
  ck_assert_int_eq(ibv_modify_qp(qp, &attr, kInitMask), EINVAL);
  ck_assert_int_eq(World::state_of(qp), IBV_QPS_RESET);
  w.to_init(qp);

  attr = w.rtr_attributes(qp->qp_num);
  attr.path_mtu = static_cast<ibv_mtu>(w.port.active_mtu + 1);
  ck_assert_int_eq(ibv_modify_qp(qp, &attr, kRtrMask), EINVAL);
  attr = w.rtr_attributes(qp->qp_num);
  attr.max_dest_rd_atomic = static_cast<uint8_t>(w.limits.max_qp_rd_atom + 1);
  ck_assert_int_eq(ibv_modify_qp(qp, &attr, kRtrMask), EINVAL);
  attr = w.rtr_attributes(qp->qp_num);
  ck_assert_int_eq(ibv_modify_qp(qp, &attr, kRtrMask & ~IBV_QP_RQ_PSN), EINVAL);
  if (w.port.link_layer == IBV_LINK_LAYER_ETHERNET) {
    attr.ah_attr.is_global = 0;
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, kRtrMask), EINVAL);
  }
  w.to_rtr(qp, qp->qp_num);
  attr = World::rts_attributes();
  attr.max_rd_atomic = static_cast<uint8_t>(w.limits.max_qp_init_rd_atom + 1);
  ck_assert_int_eq(ibv_modify_qp(qp, &attr, kRtsMask), EINVAL);
  attr = World::rts_attributes();
  attr.cur_qp_state = IBV_QPS_RTS;
  ck_assert_int_eq(ibv_modify_qp(qp, &attr, kRtsMask | IBV_QP_CUR_STATE), EINVAL);
  attr.cur_qp_state = IBV_QPS_RTR;
  ck_assert_int_eq(ibv_modify_qp(qp, &attr, kRtsMask | IBV_QP_CUR_STATE), 0);
}
END_TEST

START_TEST(query_gives_what_was_set) {
  World w;
  const auto qps = w.pair();
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ck_assert_int_eq(ibv_query_qp(qps[0], &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_CAP, &init), 0);
  ck_assert_int_eq(attr.qp_state, IBV_QPS_RTS);
  ck_assert_uint_eq(attr.dest_qp_num, qps[1]->qp_num);
  ck_assert_uint_eq(attr.qp_access_flags, kQpAccess);
  ck_assert_uint_eq(attr.sq_psn, kPsn);
  ck_assert_uint_eq(attr.rnr_retry, 7);
  ck_assert_uint_eq(attr.timeout, 10);
  ck_assert_int_eq(attr.path_mtu, IBV_MTU_1024);
  ck_assert_uint_eq(attr.port_num, 1);
  ck_assert_uint_ge(attr.cap.max_send_wr, 16);
  ck_assert_ptr_eq(init.send_cq, w.cq);
  ck_assert_int_eq(init.sq_sig_all, 1);
}
END_TEST

START_TEST(requests_wait_for_the_right_state) {
  World w;
  ibv_qp* qp = w.make_qp();
  ck_assert_int_ne(w.post_recv(qp, 1, 0, 8), 0);
  w.to_init(qp);
  ck_assert_int_eq(w.post_recv(qp, 1, 0, 8), 0);
  ck_assert_int_ne(w.post_send(qp, 2, 0, 8), 0);
}
END_TEST

/// All that is left completes with a flush error, each queue in its order, and nothing else comes.
START_TEST(flush_in_order) {
  World w;
  const auto qps = w.pair();
  for (uint64_t i = 0; i < 5; ++i) ck_assert_int_eq(w.post_recv(qps[0], 100 + i, 0, 8), 0);
  for (uint64_t i = 0; i < 3; ++i) ck_assert_int_eq(w.post_send(qps[0], i, 0, 8), 0);  // nobody receives: they wait
  ck_assert_int_eq(World::set_state(qps[0], IBV_QPS_ERR), 0);
  uint64_t sends = 0;
  uint64_t receives = 100;
  for (int i = 0; i < 8; ++i) {
    const ibv_wc wc = w.next();
    ck_assert_int_eq(wc.status, IBV_WC_WR_FLUSH_ERR);
    ck_assert_uint_eq(wc.qp_num, qps[0]->qp_num);
    ck_assert_uint_eq(wc.wr_id, wc.wr_id < 100 ? sends++ : receives++);
  }
  ck_assert(w.is_empty());
  // In ERR what is posted is flushed as well.
  ck_assert_int_eq(w.post_recv(qps[0], 7, 0, 8), 0);
  w.expect(7, IBV_WC_WR_FLUSH_ERR);
  ck_assert_int_eq(w.post_send(qps[0], 8, 0, 8), 0);
  w.expect(8, IBV_WC_WR_FLUSH_ERR);
}
END_TEST

START_TEST(reset_forgets) {
  World w;
  const auto qps = w.pair();
  for (uint64_t i = 0; i < 3; ++i) ck_assert_int_eq(w.post_recv(qps[0], 100 + i, 0, 8), 0);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 8, w.address(4096), w.mr->rkey), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ck_assert_int_eq(World::set_state(qps[0], IBV_QPS_RESET), 0);
  ck_assert(w.is_empty());
  ck_assert_int_eq(World::set_state(qps[1], IBV_QPS_RESET), 0);
  w.connect(qps[0], qps[1]);
  ck_assert_int_eq(w.post_recv(qps[1], 5, 4096, 64), 0);
  ck_assert_int_eq(w.post_send(qps[0], 6, 0, 64), 0);
  const uint64_t first = w.next().wr_id;
  ck_assert_uint_eq(first + w.next().wr_id, 11);
  ck_assert(w.is_empty());
}
END_TEST

START_TEST(rnr_retries_end) {
  World w;
  const std::array qps{w.make_qp(), w.make_qp()};
  w.to_init(qps[0]);
  w.to_init(qps[1]);
  w.to_rtr(qps[0], qps[1]->qp_num);
  w.to_rtr(qps[1], qps[0]->qp_num);
  ibv_qp_attr attr = World::rts_attributes();
  attr.rnr_retry = 1;
  ck_assert_int_eq(ibv_modify_qp(qps[0], &attr, kRtsMask), 0);
  ck_assert_int_eq(w.post_send(qps[0], 1, 0, 8), 0);
  w.expect(1, IBV_WC_RNR_RETRY_EXC_ERR);
  ck_assert_int_eq(World::state_of(qps[0]), IBV_QPS_ERR);
}
END_TEST

/// Puts a queue pair into SQD, and waits for the event that says that all that had begun has ended.
void drain(const World& w, ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  w.expect_event(IBV_EVENT_SQ_DRAINED);
}

/// In SQD nothing starts; back in RTS it does.
START_TEST(drained) {
  World w;
  const auto qps = w.pair();
  drain(w, qps[0]);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 8, w.address(4096), w.mr->rkey), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ck_assert(w.is_empty());
  ck_assert_int_eq(World::set_state(qps[0], IBV_QPS_RTS), 0);
  w.expect(1, IBV_WC_SUCCESS);
}
END_TEST

/// Each time that is asked for, whether or not there was anything to do in between.
START_TEST(drained_again) {
  World w;
  const auto qps = w.pair();
  for (int i = 0; i < 2; ++i) {
    drain(w, qps[0]);
    ck_assert_int_eq(World::set_state(qps[0], IBV_QPS_RTS), 0);
  }
}
END_TEST

START_TEST(comm_established) {
  World w;
  const std::array qps{w.make_qp(), w.make_qp()};
  w.to_init(qps[0]);
  w.to_init(qps[1]);
  w.to_rtr(qps[0], qps[1]->qp_num);
  w.to_rtr(qps[1], qps[0]->qp_num);
  World::to_rts(qps[0]);
  ck_assert_int_eq(w.post_recv(qps[1], 1, 4096, 8), 0);
  ck_assert_int_eq(w.post_send(qps[0], 2, 0, 8), 0);
  w.next();
  w.next();
  w.expect_event(IBV_EVENT_COMM_EST);
}
END_TEST

START_TEST(srq_limit) {
  World w;
  ibv_srq_init_attr init{nullptr, {16, 1, 0}};
  ibv_srq* srq = ibv_create_srq(w.pd, &init);
  const auto qps = w.pair(srq);
  for (uint64_t i = 0; i < 4; ++i) ck_assert_int_eq(w.post_srq_recv(srq, i, 4096, 64), 0);
  ibv_srq_attr attr{0, 0, 100};
  ck_assert_int_ne(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
  attr.srq_limit = 3;
  ck_assert_int_eq(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
  ck_assert_int_eq(ibv_query_srq(srq, &attr), 0);
  ck_assert_uint_eq(attr.srq_limit, 3);
  ck_assert_int_eq(w.post_send(qps[0], 10, 0, 8), 0);
  w.next();
  w.next();
  ck_assert(!World::readable(w.context->async_fd, 100));
  ck_assert_int_eq(w.post_send(qps[0], 11, 0, 8), 0);
  w.expect_event(IBV_EVENT_SRQ_LIMIT_REACHED);
  // It comes once.
  ck_assert_int_eq(w.post_send(qps[0], 12, 0, 8), 0);
  ck_assert(!World::readable(w.context->async_fd, 100));
  ck_assert_int_eq(ibv_query_srq(srq, &attr), 0);
  ck_assert_uint_eq(attr.srq_limit, 0);
}
END_TEST

START_TEST(last_wqe_reached) {
  World w;
  ibv_srq_init_attr init{nullptr, {16, 1, 0}};
  const auto qps = w.pair(ibv_create_srq(w.pd, &init));
  ck_assert_int_eq(World::set_state(qps[0], IBV_QPS_ERR), 0);
  w.expect_event(IBV_EVENT_QP_LAST_WQE_REACHED);
}
END_TEST

START_TEST(resize_keeps_completions) {
  World w;
  const auto qps = w.pair();
  // What is posted in this state is complete at once.
  ck_assert_int_eq(World::set_state(qps[0], IBV_QPS_ERR), 0);
  for (uint64_t i = 0; i < 10; ++i) ck_assert_int_eq(w.post_send(qps[0], i, 0, 8), 0);
  ck_assert_int_eq(ibv_resize_cq(w.cq, 4), EINVAL);
  ck_assert_int_eq(ibv_resize_cq(w.cq, 1000), 0);
  ck_assert_int_ge(w.cq->cqe, 1000);
  ck_assert_int_eq(ibv_resize_cq(w.cq, 10), 0);
  for (uint64_t i = 0; i < 10; ++i) w.expect(i, IBV_WC_WR_FLUSH_ERR);
  ck_assert(w.is_empty());
}
END_TEST

START_TEST(overrun) {
  World w;
  ibv_cq* small = ibv_create_cq(w.context, 1, nullptr, nullptr, 0);
  ibv_qp_init_attr init = w.qp_attributes();
  init.send_cq = small;
  ibv_qp* a = ibv_create_qp(w.pd, &init);
  w.connect(a, w.make_qp());
  for (int i = 0; i <= small->cqe; ++i) w.post_rdma(a, IBV_WR_RDMA_WRITE, 1, 8, w.address(4096), w.mr->rkey);
  // The QP fails as well; that may be told first.
  ibv_async_event event{};
  do {
    event = w.next_event();
    ibv_ack_async_event(&event);
  } while (event.event_type == IBV_EVENT_QP_FATAL);
  ck_assert_int_eq(event.event_type, IBV_EVENT_CQ_ERR);
  ck_assert_ptr_eq(event.element.cq, small);
}
END_TEST

/// A buffer that is not registered any more has what came before, and nothing comes into it later, when that is polled.
START_TEST(deregistered_memory_is_left_alone) {
  World w;
  ibv_qp_init_attr init = w.qp_attributes();
  ibv_cq_init_attr_ex extended{};
  extended.cqe = 16;
  ibv_cq_ex* receives = ibv_create_cq_ex(w.context, &extended);
  ck_assert_ptr_nonnull(receives);
  init.recv_cq = ibv_cq_ex_to_cq(receives);
  ibv_qp* receiver = ibv_create_qp(w.pd, &init);
  ibv_qp* sender = w.make_qp();
  w.connect(sender, receiver);

  std::array<std::array<uint8_t, 64>, 3> buffers{};
  std::array<ibv_mr*, 3> regions{};
  w.memory.assign(w.memory.size(), 5);
  for (uint64_t i = 0; i < buffers.size(); ++i) {
    regions[i] = ibv_reg_mr(w.pd, buffers[i].data(), buffers[i].size(), IBV_ACCESS_LOCAL_WRITE);
    ck_assert_ptr_nonnull(regions[i]);
    ibv_sge list{reinterpret_cast<uint64_t>(buffers[i].data()), 64, regions[i]->lkey};
    ibv_recv_wr wr{i, nullptr, &list, 1};
    ibv_recv_wr* bad = nullptr;
    ck_assert_int_eq(ibv_post_recv(receiver, &wr, &bad), 0);
    ck_assert_int_eq(w.post_send(sender, 10 + i, 0, 64), 0);
    w.expect(10 + i, IBV_WC_SUCCESS);
  }
  const auto all = [](const std::array<uint8_t, 64>& bytes, uint8_t value) {
    return std::all_of(bytes.begin(), bytes.end(), [value](uint8_t byte) { return byte == value; });
  };
  ck_assert_int_eq(ibv_dereg_mr(regions[0]), 0);
  ck_assert(all(buffers[0], 5));
  buffers[0].fill(9);
  ck_assert_int_eq(ibv_rereg_mr(regions[1], IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, w.memory.data(), 64, 0), 0);
  ck_assert(all(buffers[1], 5));
  buffers[1].fill(9);
  // A program may do that with completions before it has seen all of them.
  ibv_poll_cq_attr poll{};
  ck_assert_int_eq(ibv_start_poll(receives, &poll), 0);
  ck_assert_uint_eq(receives->wr_id, 0);
  ck_assert_int_eq(ibv_dereg_mr(regions[2]), 0);
  ck_assert(all(buffers[2], 5));
  buffers[2].fill(9);
  for (uint64_t i = 1; i < buffers.size(); ++i) {
    ck_assert_int_eq(ibv_next_poll(receives), 0);
    ck_assert_uint_eq(receives->wr_id, i);
    ck_assert_int_eq(receives->status, IBV_WC_SUCCESS);
  }
  ibv_end_poll(receives);
  for (const auto& buffer : buffers) ck_assert(all(buffer, 9));
}
END_TEST

START_TEST(solicited_only) {
  World w;
  ibv_qp_init_attr init = w.qp_attributes();
  init.recv_cq = ibv_create_cq(w.context, 16, nullptr, w.channel, 0);
  ibv_qp* receiver = ibv_create_qp(w.pd, &init);
  ibv_qp* sender = w.make_qp();
  w.connect(sender, receiver);
  ck_assert_int_eq(w.post_recv(receiver, 1, 4096, 8), 0);
  ck_assert_int_eq(w.post_recv(receiver, 2, 4096, 8), 0);
  ck_assert_int_eq(ibv_req_notify_cq(init.recv_cq, 1), 0);
  ibv_sge list = w.sge(0, 8);
  ibv_send_wr wr{};
  wr.sg_list = &list;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ck_assert_int_eq(World::post(sender, wr), 0);
  ck_assert(!World::readable(w.channel->fd, 100));
  wr.send_flags = IBV_SEND_SOLICITED;
  ck_assert_int_eq(World::post(sender, wr), 0);
  ck_assert(World::becomes_readable(w.channel->fd));
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite(
      "softhca_requests",
      {states_in_order, attributes_are_checked, query_gives_what_was_set, requests_wait_for_the_right_state,
       flush_in_order, reset_forgets, rnr_retries_end, drained, drained_again, comm_established, srq_limit,
       last_wqe_reached, resize_keeps_completions, overrun, deregistered_memory_is_left_alone, solicited_only});
}
