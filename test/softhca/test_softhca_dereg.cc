// SPDX-License-Identifier: BSD-3-Clause
//
// To end a region takes as long however many queue pairs, completion queues and windows the process has: as long as no peer has
// used it, or one queue pair has let them. It is counted, not timed: a child is run one instruction at a time.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <thread>
#include <utility>

#include "test/softhca/fabric_file.h"
#include "test/softhca/verbs_world.h"

namespace {

thread_local void (*after_unlock)() = nullptr;  // what another thread does as soon as it can, once

}  // namespace

// For softhca, which finds this one before the C library's. ThreadSanitizer has its own.
#if defined(__SANITIZE_THREAD__)
constexpr bool kSeesUnlocks = false;
constexpr bool kCountsInstructions = false;  // its own for a lock vary by thousands
#else
constexpr bool kSeesUnlocks = true;
constexpr bool kCountsInstructions = true;
extern "C" [[gnu::visibility("default")]] int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static int (*unlock)(pthread_mutex_t*) = nullptr;
  if (unlock == nullptr) unlock = reinterpret_cast<decltype(unlock)>(dlsym(RTLD_NEXT, "pthread_mutex_unlock"));
  const int error = unlock(mutex);
  if (const auto now = std::exchange(after_unlock, nullptr)) now();
  return error;
}
#endif

namespace {

using namespace verbs_test;

// What must not differ: less than it takes to look at each of kMany, and more than a sanitizer's own free() varies by (800).
constexpr int kFew = 2;
constexpr int kMany = 400;
constexpr long kTolerance = 4L * (kMany - kFew);

using Call = std::function<void()>;

/// Instructions of what `prepare` gives, in a child. A signal is sent before and after it, which costs some.
long instructions_of(const std::function<Call()>& prepare) {
  const pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
    const Call call = prepare();
    raise(SIGSTOP);
    call();
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  const auto stops = [&] {
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) _exit(1);  // it has told Check why
    ck_assert(WIFSTOPPED(status));
    return WSTOPSIG(status);
  };
  ck_assert_int_eq(stops(), SIGSTOP);
  long count = 0;
  do {
    ck_assert_int_eq(ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr), 0);
    ++count;
  } while (stops() != SIGSTOP);
  ck_assert_int_eq(kill(child, SIGKILL), 0);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  return count;
}

enum Use { kUnused, kWritten, kReceived, kBoundAndUnbound, kUses };

void expect_sent(const World& w, ibv_qp* qp, ibv_send_wr wr) {
  wr.wr_id = 1;
  wr.send_flags |= IBV_SEND_SIGNALED;
  ck_assert_int_eq(World::post(qp, wr), 0);
  w.expect(1, IBV_WC_SUCCESS);
}

/// A region that has been used so, in a process with so many objects of each other kind: to be deregistered.
Call region_with(Use use, int others) {
  const World w;
  const auto qps = w.pair();
  for (int i = 0; i < others; ++i) {
    ibv_cq* cq = ibv_create_cq(w.context, 1, nullptr, nullptr, 0);
    ck_assert_ptr_nonnull(cq);
    ibv_qp_init_attr attr = w.qp_attributes();
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {1, 1, 1, 1, 0};
    ck_assert_ptr_nonnull(ibv_create_qp(w.pd, &attr));
    ibv_mw* mw = ibv_alloc_mw(w.pd, IBV_MW_TYPE_1);
    ck_assert_ptr_nonnull(mw);
    ibv_mw_bind bind{1, IBV_SEND_SIGNALED, {w.mr, w.address(0), 64, IBV_ACCESS_REMOTE_WRITE}};
    ck_assert_int_eq(ibv_bind_mw(qps[0], mw, &bind), 0);
    w.expect(1, IBV_WC_SUCCESS);
  }
  ibv_mr* mr = ibv_reg_mr(w.pd, w.memory.data(), 4096, kAllAccess);
  ck_assert_ptr_nonnull(mr);
  ibv_sge list = w.sge(8192, 64);
  ibv_send_wr wr{};
  wr.sg_list = &list;
  wr.num_sge = 1;
  if (use == kWritten) {
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {w.address(0), mr->rkey};
    expect_sent(w, qps[0], wr);
  } else if (use == kReceived) {
    ibv_sge into{w.address(0), 64, mr->lkey};
    ibv_recv_wr receive{2, nullptr, &into, 1};
    ibv_recv_wr* bad = nullptr;
    ck_assert_int_eq(ibv_post_recv(qps[1], &receive, &bad), 0);
    wr.wr_id = 2;
    wr.opcode = IBV_WR_SEND;
    ck_assert_int_eq(World::post(qps[0], wr), 0);
    w.expect(2, IBV_WC_SUCCESS);
    w.expect(2, IBV_WC_SUCCESS);
  } else if (use == kBoundAndUnbound) {
    ibv_mw* mw = ibv_alloc_mw(w.pd, IBV_MW_TYPE_2);
    ck_assert_ptr_nonnull(mw);
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw = {mw, ibv_inc_rkey(mw->rkey), {mr, w.address(0), 64, IBV_ACCESS_REMOTE_WRITE}};
    expect_sent(w, qps[0], wr);
    const uint32_t key = wr.bind_mw.rkey;
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.invalidate_rkey = key;
    expect_sent(w, qps[0], wr);
  }
  return [mr] { ck_assert_int_eq(ibv_dereg_mr(mr), 0); };
}

