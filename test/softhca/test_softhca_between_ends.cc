// SPDX-License-Identifier: BSD-3-Clause
//
// Receivers that are not ready, not there, or full; unreliable connections and datagrams, which tell the sender nothing; XRC; and
// how it goes on after an error. Last, every completion status, and where it comes from.
#include "test/softhca/between.h"

namespace {

using namespace verbs_test;

constexpr uint32_t kLength = 64;
constexpr uint64_t kReceive = 7;

void expect_undisturbed(const Side& side) {
  ck_assert(!World::readable(side.w.context->async_fd, 30));
  ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_RTS);
  ck_assert(side.nothing_received());
  ck_assert(side.untouched(0, side.w.memory.size(), 0xaa));
}
/// What has been posted behind an error is flushed, and the queue pair is in that state.
void expect_end(const Side& side, ibv_qp_state state = IBV_QPS_ERR) {
  ibv_sge list = side.w.sge(0, kLength);
  if (state == IBV_QPS_ERR) side.expect(side.request(IBV_WR_RDMA_WRITE, list), IBV_WC_WR_FLUSH_ERR);
  ck_assert_int_eq(World::state_of(side.qp), state);
  ck_assert(side.w.is_empty());
}

// --- Not ready

constexpr ibv_wr_opcode kReceived[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};
constexpr uint32_t kLengths[] = {8, 4000, 12000};
constexpr int kNotReady = static_cast<int>(std::size(kReceived) * std::size(kLengths));

/// InfiniBand asks again until rnr_retry is used up, and the responder knows nothing of it. iWARP cannot ask.
START_TEST(nobody_receives) {
  const ibv_wr_opcode opcode = kReceived[_i % std::size(kReceived)];
  const uint32_t length = kLengths[_i / std::size(kReceived)];
  if (opcode != IBV_WR_SEND && !have_device()) return;
  between(
      {.shared = _i % 2 != 0, .rnr_retry = 1},
      [&](const Side& side) {
        greet(side);
        ibv_sge list = side.w.sge(0, length);
        side.expect(side.request(opcode, list), side.iwarp ? IBV_WC_REM_OP_ERR : IBV_WC_RNR_RETRY_EXC_ERR);
        expect_end(side);
        side.line.done();
      },
      [&](const Side& side) {
        be_greeted(side);
        side.line.await();
        if (!side.iwarp && opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {  // may have been written already
          ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_RTS);
          ck_assert(side.nothing_received());
        } else if (!side.iwarp) {
          expect_undisturbed(side);
        } else {
          // A shared queue is told as well that nothing will come any more.
          ibv_async_event event{};
          do {
            event = side.w.next_event();
            ibv_ack_async_event(&event);
          } while (event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
          ck_assert_int_eq(event.event_type, IBV_EVENT_QP_FATAL);
          ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_ERR);
        }
      });
}
END_TEST

/// With rnr_retry 7 a request waits as long as it takes, and those behind it too.
START_TEST(a_late_receiver_has_all_in_order) {
  if (!have_device()) return;
  between(
      {.shared = _i != 0},
      [](const Side& side) {
        for (uint32_t i = 0; i < 10; ++i) {
          side.w.memory[i * 100] = static_cast<uint8_t>(i);
          ck_assert_int_eq(side.w.post_send(side.qp, i, i * 100, 90), 0);
        }
        ck_assert(side.w.is_empty());
        side.line.done();
        for (uint32_t i = 0; i < 10; ++i) side.w.expect(i, IBV_WC_SUCCESS);
      },
      [](const Side& side) {
        side.line.await();
        for (uint32_t i = 0; i < 10; ++i) {
          side.post_recv(i, 0, 100);
          ck_assert_uint_eq(side.expect_received(i).byte_len, 90);
          ck_assert_uint_eq(side.w.memory[0], i);
        }
      });
}
END_TEST

// --- Not there

constexpr ibv_wr_opcode kAcknowledged[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                           IBV_WR_ATOMIC_FETCH_AND_ADD};
enum Absence { kKilled, kDestroyed, kReset, kFailed, kAbsences };
constexpr int kAbsent = kAbsences * static_cast<int>(std::size(kAcknowledged));

