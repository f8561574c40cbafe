// SPDX-License-Identifier: BSD-3-Clause
//
// How processes end, and what others then do with what was theirs: killed, by exit, by exec; and children, which have nothing
// of their parent's. Below softhca-run; it looks into the fabric's file.
#include <sys/syscall.h>

#include <cstdlib>
#include <string>

#include "fabric/layout.h"
#include "test/softhca/two_processes.h"

namespace {

using namespace verbs_test;

/// Gives the number of a process that is gone to another, as the kernel does in time: where the fabric knows it from.
void rename_process(pid_t gone, pid_t other) {
  const int fd = open((std::string(getenv("SOFTHCA_DIR")) + "/slots").c_str(), O_RDWR);
  ck_assert_int_ge(fd, 0);
  int found = 0;
  for (unsigned slot = 1; slot < softhca::kSlots; ++slot) {
    const auto at = static_cast<off_t>(slot * softhca::kSlotBytes + offsetof(softhca::SlotHeader, pid));
    int32_t pid = 0;
    if (pread(fd, &pid, sizeof pid, at) != sizeof pid || pid != gone) continue;
    ck_assert_int_eq(pwrite(fd, &other, sizeof other, at), sizeof other);
    ++found;
  }
  ck_assert_int_eq(found, 1);
  close(fd);
}

/// Nobody writes to a process only because it has the number that a dead one had; who sends to the dead is told, if anybody is.
START_TEST(a_dead_peer_is_nobody_else) {
  const Stage stage;
  int go[2];
  ck_assert_int_eq(pipe(go), 0);
  const pid_t stranger = play([&] {
    char byte = 0;
    close(go[1]);
    if (read(go[0], &byte, 1) != 0) return 2;
    return std::all_of(area, area + sizeof area, [](uint8_t b) { return b == 0; }) ? 0 : 1;
  });
  const pid_t peer = play([&] { return be_peer(stage, _i); });
  const Sender sender(stage, _i);
  kill(peer, SIGKILL);
  end_of(peer);
  rename_process(peer, stranger);
  const ibv_wc wc = sender.send(*stage.board, _i);
  ck_assert_str_eq(ibv_wc_status_str(wc.status),
                   ibv_wc_status_str(_i == kDatagram ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR));
  close(go[1]);
  ck_assert_int_eq(end_of(stranger), 0);
}
END_TEST

// --- exit

/// What the handler of be_leaver needs.
const Stage* leaving_stage = nullptr;
const World* leaving_world = nullptr;
ibv_qp* leaving_qp = nullptr;

/// Handlers of exit are part of the program: a message comes in and is answered.
void answer_at_exit() {
  leaving_stage->reach(3);
  const bool came = leaving_world->next().status == IBV_WC_SUCCESS;
  const bool sent = leaving_world->post_send(leaving_qp, 2, 0, 8) == 0;
  _exit(came && sent && leaving_world->next().status == IBV_WC_SUCCESS ? 0 : 1);
}

START_TEST(a_process_that_exits_has_its_device_to_the_end) {
  const Stage stage;
  const pid_t leaver = play([&] {
    leaving_stage = &stage;
    if (atexit(answer_at_exit) != 0) return 1;  // before the device is opened: it runs after whatever that registers
    static World w;
    leaving_world = &w;
    stage.await(1);
    leaving_qp = w.make_qp();
    stage.board->peer_qpn = leaving_qp->qp_num;
    w.to_init(leaving_qp);
    w.to_rtr(leaving_qp, stage.board->sender_qpn);
    World::to_rts(leaving_qp);
    if (w.post_recv(leaving_qp, 1, 0, 64) != 0) return 1;
    stage.reach(2);
    exit(1);
  });
  const Sender sender(stage, kWrite);
  ck_assert_int_eq(sender.w.post_recv(sender.qp, 9, 4096, 64), 0);
  stage.await(3);
  ck_assert_int_eq(sender.w.post_send(sender.qp, 8, 0, 8), 0);
  sender.w.expect(8, IBV_WC_SUCCESS);
  sender.w.expect(9, IBV_WC_SUCCESS);
  ck_assert_int_eq(end_of(leaver), 0);
}
END_TEST

// --- Children

/// A child that the C library knows nothing of: no handler of fork has run in it.
START_TEST(a_child_without_handlers_has_not_its_parents_device) {
  World w;
  const auto qps = w.pair();
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child == 0) {
    ibv_wc wc{};
    const bool all_fail =
        w.post_send(qps[0], 1, 0, 8) != 0 && ibv_poll_cq(w.cq, 1, &wc) < 0 && ibv_alloc_pd(w.context) == nullptr;
    exit(all_fail ? 0 : 1);  // with the handlers of exit
  }
  ck_assert_int_eq(end_of(child), 0);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 8, w.address(4096), w.mr->rkey), 0);
  w.expect(1, IBV_WC_SUCCESS);
}
END_TEST

/// Children that end, one way or the other, take nothing with them.
START_TEST(children_end_and_the_device_stays) {
  const Stage stage;
  const pid_t peer = play([&] { return be_peer(stage, kWrite); });
  const Sender sender(stage, kWrite);
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      if (i == 0) exit(0);
      if (i == 1) _exit(0);
      execlp("true", "true", nullptr);
      _exit(1);
    }
    ck_assert_int_eq(end_of(child), 0);
    const timespec longer_than_a_watch{0, 120000000};
    nanosleep(&longer_than_a_watch, nullptr);
    ck_assert_int_eq(sender.send(*stage.board, kWrite).status, IBV_WC_SUCCESS);
  }
  kill(peer, SIGKILL);
  end_of(peer);
}
END_TEST

/// A program that calls exec is a new process of the fabric, and no longer the old one.
START_TEST(exec_begins_anew) {
  const Stage stage;
  int opened[2];
  ck_assert_int_eq(pipe(opened), 0);
  const pid_t peer = play([&] {
    return be_peer(stage, kWrite, [&] {
      stage.await(3);
      const std::string fd = std::to_string(opened[1]);
      execl("/proc/self/exe", "test_softhca_ends", "open", fd.c_str(), nullptr);
      _exit(1);
    });
  });
  const Sender sender(stage, kWrite);
  ck_assert_int_eq(sender.send(*stage.board, kWrite).status, IBV_WC_SUCCESS);
  stage.reach(3);
  char byte = 0;
  ck_assert_int_eq(read(opened[0], &byte, 1), 1);
  ck_assert_str_eq(ibv_wc_status_str(sender.send(*stage.board, kWrite).status),
                   ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR));
  kill(peer, SIGKILL);
  end_of(peer);
}
END_TEST

/// What be_peer becomes there: no test of Check's.
int open_again(int tell) {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = list[0] != nullptr ? ibv_open_device(list[0]) : nullptr;
  if (context == nullptr || ibv_alloc_pd(context) == nullptr || write(tell, "", 1) != 1) return 1;
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) return open_again(atoi(argv[2]));
  return fabric::test::run_suite("softhca_ends", {{a_dead_peer_is_nobody_else, kWays},
                                                  a_process_that_exits_has_its_device_to_the_end,
                                                  a_child_without_handlers_has_not_its_parents_device,
                                                  children_end_and_the_device_stays,
                                                  exec_begins_anew});
}