START_TEST(as_much_work_with_few_objects_as_with_many) {
  const auto use = static_cast<Use>(_i);
  const long few = instructions_of([use] { return region_with(use, kFew); });
  const long many = instructions_of([use] { return region_with(use, kMany); });
  ck_assert_msg(many < few + kTolerance, "%ld instructions with %d objects of each kind, %ld with %d", few, kFew, many,
                kMany);
}
END_TEST

/// Messages that came through several queue pairs, and wait in several completion queues, are all put in place before the region goes.
START_TEST(messages_of_several_queue_pairs_are_all_put_in_place) {
  const World w;
  ibv_mr* mr = ibv_reg_mr(w.pd, w.memory.data(), 4096, kAllAccess);
  ck_assert_ptr_nonnull(mr);
  constexpr size_t kReceivers = 3;
  std::fill_n(w.memory.begin() + 8192, 64, uint8_t{0x77});
  for (size_t i = 0; i < kReceivers; ++i) {
    ibv_qp_init_attr attr = w.qp_attributes();
    attr.recv_cq = ibv_create_cq(w.context, 16, nullptr, nullptr, 0);
    ibv_qp* sender = w.make_qp();
    ibv_qp* receiver = ibv_create_qp(w.pd, &attr);
    ck_assert_ptr_nonnull(receiver);
    w.connect(sender, receiver);
    ibv_sge into{w.address(64 * i), 64, mr->lkey};
    ibv_recv_wr receive{2, nullptr, &into, 1};
    ibv_recv_wr* bad = nullptr;
    ck_assert_int_eq(ibv_post_recv(receiver, &receive, &bad), 0);
    ck_assert_int_eq(w.post_send(sender, 1, 8192, 64), 0);
    w.expect(1, IBV_WC_SUCCESS);
  }
  ck_assert_int_eq(ibv_dereg_mr(mr), 0);
  for (size_t i = 0; i < 64 * kReceivers; ++i) ck_assert_uint_eq(w.memory[i], 0x77);
}
END_TEST

ibv_qp* binder = nullptr;
ibv_mw* window = nullptr;
ibv_mw_bind bind_request{};

/// Another thread binds a window while the region is being ended: one of the two is refused.
START_TEST(no_window_is_bound_to_a_region_that_ends) {
  const World w;
  const auto qps = w.pair();
  ibv_mr* mr = ibv_reg_mr(w.pd, w.memory.data(), 4096, kAllAccess);
  ck_assert_ptr_nonnull(mr);
  binder = qps[0];
  window = ibv_alloc_mw(w.pd, IBV_MW_TYPE_1);
  ck_assert_ptr_nonnull(window);
  bind_request = {1, IBV_SEND_SIGNALED, {mr, w.address(0), 64, IBV_ACCESS_REMOTE_WRITE}};
  after_unlock = [] { ck_assert_int_eq(ibv_bind_mw(binder, window, &bind_request), 0); };
  const int error = ibv_dereg_mr(mr);
  ck_assert_ptr_null(reinterpret_cast<void*>(after_unlock));  // it has been called
  ck_assert_int_eq(error, w.next().status == IBV_WC_SUCCESS ? EBUSY : 0);
}
END_TEST

/// Who has used it before it was changed may use it still, and is waited for when it ends.
START_TEST(who_has_used_a_region_is_waited_for_after_it_was_changed) {
  const World w;
  const auto qps = w.pair();
  ibv_mr* mr = ibv_reg_mr(w.pd, w.memory.data(), 4096, kAllAccess);
  ck_assert_ptr_nonnull(mr);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 8, w.address(0), mr->rkey), 0);
  w.expect(1, IBV_WC_SUCCESS);
  ck_assert_int_eq(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllAccess), 0);
  // Who writes holds the lock meanwhile.
  const uint32_t number = qps[1]->qp_num;
  softhca::RobustLock& lock = slot_of(number).qps[softhca::index_of_qpn(number)].lock;
  ck_assert(lock.try_lock(stamp_of(number)));
  std::atomic<bool> written{false};
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    written.store(true);
    lock.unlock();
  });
  ck_assert_int_eq(ibv_dereg_mr(mr), 0);
  ck_assert(written.load());
  writer.join();
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_device()) return 77;
  if (!kCountsInstructions) {
    puts("SKIP as_much_work_with_few_objects_as_with_many: ThreadSanitizer's own work for a lock varies by more");
  }
  if (!kSeesUnlocks)
    puts("SKIP no_window_is_bound_to_a_region_that_ends: ThreadSanitizer has its own pthread_mutex_unlock()");
  return fabric::test::run_suite("softhca_dereg",
                                 {{as_much_work_with_few_objects_as_with_many, kCountsInstructions ? kUses : 0},
                                  messages_of_several_queue_pairs_are_all_put_in_place,
                                  {no_window_is_bound_to_a_region_that_ends, kSeesUnlocks ? 1 : 0},
                                  who_has_used_a_region_is_waited_for_after_it_was_changed});
}