/// Nobody answers: retry_cnt is used up. (On iWARP the other side's end closes the connection; then requests are flushed.)
START_TEST(nobody_answers) {
  const ibv_wr_opcode opcode = kAcknowledged[_i / kAbsences];
  const auto absence = static_cast<Absence>(_i % kAbsences);
  if (!have_device() && (absence == kReset || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)) return;
  between(
      {},
      [&](const Side& side) {
        greet(side);
        side.line.await();
        if (absence == kKilled) side.kill_other();
        ibv_sge list = side.w.sge(0, opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : kLength);
        ibv_send_wr wr = side.request(opcode, list);
        if (side.iwarp)
          while (World::state_of(side.qp) != IBV_QPS_ERR) Stage::pause_a_moment();
        side.expect(wr, side.iwarp ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
        expect_end(side);
        ck_assert(side.untouched(0, side.w.memory.size(), 0x55));
      },
      [&](const Side& side) {
        be_greeted(side);
        side.post_recv(kReceive, 0, kLength);
        if (absence == kDestroyed) ck_assert_int_eq(ibv_destroy_qp(side.qp), 0);
        if (absence == kReset) ck_assert_int_eq(World::set_state(side.qp, IBV_QPS_RESET), 0);
        if (absence == kFailed) ck_assert_int_eq(World::set_state(side.qp, IBV_QPS_ERR), 0);
        side.line.done();
      });
}
END_TEST

/// The receiver's completion queue has no room: its queue and its queue pair fail, and the sender hears of an operation error.
START_TEST(a_completion_queue_overruns) {
  between(
      {.shared = _i != 0, .receives = 1},
      [](const Side& side) {
        greet(side);
        const auto room = side.line.take<int>();
        ibv_sge list = side.w.sge(0, kLength);
        for (int i = 0; i < room; ++i) side.expect(side.request(IBV_WR_SEND, list));
        side.expect(side.request(IBV_WR_SEND, list), IBV_WC_REM_OP_ERR);
        expect_end(side);
        side.line.done();
      },
      [](const Side& side) {
        be_greeted(side);
        ck_assert_int_lt(side.receives->cqe, 32);
        for (int i = 0; i <= side.receives->cqe; ++i) side.post_recv(kReceive, 0, kLength);
        side.line.give(side.receives->cqe);
        side.line.await();
        unsigned told = 0;
        while (told != 3) {
          ibv_async_event event = side.w.next_event();
          if (event.event_type == IBV_EVENT_QP_FATAL && event.element.qp == side.qp) told |= 1;
          if (event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == side.receives) told |= 2;
          ibv_ack_async_event(&event);
        }
        ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_ERR);
      });
}
END_TEST

// --- Nobody is told: UC and UD

// Posts what the responder must not notice; the message behind it arrives.
void expect_lost(const Side& side, ibv_send_wr lost, ibv_send_wr good) {
  side.expect(lost);
  side.line.done();
  side.line.await();
  side.expect(good);
}
void notice_nothing(const Side& side) {
  side.line.await();
  expect_undisturbed(side);
  side.post_recv(kReceive, 0, 200);
  side.line.done();
  side.expect_received(kReceive);
  std::fill(side.w.memory.begin(), side.w.memory.end(), 0xaa);
}
// An error at home stops the send queue alone, which the program starts again.
void stumble(const Side& side, ibv_send_wr good) {
  ibv_sge wrong = good.sg_list[0];
  wrong.lkey ^= 0x5500;
  ibv_send_wr bad = good;
  bad.sg_list = &wrong;
  side.expect(bad, IBV_WC_LOC_PROT_ERR);
  side.expect(good, IBV_WC_WR_FLUSH_ERR);
  expect_end(side, IBV_QPS_SQE);
  ck_assert_int_eq(World::set_state(side.qp, IBV_QPS_RTS), 0);
}
void expect_too_long(const Side& side, uint32_t room) {
  side.post_recv(kReceive, 0, room);
  side.post_recv(kReceive + 1, 0, 200);
  side.line.done();
  side.expect_received(kReceive, IBV_WC_LOC_LEN_ERR);
  side.expect_received(kReceive + 1, IBV_WC_WR_FLUSH_ERR);
  ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_ERR);
  ck_assert(side.untouched(0, side.w.memory.size(), 0xaa));
}

