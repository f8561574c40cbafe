// SPDX-License-Identifier: BSD-3-Clause
//
// When messages arrive over a link of latency: test_softhca_flights MILLISECONDS, the latency that the ports are set to. Nothing
// is seen before its time, however the machine is loaded; what takes too long is tried again, for the machine may have stood still.
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;
using Clock = std::chrono::steady_clock;

std::chrono::milliseconds latency{};
/// So much earlier the other process may see it: what carrying it takes is counted in, about.
constexpr std::chrono::microseconds kBegunEarlier{3};

constexpr int kAttempts = 50;

/// Does it until it has taken less than `most`; it has taken `least` every time.
void takes(Clock::duration least, Clock::duration most, const std::function<void()>& act) {
  for (int attempt = 0;; ++attempt) {
    const auto start = Clock::now();
    act();
    const auto taken = Clock::now() - start;
    ck_assert_msg(taken >= least - kBegunEarlier, "%lld us, too early",
                  static_cast<long long>(taken / std::chrono::microseconds(1)));
    if (taken < most) return;
    ck_assert_msg(attempt < kAttempts, "%lld us, too late",
                  static_cast<long long>(taken / std::chrono::microseconds(1)));
  }
}

/// Two queue pairs with queues of their own for completions.
struct Pair : World {
  ibv_cq* other_cq = ibv_create_cq(context, 256, this, channel, 0);
  ibv_qp* from = nullptr;
  ibv_qp* to = nullptr;

  explicit Pair(ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr attributes = qp_attributes(type);
    from = ibv_create_qp(pd, &attributes);
    attributes.send_cq = attributes.recv_cq = other_cq;
    to = ibv_create_qp(pd, &attributes);
    ck_assert(from != nullptr && to != nullptr);
    if (type == IBV_QPT_RC) connect(from, to);
  }
  void arrives(uint64_t wr_id) const { ck_assert_uint_eq(next(other_cq).wr_id, wr_id); }
  int send(uint64_t wr_id, uint32_t length) const { return post_send(from, wr_id, 0, length); }
  int receive(uint64_t wr_id, uint32_t length) const { return post_recv(to, wr_id, 8192, length); }
};

/// One latency to the receiver, another until the sender knows.
START_TEST(a_send_is_acknowledged_one_latency_after_it_arrived) {
  const Pair pair;
  takes(2 * latency, 3 * latency, [&] {
    const auto start = Clock::now();
    ck_assert_int_eq(pair.receive(7, 64), 0);
    ck_assert_int_eq(pair.send(1, 64), 0);
    pair.arrives(7);
    ck_assert(Clock::now() - start >= latency - kBegunEarlier);
    pair.expect(1, IBV_WC_SUCCESS);
  });
}
END_TEST

/// Those that are on their way at a time do not wait for each other, and keep their order.
START_TEST(latencies_overlap) {
  const Pair pair;
  takes(2 * latency, 6 * latency, [&] {
    for (uint64_t i = 0; i < 16; ++i) ck_assert_int_eq(pair.receive(i, 1024), 0);
    for (uint64_t i = 0; i < 16; ++i) ck_assert_int_eq(pair.send(i, i % 2 == 0 ? 64 : 1024), 0);
    for (uint64_t i = 0; i < 16; ++i) pair.arrives(i);
    for (uint64_t i = 0; i < 16; ++i) pair.expect(i, IBV_WC_SUCCESS);
  });
}
END_TEST

/// Memory that is written does not change before; and it does change if nobody polls.
START_TEST(a_write_is_seen_when_it_arrives) {
  const Pair pair;
  auto* target = static_cast<volatile uint8_t*>(pair.memory.data() + 8192);
  uint8_t value = 0;
  takes(2 * latency, 3 * latency, [&] {
    const auto start = Clock::now();
    pair.memory[0] = ++value;
    ck_assert_int_eq(pair.post_rdma(pair.from, IBV_WR_RDMA_WRITE, 1, 1, pair.address(8192), pair.mr->rkey), 0);
    while (*target != value) std::this_thread::yield();
    ck_assert(Clock::now() - start >= latency - kBegunEarlier);
    pair.expect(1, IBV_WC_SUCCESS);
  });
}
END_TEST

/// Questions go there and come back, several at a time.
START_TEST(a_read_takes_the_way_twice) {
  const Pair pair;
  takes(2 * latency, 4 * latency, [&] {
    for (uint64_t i = 0; i < 4; ++i)
      ck_assert_int_eq(pair.post_rdma(pair.from, IBV_WR_RDMA_READ, i, 4096, pair.address(8192), pair.mr->rkey), 0);
    for (uint64_t i = 0; i < 4; ++i) pair.expect(i, IBV_WC_SUCCESS);
  });
  pair.memory[8192] = 41;
  takes(2 * latency, 4 * latency, [&] {
    ibv_sge list = pair.sge(0, 8);
    ibv_send_wr wr{};
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic = {pair.address(8192), 1, 0, pair.mr->rkey};
    ck_assert_int_eq(World::post(pair.from, wr), 0);
    pair.expect(0, IBV_WC_SUCCESS);
  });
  ck_assert_uint_ge(pair.memory[8192], 42);
}
END_TEST

