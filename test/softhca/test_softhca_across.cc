// SPDX-License-Identifier: BSD-3-Clause
//
// SENDs from one process to another: a stream of all sizes, and processes that are killed while messages wait to be polled.
#include <sched.h>

#include <csignal>

#include "test/softhca/two_processes.h"

namespace {

using namespace verbs_test;

constexpr uint32_t kMost = 9000;
constexpr uint32_t kDepth = 48;  // of the longest, more than the ring of a completion queue has room for

uint8_t content(uint32_t number, uint32_t at) {
  return static_cast<uint8_t>(number * 31 + at * 7 + at / 256 + 1);
}

// One end of a connection, with a buffer for each request.
struct End {
  World w;
  std::vector<uint8_t>& memory = *new std::vector<uint8_t>(size_t{kDepth} * kMost);
  ibv_mr* mr = ibv_reg_mr(w.pd, memory.data(), memory.size(), kAllAccess);
  ibv_qp* qp = nullptr;

  End() {
    ibv_qp_init_attr attr = w.qp_attributes();
    attr.cap.max_send_wr = attr.cap.max_recv_wr = kDepth;
    qp = ibv_create_qp(w.pd, &attr);
    ck_assert(mr != nullptr && qp != nullptr);
  }
  void connect(uint32_t other) const {
    w.to_init(qp);
    w.to_rtr(qp, other);
    World::to_rts(qp);
  }
  uint8_t* buffer(uint32_t number) const { return memory.data() + size_t{number % kDepth} * kMost; }
  ibv_sge piece(uint32_t number, uint32_t length) const {
    return {reinterpret_cast<uint64_t>(buffer(number)), length, mr->lkey};
  }
  void post_recv(uint32_t number) const {
    ibv_sge list = piece(number, kMost);
    ibv_recv_wr wr{number, nullptr, &list, 1};
    ibv_recv_wr* bad = nullptr;
    ck_assert_int_eq(ibv_post_recv(qp, &wr, &bad), 0);
  }
  ibv_wc send(uint32_t number, uint32_t length) const {
    for (uint32_t i = 0; i < length; ++i) buffer(number)[i] = content(number, i);
    ibv_sge list = piece(number, length);
    ibv_send_wr wr{};
    wr.wr_id = number;
    wr.sg_list = &list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    ck_assert_int_eq(World::post(qp, wr), 0);
    return w.next();
  }
  bool take(uint32_t number, uint32_t length) const {
    const ibv_wc completion = w.next();
    if (completion.status != IBV_WC_SUCCESS || completion.wr_id != number || completion.byte_len != length)
      return false;
    for (uint32_t i = 0; i < length; ++i)
      if (buffer(number)[i] != content(number, i)) return false;
    return true;
  }
};

// Each says who it is, and connects when the other has.
void meet(const Stage& stage, const End& end, bool sends) {
  Board& board = *stage.board;
  if (sends) {
    board.sender_qpn = end.qp->qp_num;
    stage.reach(1);
    stage.await(2);
    end.connect(board.peer_qpn);
    stage.reach(3);
  } else {
    stage.await(1);
    end.connect(board.sender_qpn);
    board.peer_qpn = end.qp->qp_num;
    stage.reach(2);
    stage.await(3);
  }
}

constexpr uint32_t kSizes[] = {0, 8, 192, 193, 1000, 4096, 8192, 8448, 8449, kMost};
uint32_t size_of(int of, uint32_t number) {
  return of < 6 ? kSizes[4 + of] : kSizes[number % std::size(kSizes)];
}
constexpr int kMixes = 7;

START_TEST(what_a_sender_has_sent_arrives_after_its_death) {
  const Stage stage;
  const pid_t sender = play([&] {
    const End end;
    meet(stage, end, true);
    stage.await(4);
    for (uint32_t i = 0; i < kDepth; ++i)
      if (end.send(i, size_of(_i, i)).status != IBV_WC_SUCCESS) return 1;
    stage.reach(5);
    for (;;) pause();
  });
  const End end;
  meet(stage, end, false);
  for (uint32_t i = 0; i < kDepth; ++i) end.post_recv(i);
  stage.reach(4);
  stage.await(5);
  kill(sender, SIGKILL);
  end_of(sender);
  for (uint32_t i = 0; i < kDepth; ++i) ck_assert_msg(end.take(i, size_of(_i, i)), "message %u", i);
  ck_assert(end.w.is_empty());
  // The queue pair can still be ended, and what is posted to it is flushed.
  end.post_recv(0);
  ck_assert_int_eq(World::set_state(end.qp, IBV_QPS_ERR), 0);
  end.w.expect(0, IBV_WC_WR_FLUSH_ERR);
}
END_TEST

// A receiver that never polls; and then one that does, in what is most likely the place of the first.
START_TEST(a_receiver_that_dies_with_messages_is_noticed_and_replaced) {
  const Stage stage;
  const Stage again;
  const pid_t first = play([&]() -> int {
    const End end;
    meet(stage, end, false);
    for (uint32_t i = 0; i < kDepth; ++i) end.post_recv(i);
    stage.reach(4);
    for (;;) pause();
  });
  const pid_t second = play([&] {
    stage.await(5);
    const End end;
    meet(again, end, false);
    for (uint32_t i = 0; i < kDepth; ++i) end.post_recv(i);
    again.reach(4);
    for (uint32_t i = 0; i < kDepth; ++i)
      if (!end.take(i, size_of(_i, i))) return 1;
    return 0;
  });
  const End end;
  meet(stage, end, true);
  stage.await(4);
  for (uint32_t i = 0; i + 1 < kDepth; ++i) ck_assert_int_eq(end.send(i, size_of(_i, i)).status, IBV_WC_SUCCESS);
  kill(first, SIGKILL);
  end_of(first);
  ck_assert_str_eq(ibv_wc_status_str(end.send(0, size_of(_i, 0)).status), ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR));
  stage.reach(5);
  const End other;
  meet(again, other, true);
  again.await(4);
  for (uint32_t i = 0; i < kDepth; ++i) ck_assert_int_eq(other.send(i, size_of(_i, i)).status, IBV_WC_SUCCESS);
  ck_assert_int_eq(end_of(second), 0);
}
END_TEST