START_TEST(an_unreliable_connection_tells_nothing) {
  constexpr int kWrong = 5;
  between(
      {.type = IBV_QPT_UC},
      [](const Side& side) {
        ibv_sge list = side.w.sge(0, kLength);
        const ibv_send_wr good = side.request(IBV_WR_SEND, list);
        for (int i = 0; i < kWrong; ++i) {
          Facts at = side.other;
          if (i == 1) at.rkey ^= 0x5500;
          if (i == 2) at.address += side.w.memory.size();
          constexpr ibv_wr_opcode kOpcodes[kWrong] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
                                                      IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE};
          if (i == kWrong - 1) side.line.await();
          ibv_send_wr lost = Side::request(kOpcodes[i], list, at);
          if (i == 3) lost.wr.rdma.rkey ^= 0x5500;
          expect_lost(side, lost, good);
        }
        stumble(side, good);
        side.line.await();
        side.expect(good);
        ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_RTS);
      },
      [](const Side& side) {
        for (int i = 0; i < kWrong; ++i) {
          if (i == kWrong - 1) {  // a write that this queue pair does not take
            ibv_qp_attr attr{};
            attr.qp_state = IBV_QPS_RTS;
            attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
            ck_assert_int_eq(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
            side.line.done();
          }
          notice_nothing(side);
        }
        expect_too_long(side, kLength - 1);
      });
}
END_TEST

START_TEST(a_datagram_tells_nothing) {
  between(
      {.type = IBV_QPT_UD},
      [](const Side& side) {
        ibv_sge list = side.w.sge(0, kLength);
        const ibv_send_wr good = side.datagram(list);
        for (int i = 0; i < 3; ++i) {
          ibv_send_wr lost = good;  // the first: there is no receive request
          if (i == 1) ++lost.wr.ud.remote_qkey;
          if (i == 2) ++lost.wr.ud.remote_qpn;
          expect_lost(side, lost, good);
        }
        ibv_sge much = side.w.sge(0, 4097);
        ck_assert_int_eq(World::post(side.qp, side.datagram(much)), EINVAL);  // more than the port's MTU
        stumble(side, good);
        side.line.await();
        side.expect(good);
        ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_RTS);
      },
      [](const Side& side) {
        for (int i = 0; i < 3; ++i) notice_nothing(side);
        expect_too_long(side, kHeader + kLength - 1);
      });
}
END_TEST

// --- XRC: what is wrong with a queue or a key fails the target

enum XrcError { kNoQueue, kTooLong, kNoKey, kLateReceiver, kXrcErrors };
START_TEST(xrc) {
  const auto error = static_cast<XrcError>(_i);
  constexpr ibv_wc_status kStatus[kXrcErrors] = {IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR,
                                                 IBV_WC_RNR_RETRY_EXC_ERR};
  between(
      {.type = IBV_QPT_XRC_SEND, .rnr_retry = 1},
      [&](const Side& side) {
        greet(side);
        side.line.await();
        ibv_sge list = side.w.sge(0, kLength);
        ibv_send_wr wr = side.request(error == kNoKey ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, list);
        wr.wr_id = 1;
        wr.qp_type.xrc.remote_srqn = side.other.srqn + (error == kNoQueue ? 1 : 0);
        wr.wr.rdma.rkey ^= 0x5500;
        ck_assert_int_eq(World::post(side.qp, wr), 0);
        side.w.expect(1, kStatus[error]);
        expect_end(side);
        side.line.done();
      },
      [&](const Side& side) {
        be_greeted(side);
        if (error != kLateReceiver) side.post_recv(kReceive, 0, kLength - 1);
        side.line.done();
        side.line.await();
        if (error == kTooLong) side.expect_received(kReceive, IBV_WC_LOC_LEN_ERR);
        ck_assert(side.nothing_received());
        ck_assert_int_eq(World::state_of(side.qp), error == kLateReceiver ? IBV_QPS_RTS : IBV_QPS_ERR);
        ck_assert(side.untouched(0, side.w.memory.size(), 0xaa));
      });
}
END_TEST

