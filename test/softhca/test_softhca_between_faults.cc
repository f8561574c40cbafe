// SPDX-License-Identifier: BSD-3-Clause
//
// What fault rules do to requests between processes: every completion status, which the requester sees, and what becomes of the
// responder, with and without the message.
#include <cstdlib>
#include <fstream>
#include <string>

#include "test/softhca/between.h"

namespace {

using namespace verbs_test;

constexpr uint32_t kLength = 64;

/// These rules hold for processes that are made from now on.
void rule(const std::string& text) {
  std::ofstream(std::string(getenv("SOFTHCA_DIR")) + "/faults") << text << "\n";
}

constexpr const char* kStatuses[] = {"SUCCESS",          "LOC_LEN_ERR",       "LOC_QP_OP_ERR",     "LOC_EEC_OP_ERR",
                                     "LOC_PROT_ERR",     "WR_FLUSH_ERR",      "MW_BIND_ERR",       "BAD_RESP_ERR",
                                     "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",   "REM_ACCESS_ERR",    "REM_OP_ERR",
                                     "RETRY_EXC_ERR",    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR",  "REM_INV_RD_REQ_ERR",
                                     "REM_ABORT_ERR",    "INV_EECN_ERR",      "INV_EEC_STATE_ERR", "FATAL_ERR",
                                     "RESP_TIMEOUT_ERR", "GENERAL_ERR"};
static_assert(std::size(kStatuses) == IBV_WC_GENERAL_ERR + 1);
constexpr int kRuns = 2 * static_cast<int>(std::size(kStatuses));

/// The second SEND completes with it, what is behind that is flushed, and the responder has the message only if it was executed.
START_TEST(a_rule_makes_any_status) {
  const int status = _i / 2;
  const bool executed = _i % 2 != 0;
  rule(std::string("error op=send nth=2 status=") + kStatuses[status] + (executed ? " executed=yes" : ""));
  between(
      {},
      [&](const Side& side) {
        greet(side);
        side.line.await();
        ibv_sge list = side.w.sge(0, kLength);
        ibv_send_wr behind = side.request(IBV_WR_RDMA_WRITE, list);
        behind.wr_id = 2;
        ibv_send_wr wr = side.request(IBV_WR_SEND, list);
        wr.wr_id = 1;
        wr.next = &behind;
        ck_assert_int_eq(World::post(side.qp, wr), 0);
        side.w.expect(1, static_cast<ibv_wc_status>(status));
        side.w.expect(2, IBV_WC_WR_FLUSH_ERR);
        ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_ERR);
        ck_assert(side.w.is_empty() && !World::readable(side.w.context->async_fd, 0));
        side.line.done();
      },
      [&](const Side& side) {
        be_greeted(side);
        side.post_recv(7, 1024, kLength);
        side.line.done();
        side.line.await();
        if (executed)
          side.expect_received(7);
        else if (side.iwarp)
          side.expect_received(7, IBV_WC_WR_FLUSH_ERR);  // the connection has ended
        ck_assert(side.nothing_received());
        ck_assert_int_eq(World::state_of(side.qp), side.iwarp ? IBV_QPS_ERR : IBV_QPS_RTS);
        ck_assert(side.untouched(1024, 1024 + kLength, executed ? 0x55 : 0xaa));
        ck_assert(side.untouched(0, 1024, 0xaa) && side.untouched(1024 + kLength, side.w.memory.size(), 0xaa));
      });
}
END_TEST

/// What a rule has decided holds when the responder is not ready at the first try.
START_TEST(a_rule_holds_for_the_next_try) {
  if (!have_device()) return;
  rule("error op=send nth=2 status=GENERAL_ERR executed=yes");
  between(
      {},
      [](const Side& side) {
        greet(side);
        ibv_sge list = side.w.sge(0, kLength);
        ibv_send_wr wr = side.request(IBV_WR_SEND, list);
        wr.wr_id = 1;
        ck_assert_int_eq(World::post(side.qp, wr), 0);
        ck_assert(side.w.is_empty());
        side.line.done();
        side.w.expect(1, IBV_WC_GENERAL_ERR);
        ck_assert_int_eq(World::state_of(side.qp), IBV_QPS_ERR);
      },
      [](const Side& side) {
        be_greeted(side);
        side.line.await();
        side.post_recv(7, 1024, kLength);
        side.expect_received(7);
        ck_assert(side.untouched(1024, 1024 + kLength, 0x55));
      });
}
END_TEST

// --- Other rules