// One processor for this process, which it gives to no thread that it starts unless it waits. False: it may not.
bool keep_the_processor() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
  const sched_param priority{1};
  return sched_setaffinity(0, sizeof one, &one) == 0 && sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
}

// It never waits after it has opened the device, as one whose threads get no processor in time.
START_TEST(a_receiver_that_dies_early_is_noticed) {
  const Stage stage;
  const auto spin = [&stage](int step) {
    while (stage.board->step.load() < step) {
    }
  };
  const pid_t receiver = play([&]() -> int {
    stage.await(1);
    (void)keep_the_processor();  // without root it dies as early as it can
    const End end;
    end.connect(stage.board->sender_qpn);
    stage.board->peer_qpn = end.qp->qp_num;
    for (uint32_t i = 0; i < 2; ++i) end.post_recv(i);
    stage.reach(2);
    spin(3);
    kill(getpid(), SIGKILL);
    for (;;) pause();
  });
  const End end;
  stage.board->sender_qpn = end.qp->qp_num;
  stage.reach(1);
  stage.await(2);
  end.connect(stage.board->peer_qpn);
  ck_assert_int_eq(end.send(0, 1000).status, IBV_WC_SUCCESS);
  stage.reach(3);
  end_of(receiver);
  ck_assert_str_eq(ibv_wc_status_str(end.send(1, 1000).status), ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR));
}
END_TEST

constexpr uint32_t kStream = 3000;

START_TEST(a_stream_of_all_sizes_arrives_whole) {
  const Stage stage;
  const auto length_of = [](uint32_t i) { return i % 3 == 0 ? kSizes[i / 3 % std::size(kSizes)] : i * 2503 % kMost; };
  const pid_t sender = play([&] {
    const End end;
    meet(stage, end, true);
    for (uint32_t i = 0; i < kStream; ++i)
      if (end.send(i, length_of(i)).status != IBV_WC_SUCCESS) return 1;
    return 0;
  });
  const End end;
  meet(stage, end, false);
  uint32_t posted = 0;
  for (uint32_t i = 0; i < kStream; ++i) {
    // Sometimes all are there, and sometimes the sender has to wait for the next.
    const uint32_t ahead = i / 500 % 2 == 0 ? kDepth : 1;
    while (posted < kStream && posted < i + ahead) end.post_recv(posted++);
    ck_assert_msg(end.take(i, length_of(i)), "message %u of %u bytes", i, length_of(i));
  }
  ck_assert_int_eq(end_of(sender), 0);
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_device()) return 77;
  return fabric::test::run_suite("softhca_across",
                                 {{what_a_sender_has_sent_arrives_after_its_death, kMixes},
                                  {a_receiver_that_dies_with_messages_is_noticed_and_replaced, kMixes},
                                  a_receiver_that_dies_early_is_noticed,
                                  a_stream_of_all_sizes_arrives_whole});
}