// --- Afterwards

/// From ERR by RESET back to RTS: nothing of before is left. (On iWARP it is the connection manager that connects.)
START_TEST(a_connection_begins_anew) {
  if (!have_device()) return;
  const auto reset = [](const Side& side) {
    ck_assert_int_eq(World::set_state(side.qp, IBV_QPS_RESET), 0);
    side.connect_again();
    ck_assert(side.w.is_empty() && side.nothing_received());
  };
  between(
      {},
      [&](const Side& side) {
        for (int i = 0; i < 3; ++i) {
          greet(side);
          ibv_sge list = side.w.sge(0, kLength);
          ibv_send_wr wr = side.request(IBV_WR_RDMA_READ, list);
          wr.wr.rdma.rkey ^= 0x5500;
          side.expect(wr, IBV_WC_REM_ACCESS_ERR);
          reset(side);
        }
      },
      [&](const Side& side) {
        for (int i = 0; i < 3; ++i) {
          be_greeted(side);
          side.w.expect_event(IBV_EVENT_QP_ACCESS_ERR);
          reset(side);
        }
      });
}
END_TEST

// --- Every completion status: where it comes from between processes, and is tested. A fault rule makes each of them on any request
// (test_softhca_between_faults.cc, a_rule_makes_any_status); `rule`: nothing else does.
//
// SUCCESS            everywhere
// LOC_LEN_ERR        errors: one byte too long; UC, UD, XRC
// LOC_QP_OP_ERR      test_softhca_fabric: no_room_for_a_copy
// LOC_EEC_OP_ERR     rule: end-to-end contexts are of reliable datagrams, which verbs do not have
// LOC_PROT_ERR       errors: wrong keys at either side; UC, UD; windows: a_window_is_for_the_peer
// WR_FLUSH_ERR       errors: all that is behind an error, and what the responder has posted
// MW_BIND_ERR        windows: windows_that_cannot_be; errors: invalidates a region here
// BAD_RESP_ERR       rule: the responder's answer is made by the requester's process
// LOC_ACCESS_ERR     rule: the key of a write with immediate data is looked at before a receive request is taken
// REM_INV_REQ_ERR    errors: queue pairs without, not aligned, too long; XRC
// REM_ACCESS_ERR     errors: keys, bounds, rights; windows: the same, and what ends them
// REM_OP_ERR         errors: receive, wrong key; a_completion_queue_overruns
// RETRY_EXC_ERR      nobody_answers; faults: drop
// RNR_RETRY_EXC_ERR  nobody_receives, xrc; faults: rnr
// LOC_RDD_VIOL_ERR   rule: of reliable datagrams
// REM_INV_RD_REQ_ERR rule: of reliable datagrams
// REM_ABORT_ERR      rule: of reliable datagrams
// INV_EECN_ERR       rule: of reliable datagrams
// INV_EEC_STATE_ERR  rule: of reliable datagrams
// FATAL_ERR          rule: a device that fails completes nothing (IBV_EVENT_DEVICE_FATAL)
// RESP_TIMEOUT_ERR   rule: of reliable datagrams
// GENERAL_ERR        rule: softhca knows what was wrong
// TM_ERR, TM_RNDV_INCOMPLETE never: tag matching is refused

}  // namespace

int main() {
  if (!verbs_test::have_any_device()) return 77;
  return fabric::test::run_suite("softhca_between_ends", {{nobody_receives, kNotReady},
                                                          {a_late_receiver_has_all_in_order, 2},
                                                          {nobody_answers, kAbsent},
                                                          {a_completion_queue_overruns, 2},
                                                          an_unreliable_connection_tells_nothing,
                                                          a_datagram_tells_nothing,
                                                          {xrc, kXrcErrors},
                                                          a_connection_begins_anew});
}