/// A datagram is not acknowledged: its sender is told when it arrives.
START_TEST(a_datagram_takes_the_way_once) {
  const Pair pair(IBV_QPT_UD);
  constexpr uint32_t kKey = 5;
  for (ibv_qp* qp : {pair.from, pair.to}) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kKey;
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    ck_assert_int_eq(World::set_state(qp, IBV_QPS_RTR), 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = kPsn;
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }
  ibv_ah_attr path = pair.path();
  ibv_ah* ah = ibv_create_ah(pair.pd, &path);
  ck_assert_ptr_nonnull(ah);
  takes(latency, 3 * latency, [&] {
    ck_assert_int_eq(pair.receive(7, 40 + 64), 0);
    ibv_sge list = pair.sge(0, 64);
    ibv_send_wr wr{};
    wr.wr_id = 1;
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {ah, pair.to->qp_num, kKey};
    ck_assert_int_eq(World::post(pair.from, wr), 0);
    pair.arrives(7);
    pair.expect(1, IBV_WC_SUCCESS);
  });
}
END_TEST

/// Who sleeps on a channel is woken then.
START_TEST(an_event_comes_with_the_message) {
  const Pair pair;
  takes(latency, 3 * latency, [&] {
    while (!pair.is_empty()) {
    }
    ck_assert_int_eq(pair.receive(7, 64), 0);
    ck_assert_int_eq(ibv_req_notify_cq(pair.other_cq, 0), 0);
    ck_assert_int_eq(pair.send(1, 64), 0);
    ck_assert(World::readable(pair.channel->fd, 60000));
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ck_assert_int_eq(ibv_get_cq_event(pair.channel, &cq, &context), 0);
    ck_assert_ptr_eq(cq, pair.other_cq);
    ibv_ack_cq_events(cq, 1);
    pair.arrives(7);
  });
}
END_TEST

/// The receiver was not ready: the sender hears of it, and the message comes again.
START_TEST(a_receiver_that_was_not_ready_costs_a_round_trip) {
  const Pair pair;
  Clock::duration taken{};
  // A process that is late with its first try finds the receiver ready.
  for (int attempt = 0; taken < 3 * latency || taken > 6 * latency; ++attempt) {
    ck_assert_int_lt(attempt, kAttempts);
    const auto start = Clock::now();
    ck_assert_int_eq(pair.send(1, 64), 0);
    std::this_thread::sleep_for(latency * 3 / 2);
    ck_assert_int_eq(pair.receive(7, 64), 0);
    pair.arrives(7);
    taken = Clock::now() - start;
    pair.expect(1, IBV_WC_SUCCESS);
  }
}
END_TEST

/// What is on its way when the queue pair fails completes, in order: what has arrived well, the rest as flushed.
START_TEST(a_failing_queue_pair_completes_what_is_on_its_way) {
  const Pair pair;
  ck_assert_int_eq(pair.receive(7, 64), 0);
  ck_assert_int_eq(pair.send(1, 64), 0);
  pair.arrives(7);
  ck_assert_int_eq(pair.send(2, 64), 0);
  ck_assert_int_eq(pair.send(3, 64), 0);
  ck_assert_int_eq(World::set_state(pair.from, IBV_QPS_ERR), 0);
  pair.expect(1, IBV_WC_SUCCESS);
  pair.expect(2, IBV_WC_WR_FLUSH_ERR);
  pair.expect(3, IBV_WC_WR_FLUSH_ERR);
  ck_assert(pair.is_empty());
}
END_TEST

/// A queue pair that goes while something is on its way takes nothing else with it; a new one begins anew.
START_TEST(a_queue_pair_may_go_with_messages_on_their_way) {
  const Pair pair;
  ck_assert_int_eq(pair.receive(7, 64), 0);
  ck_assert_int_eq(pair.send(1, 64), 0);
  pair.arrives(7);
  ck_assert_int_eq(pair.send(2, 64), 0);
  for (ibv_qp* qp : {pair.from, pair.to}) ck_assert_int_eq(World::set_state(qp, IBV_QPS_RESET), 0);
  pair.connect(pair.from, pair.to);
  ck_assert_int_eq(pair.receive(8, 64), 0);
  ck_assert_int_eq(pair.send(3, 64), 0);
  pair.arrives(8);
  pair.expect(3, IBV_WC_SUCCESS);
  ck_assert_int_eq(pair.send(4, 64), 0);
  ck_assert_int_eq(ibv_destroy_qp(pair.from), 0);
  std::this_thread::sleep_for(2 * latency);
  ck_assert(pair.is_empty());
}
END_TEST

/// Drained: all that had left is answered.
START_TEST(draining_waits_for_answers) {
  const Pair pair;
  takes(2 * latency, 6 * latency, [&] {
    for (uint64_t i = 0; i < 3; ++i) ck_assert_int_eq(pair.receive(i, 64), 0);
    for (uint64_t i = 0; i < 3; ++i) ck_assert_int_eq(pair.send(i, 64), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    ck_assert_int_eq(ibv_modify_qp(pair.from, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    pair.expect_event(IBV_EVENT_SQ_DRAINED);
    for (uint64_t i = 0; i < 3; ++i) pair.expect(i, IBV_WC_SUCCESS);
    ck_assert_int_eq(World::set_state(pair.from, IBV_QPS_RTS), 0);
  });
}
END_TEST

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !have_device()) return 77;
  latency = std::chrono::milliseconds(atoi(argv[1]));
  return fabric::test::run_suite(
      "softhca_flights",
      {a_send_is_acknowledged_one_latency_after_it_arrived, latencies_overlap, a_write_is_seen_when_it_arrives,
       a_read_takes_the_way_twice, a_datagram_takes_the_way_once, an_event_comes_with_the_message,
       a_receiver_that_was_not_ready_costs_a_round_trip, a_failing_queue_pair_completes_what_is_on_its_way,
       a_queue_pair_may_go_with_messages_on_their_way, draining_waits_for_answers},
      300);
}