constexpr bool kNever = false;
enum class On { All, InfiniBand, Iwarp };
struct Fault {
  const char* rule;
  ibv_wr_opcode opcode;
  ibv_wc_status status;
  bool arrives;
  On on = On::All;
};
constexpr Fault kFaults[] = {
    // Each try is lost.
    {"drop op=write", IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR, kNever},
    {"drop op=read", IBV_WR_RDMA_READ, IBV_WC_RETRY_EXC_ERR, kNever},
    {"drop op=atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_RETRY_EXC_ERR, kNever, On::InfiniBand},
    // The next is not.
    {"drop op=write count=1", IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS, true},
    {"drop op=read count=2", IBV_WR_RDMA_READ, IBV_WC_SUCCESS, true},
    {"drop op=atomic count=1", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_SUCCESS, true, On::InfiniBand},
    // Its sender is told that it has arrived.
    {"lose op=write", IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS, kNever},
    {"lose op=read", IBV_WR_RDMA_READ, IBV_WC_SUCCESS, kNever},
    // It is asked again as often as rnr_retry says, whatever the operation. iWARP cannot ask: the connection ends.
    {"rnr op=write", IBV_WR_RDMA_WRITE, IBV_WC_RNR_RETRY_EXC_ERR, kNever, On::InfiniBand},
    {"rnr op=write count=1", IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS, true, On::InfiniBand},
    {"rnr op=read", IBV_WR_RDMA_READ, IBV_WC_RNR_RETRY_EXC_ERR, kNever, On::InfiniBand},
    {"rnr op=write", IBV_WR_RDMA_WRITE, IBV_WC_REM_OP_ERR, kNever, On::Iwarp},
    {"rnr op=read count=1", IBV_WR_RDMA_READ, IBV_WC_REM_OP_ERR, kNever, On::Iwarp},
    {"delay us=2000 op=write", IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS, true},
    {"delay us=2000 op=read", IBV_WR_RDMA_READ, IBV_WC_SUCCESS, true},
};
constexpr int kFaultCount = static_cast<int>(std::size(kFaults));

START_TEST(a_rule_strikes_where_it_says) {
  const Fault& fault = kFaults[_i];
  if (fault.on != On::All && (fault.on == On::Iwarp) == have_device()) return;
  rule(fault.rule);
  const bool takes = fault.opcode != IBV_WR_RDMA_WRITE;
  between(
      {.rnr_retry = 1},
      [&](const Side& side) {
        greet(side);
        const uint32_t length = fault.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : kLength;
        ibv_sge list = side.w.sge(0, length);
        side.expect(side.request(fault.opcode, list), fault.status);
        ck_assert_int_eq(World::state_of(side.qp), fault.status == IBV_WC_SUCCESS ? IBV_QPS_RTS : IBV_QPS_ERR);
        ck_assert(side.untouched(0, length, takes && fault.arrives ? 0xaa : 0x55));
        side.line.done();
      },
      [&](const Side& side) {
        be_greeted(side);
        side.line.await();
        if (!takes) ck_assert(side.untouched(0, kLength, fault.arrives ? 0x55 : 0xaa));
        if (fault.status == IBV_WC_REM_OP_ERR) side.w.expect_event(IBV_EVENT_QP_FATAL);
        ck_assert(side.nothing_received());
      });
}
END_TEST

constexpr const char* kAt[] = {"before", "middle", "completing", "completed"};
constexpr int kPlaces = static_cast<int>(std::size(kAt));

/// A request that kills its process: the responder has it, or not, and goes on. In the second half of the runs it is not ready at the
/// first try.
START_TEST(a_rule_kills) {
  const int place = _i % kPlaces;
  const bool late = _i >= kPlaces;
  if (late && (place == 0 || !have_device())) return;
  const bool arrives = place == 3;
  rule(std::string("kill op=send nth=2 at=") + kAt[place]);
  int line[2];
  ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line), 0);
  const pid_t requester = fork();
  ck_assert_int_ge(requester, 0);
  if (requester == 0) {
    const Side side({}, line[1], -1, getppid());
    greet(side);
    side.line.await();
    ibv_sge list = side.w.sge(0, kLength);
    ck_assert_int_eq(World::post(side.qp, side.request(IBV_WR_SEND, list)), 0);
    if (late) side.line.done();
    (void)side.w.next();
    _exit(0);  // it should not come to this
  }
  close(line[1]);
  const Side side({}, line[0], -1, 0);
  be_greeted(side);
  if (late) {
    side.line.done();
    side.line.await();
  }
  side.post_recv(7, 1024, kLength);
  if (!late) side.line.done();
  ck_assert(WIFSIGNALED(end_of(requester)));
  if (arrives) side.expect_received(7);
  // What it had taken and not completed is not lost: it comes back when the queue is flushed.
  ck_assert_int_eq(World::set_state(side.qp, IBV_QPS_ERR), 0);
  if (!arrives) side.expect_received(7, IBV_WC_WR_FLUSH_ERR);
  ck_assert(side.nothing_received());
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_any_device()) return 77;
  return fabric::test::run_suite("softhca_between_faults", {{a_rule_makes_any_status, 2, kRuns},
                                                            a_rule_holds_for_the_next_try,
                                                            {a_rule_strikes_where_it_says, kFaultCount},
                                                            {a_rule_kills, 2 * kPlaces}});
}
