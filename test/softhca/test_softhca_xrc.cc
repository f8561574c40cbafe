// SPDX-License-Identifier: BSD-3-Clause
//
// XRC between processes: one sender, one target queue pair that several processes have open, each with shared receive
// queues and memory of its own. What MPI needs of it, as InfiniBand Architecture Specification 1.4, annex A14, promises.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <functional>
#include <set>

#include "test/softhca/xrc_world.h"
#include "test/unit/check_main.h"

namespace {

using namespace verbs_test;

constexpr int kReceivers = 3;
constexpr int kQueues = 2;
constexpr uint32_t kMessage = 64;
constexpr size_t kReceiveAt = 4096;  // in World::memory: a message each, by queue
constexpr size_t kRemoteAt = 6144;   // what others write, read and add to

/// What the processes tell each other.
struct Board {
  std::atomic<int> arrived[8];  ///< how many are at each step
  std::atomic<int> failed;
  uint32_t sender_qpn;
  uint32_t target_qpn;
  struct Receiver {
    uint32_t srqn[kQueues];
    uint64_t address;
    uint32_t rkey;
  } receivers[kReceivers];
};

/// Steps that all take part in.
enum Step { kMade, kOpened, kReady, kSent, kChecked, kCreatorGone, kSentAgain, kEnd };

class Theatre {
 public:
  Theatre()
      : board(static_cast<Board*>(
            mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    char name[] = "/tmp/xrc.XXXXXX";
    fd = mkstemp(name);
    unlink(name);
  }
  ~Theatre() {
    munmap(board, sizeof(Board));
    close(fd);
  }
  void reach(Step step) const { board->arrived[step].fetch_add(1); }
  /// Waits until so many are at a step, ten seconds at most.
  void await(Step step, int count) const {
    for (int i = 0; board->arrived[step].load() < count; ++i) {
      ck_assert_msg(i < 10000, "step %d: %d of %d are there", step, board->arrived[step].load(), count);
      const timespec pause{0, 1000000};
      nanosleep(&pause, nullptr);
    }
  }
  void meet(Step step, int count = kReceivers + 1) const {
    reach(step);
    await(step, count);
  }
  Board* const board;
  int fd;
};

ibv_qp* make_target(const World& w, ibv_xrcd* xrcd, uint32_t sender) {
  ibv_qp* const target = new_target(w, xrcd);
  w.to_init(target);
  w.to_rtr(target, sender);
  return target;  // a target never sends: RTR is enough
}

/// What the sender writes to a queue of a receiver.
uint8_t content(int receiver, int queue) {
  return static_cast<uint8_t>(10 * receiver + queue + 1);
}

/// A message came in on every queue, and all the numbers are those of the target.
void expect_messages(const World& w, int me, uint32_t target) {
  bool seen[kQueues] = {};
  for (int i = 0; i < kQueues; ++i) {
    const ibv_wc wc = w.next();
    ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
    ck_assert_uint_eq(wc.qp_num, target);
    ck_assert_uint_lt(wc.wr_id, kQueues);
    ck_assert(!seen[wc.wr_id]);
    seen[wc.wr_id] = true;
    ck_assert_uint_eq(w.memory[kReceiveAt + wc.wr_id * kMessage], content(me, static_cast<int>(wc.wr_id)));
  }
}

void receiver(const Theatre& theatre, int me) {
  World w;
  Board& board = *theatre.board;
  ibv_xrcd* xrcd = open_domain(w, theatre.fd);
  theatre.await(kMade, 1);  // the sender
  if (me == 0) {
    board.target_qpn = make_target(w, xrcd, board.sender_qpn)->qp_num;
    theatre.reach(kMade);
  } else {
    theatre.await(kMade, 2);
    (void)open_target(w, xrcd, board.target_qpn);
  }
  theatre.meet(kOpened, kReceivers);
  ibv_srq* queues[kQueues];
  for (int i = 0; i < kQueues; ++i) {
    queues[i] = make_srq(w, xrcd, &board.receivers[me].srqn[i]);
    ck_assert_int_eq(
        w.post_srq_recv(queues[i], static_cast<uint64_t>(i), kReceiveAt + static_cast<size_t>(i) * kMessage, kMessage),
        0);
  }
  auto* counter = reinterpret_cast<uint64_t*>(w.memory.data() + kRemoteAt + kMessage);
  *counter = 100;
  board.receivers[me].address = w.address(kRemoteAt);
  board.receivers[me].rkey = w.mr->rkey;
  theatre.meet(kReady);
  expect_messages(w, me, board.target_qpn);
  theatre.await(kSent, 1);
  ck_assert_uint_eq(w.memory[kRemoteAt], content(me, 7));  // written
  ck_assert_uint_eq(*counter, 1000);                       // 100 + 5, and swapped
  for (int i = 0; i < kQueues; ++i)
    ck_assert_int_eq(
        w.post_srq_recv(queues[i], static_cast<uint64_t>(i), kReceiveAt + static_cast<size_t>(i) * kMessage, kMessage),
        0);
  theatre.reach(kChecked);
  if (me == 0) {
    theatre.await(kEnd, 1);  // and is killed before
    return;
  }
  expect_messages(w, me, board.target_qpn);
  theatre.reach(kSentAgain);
  theatre.await(kEnd, 1);
}

void send_to_queues(const World& w, ibv_qp* qp, const Board& board, int to_whom) {
  for (int queue = 0; queue < kQueues; ++queue) {
    std::memset(const_cast<uint8_t*>(w.memory.data()), content(to_whom, queue), kMessage);
    ibv_sge list = w.sge(0, kMessage);
    ck_assert_int_eq(World::post(qp, to(board.receivers[to_whom].srqn[queue], IBV_WR_SEND, list)), 0);
    w.expect(1, IBV_WC_SUCCESS);
  }
}

void reach_memory(const World& w, ibv_qp* qp, const Board& board, int whose) {
  const Board::Receiver& receiver = board.receivers[whose];
  auto* here = const_cast<uint8_t*>(w.memory.data());
  ibv_sge list = w.sge(0, kMessage);
  std::memset(here, content(whose, 7), kMessage);
  ibv_send_wr wr = to(receiver.srqn[0], IBV_WR_RDMA_WRITE, list);
  wr.wr.rdma = {receiver.address, receiver.rkey};
  ck_assert_int_eq(World::post(qp, wr), 0);
  w.expect(1, IBV_WC_SUCCESS);
  std::memset(here, 0, kMessage);
  wr.opcode = IBV_WR_RDMA_READ;
  ck_assert_int_eq(World::post(qp, wr), 0);
  w.expect(1, IBV_WC_SUCCESS);
  ck_assert_uint_eq(here[kMessage - 1], content(whose, 7));
  list.length = sizeof(uint64_t);
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.wr.atomic = {receiver.address + kMessage, 5, 0, receiver.rkey};
  ck_assert_int_eq(World::post(qp, wr), 0);
  w.expect(1, IBV_WC_SUCCESS);
  uint64_t before = 0;
  std::memcpy(&before, here, sizeof before);
  ck_assert_uint_eq(before, 100);
  wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  wr.wr.atomic = {receiver.address + kMessage, 105, 1000, receiver.rkey};
  ck_assert_int_eq(World::post(qp, wr), 0);
  w.expect(1, IBV_WC_SUCCESS);
  std::memcpy(&before, here, sizeof before);
  ck_assert_uint_eq(before, 105);
}

bool has_xrc() {
  World w;
  return (w.limits.device_cap_flags & IBV_DEVICE_XRC) != 0;
}

/// In a process of its own, so that this one's view of the device is nobody's.
bool device_has_xrc() {
  const pid_t asked = fork();
  if (asked == 0) _exit(has_xrc() ? 0 : 1);
  int status = 0;
  waitpid(asked, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

pid_t play(const std::function<void()>& part) {
  const pid_t actor = fork();
  if (actor == 0) {
    part();
    _exit(0);
  }
  return actor;
}

void expect_good_end(pid_t actor) {
  int status = 0;
  ck_assert_int_eq(waitpid(actor, &status, 0), actor);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a process ended with status %x", status);
}

/// Messages to every queue, writes, reads and atomics to the memory of every process; then the process that made the
/// target is killed, and the others still get theirs.
START_TEST(one_target_serves_many_processes) {
  ck_assert_msg(device_has_xrc(), "the device has no XRC");
  const Theatre theatre;
  Board& board = *theatre.board;
  pid_t receivers[kReceivers];
  for (int i = 0; i < kReceivers; ++i) receivers[i] = play([&theatre, i] { receiver(theatre, i); });
  const pid_t sender = play([&] {
    World w;
    ibv_qp* qp = w.make_qp(nullptr, IBV_QPT_XRC_SEND);
    board.sender_qpn = qp->qp_num;
    theatre.reach(kMade);
    theatre.await(kOpened, kReceivers);
    w.to_init(qp);
    w.to_rtr(qp, board.target_qpn);
    World::to_rts(qp);
    theatre.meet(kReady);
    for (int i = 0; i < kReceivers; ++i) {
      send_to_queues(w, qp, board, i);
      reach_memory(w, qp, board, i);
    }
    theatre.reach(kSent);
    theatre.await(kCreatorGone, 1);
    for (int i = 1; i < kReceivers; ++i) send_to_queues(w, qp, board, i);
  });
  theatre.await(kChecked, kReceivers);
  kill(receivers[0], SIGKILL);
  waitpid(receivers[0], nullptr, 0);
  theatre.reach(kCreatorGone);
  theatre.await(kSentAgain, kReceivers - 1);
  theatre.reach(kEnd);
  expect_good_end(sender);
  for (int i = 1; i < kReceivers; ++i) expect_good_end(receivers[i]);
}
END_TEST

/// A message waits for a receive of its own queue, and the limit event tells that receives run short.
START_TEST(queues_run_short) {
  ck_assert_msg(device_has_xrc(), "the device has no XRC");
  const Theatre theatre;
  Board& board = *theatre.board;
  const pid_t receiver = play([&] {
    World w;
    ibv_xrcd* xrcd = open_domain(w, theatre.fd);
    theatre.await(kMade, 1);
    board.target_qpn = make_target(w, xrcd, board.sender_qpn)->qp_num;
    ibv_srq* first = make_srq(w, xrcd, &board.receivers[0].srqn[0]);
    ibv_srq* second = make_srq(w, xrcd, &board.receivers[0].srqn[1]);
    for (uint64_t i = 0; i < 4; ++i) ck_assert_int_eq(w.post_srq_recv(first, i, kReceiveAt, kMessage), 0);
    ibv_srq_attr limit{0, 0, 3};
    ck_assert_int_eq(ibv_modify_srq(first, &limit, IBV_SRQ_LIMIT), 0);
    theatre.reach(kOpened);
    // The target is in RTR, so the first message is an event too.
    ibv_async_event event = w.next_event();
    if (event.event_type == IBV_EVENT_COMM_EST) {
      ibv_ack_async_event(&event);
      event = w.next_event();
    }
    ck_assert_int_eq(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    ck_assert_ptr_eq(event.element.srq, first);
    ibv_ack_async_event(&event);
    // The message to the second queue is on its way, and there is no receive.
    theatre.await(kSent, 1);
    const timespec pause{0, 50000000};
    nanosleep(&pause, nullptr);
    w.expect(0, IBV_WC_SUCCESS);
    w.expect(1, IBV_WC_SUCCESS);
    ck_assert(w.is_empty());
    ck_assert_int_eq(w.post_srq_recv(second, 9, kReceiveAt, kMessage), 0);
    w.expect(9, IBV_WC_SUCCESS);
    theatre.reach(kEnd);
    theatre.await(kChecked, 1);
  });
  const pid_t sender = play([&] {
    World w;
    ibv_qp* qp = w.make_qp(nullptr, IBV_QPT_XRC_SEND);
    board.sender_qpn = qp->qp_num;
    theatre.reach(kMade);
    theatre.await(kOpened, 1);
    w.to_init(qp);
    w.to_rtr(qp, board.target_qpn);
    World::to_rts(qp);
    ibv_sge list = w.sge(0, 8);
    for (int i = 0; i < 2; ++i) {
      ck_assert_int_eq(World::post(qp, to(board.receivers[0].srqn[0], IBV_WR_SEND, list)), 0);
      w.expect(1, IBV_WC_SUCCESS);
    }
    ck_assert_int_eq(World::post(qp, to(board.receivers[0].srqn[1], IBV_WR_SEND, list, 2)), 0);
    theatre.reach(kSent);
    theatre.await(kEnd, 1);
    w.expect(2, IBV_WC_SUCCESS);
    theatre.reach(kChecked);
  });
  expect_good_end(receiver);
  expect_good_end(sender);
}
END_TEST

/// A queue that has been destroyed is the sender's mistake, of which both sides hear at once.
START_TEST(a_queue_that_is_gone_refuses) {
  ck_assert_msg(device_has_xrc(), "the device has no XRC");
  const Theatre theatre;
  Board& board = *theatre.board;
  const pid_t receiver = play([&] {
    World w;
    ibv_xrcd* xrcd = open_domain(w, theatre.fd);
    theatre.await(kMade, 1);
    board.target_qpn = make_target(w, xrcd, board.sender_qpn)->qp_num;
    ibv_srq* queue = make_srq(w, xrcd, &board.receivers[0].srqn[0]);
    ck_assert_int_eq(w.post_srq_recv(queue, 0, kReceiveAt, kMessage), 0);
    theatre.reach(kOpened);
    theatre.await(kSent, 1);
    w.expect(0, IBV_WC_SUCCESS);
    ck_assert_int_eq(ibv_destroy_srq(queue), 0);
    theatre.reach(kChecked);
    ibv_async_event event = w.next_event();
    while (event.event_type != IBV_EVENT_QP_REQ_ERR) {
      ck_assert_int_eq(event.event_type, IBV_EVENT_COMM_EST);
      ibv_ack_async_event(&event);
      event = w.next_event();
    }
    ck_assert_uint_eq(event.element.qp->qp_num, board.target_qpn);
    ibv_ack_async_event(&event);
    theatre.reach(kEnd);
  });
  const pid_t sender = play([&] {
    World w;
    ibv_qp* qp = w.make_qp(nullptr, IBV_QPT_XRC_SEND);
    board.sender_qpn = qp->qp_num;
    theatre.reach(kMade);
    theatre.await(kOpened, 1);
    w.to_init(qp);
    w.to_rtr(qp, board.target_qpn);
    World::to_rts(qp);
    ibv_sge list = w.sge(0, 8);
    ck_assert_int_eq(World::post(qp, to(board.receivers[0].srqn[0], IBV_WR_SEND, list)), 0);
    w.expect(1, IBV_WC_SUCCESS);
    theatre.reach(kSent);
    theatre.await(kChecked, 1);
    ck_assert_int_eq(World::post(qp, to(board.receivers[0].srqn[0], IBV_WR_SEND, list)), 0);
    w.expect(1, IBV_WC_REM_INV_REQ_ERR);
    theatre.await(kEnd, 1);
  });
  expect_good_end(receiver);
  expect_good_end(sender);
}
END_TEST

/// So many handles of the target are told that a request was not valid, each once.
void expect_request_errors(const World& w, std::set<ibv_qp*> handles) {
  while (!handles.empty()) {
    ibv_async_event event = w.next_event();
    ck_assert_str_eq(ibv_event_type_str(event.event_type), ibv_event_type_str(IBV_EVENT_QP_REQ_ERR));
    ck_assert_uint_eq(handles.erase(event.element.qp), 1);
    ibv_ack_async_event(&event);
  }
}

/// Events of a target are told to every handle of it that is open, in every process, whenever they happen.
START_TEST(every_handle_is_told) {
  ck_assert_msg(device_has_xrc(), "the device has no XRC");
  const Theatre theatre;
  Board& board = *theatre.board;
  const pid_t creator = play([&] {
    World w;
    ibv_xrcd* xrcd = open_domain(w, theatre.fd);
    ck_assert_int_eq(ibv_destroy_srq(make_srq(w, xrcd, &board.receivers[0].srqn[0])), 0);
    theatre.await(kMade, 1);
    ibv_qp* first = make_target(w, xrcd, board.sender_qpn);
    ibv_qp* second = open_target(w, xrcd, first->qp_num);
    board.target_qpn = first->qp_num;
    theatre.reach(kMade);
    theatre.await(kOpened, 1);
    theatre.reach(kReady);
    expect_request_errors(w, {first, second});
    theatre.meet(kChecked, 2);
    ck_assert_int_eq(ibv_destroy_qp(first), 0);
    ck_assert_int_eq(World::set_state(second, IBV_QPS_RESET), 0);
    w.to_init(second);
    w.to_rtr(second, board.sender_qpn);
    theatre.reach(kCreatorGone);
    expect_request_errors(w, {second});
    theatre.meet(kEnd, 3);
    ck_assert(!World::readable(w.context->async_fd, 0));
  });
  const pid_t other = play([&] {
    World w;
    ibv_xrcd* xrcd = open_domain(w, theatre.fd);
    theatre.await(kMade, 2);
    ibv_qp* target = open_target(w, xrcd, board.target_qpn);
    theatre.reach(kOpened);
    expect_request_errors(w, {target});
    theatre.reach(kChecked);
    expect_request_errors(w, {target});
    // Who comes later hears nothing of what has been.
    (void)open_target(w, xrcd, board.target_qpn);
    theatre.meet(kEnd, 3);
    ck_assert(!World::readable(w.context->async_fd, 50));
  });
  const pid_t sender = play([&] {
    World w;
    ibv_qp* qp = w.make_qp(nullptr, IBV_QPT_XRC_SEND);
    board.sender_qpn = qp->qp_num;
    theatre.reach(kMade);
    for (const Step ready : {kReady, kCreatorGone}) {
      theatre.await(ready, 1);
      ck_assert_int_eq(World::set_state(qp, IBV_QPS_RESET), 0);
      w.to_init(qp);
      w.to_rtr(qp, board.target_qpn);
      World::to_rts(qp);
      ibv_sge list = w.sge(0, 8);
      ck_assert_int_eq(World::post(qp, to(board.receivers[0].srqn[0], IBV_WR_SEND, list)), 0);
      w.expect(1, IBV_WC_REM_INV_REQ_ERR);
    }
    theatre.meet(kEnd, 3);
  });
  for (const pid_t actor : {creator, other, sender}) expect_good_end(actor);
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite("softhca_xrc", {one_target_serves_many_processes, queues_run_short,
                                                 a_queue_that_is_gone_refuses, every_handle_is_told});
}
