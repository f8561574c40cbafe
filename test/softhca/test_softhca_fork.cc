// SPDX-License-Identifier: BSD-3-Clause
//
// Children of a process that uses the device, which open it themselves (as Python's multiprocessing has it). One rule a test.
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <thread>

#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;

void run_in_child(const std::function<void()>& what) {
  const pid_t child = fork();
  if (child == 0) {
    what();  // a failed assertion ends this process with a status
    _exit(0);
  }
  int status = -1;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
}

void check_traffic(const World& w, const std::array<ibv_qp*, 2>& qps, uint8_t value) {
  w.memory[0] = value;
  ck_assert_int_eq(w.post_recv(qps[1], 5, 8192, 64), 0);
  ck_assert_int_eq(w.post_send(qps[0], 1, 0, 64), 0);
  for (int i = 0; i < 2; ++i) ck_assert_int_eq(w.next().status, IBV_WC_SUCCESS);
  ck_assert_uint_eq(w.memory[8192], value);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 2, 4000, w.address(4096), w.mr->rkey), 0);
  w.expect(2, IBV_WC_SUCCESS);
  ck_assert_uint_eq(w.memory[4096], value);
}

START_TEST(a_child_opens_the_device) {
  World w;
  const auto qps = w.pair();
  check_traffic(w, qps, 1);
  run_in_child([] {
    World own;
    check_traffic(own, own.pair(), 2);
  });
  check_traffic(w, qps, 3);
  ck_assert(w.is_empty());
}
END_TEST

/// Neither before the child has opened the device nor afterwards; the parent notices nothing.
START_TEST(what_it_inherits_is_not_its_own) {
  World w;
  const auto qps = w.pair();
  ibv_srq_init_attr attr{nullptr, {16, 1, 0}};
  ibv_srq* srq = ibv_create_srq(w.pd, &attr);
  ck_assert_int_eq(w.post_recv(qps[1], 5, 8192, 64), 0);
  run_in_child([&] {
    World own;
    const auto others = own.pair();
    ibv_wc wc{};
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ck_assert(ibv_alloc_pd(w.context) == nullptr && errno == EPERM);
    ck_assert_ptr_null(ibv_reg_mr(w.pd, w.memory.data(), 64, 0));
    ck_assert_ptr_null(ibv_create_cq(w.context, 16, nullptr, nullptr, 0));
    ck_assert_int_ne(w.post_send(qps[0], 1, 0, 8), 0);
    ck_assert_int_ne(w.post_recv(qps[0], 1, 0, 8), 0);
    ck_assert_int_ne(w.post_srq_recv(srq, 1, 0, 8), 0);
    ck_assert_int_le(ibv_poll_cq(w.cq, 1, &wc), 0);
    ck_assert_int_ne(ibv_get_cq_event(w.channel, &cq, &context), 0);
    ck_assert(ibv_destroy_qp(qps[0]) == EPERM && ibv_destroy_srq(srq) == EPERM && ibv_dereg_mr(w.mr) == EPERM);
    ck_assert(ibv_destroy_cq(w.cq) == EPERM && ibv_dealloc_pd(w.pd) == EPERM);
    check_traffic(own, others, 4);
  });
  ck_assert_int_eq(w.post_send(qps[0], 1, 0, 64), 0);
  for (int i = 0; i < 2; ++i) ck_assert_int_eq(w.next().status, IBV_WC_SUCCESS);
  check_traffic(w, qps, 5);
}
END_TEST

/// They talk to each other.
START_TEST(parent_and_child) {
  struct Board {
    std::atomic<uint32_t> child, parent, key, done;
    std::atomic<uint64_t> address;
  };
  auto* board =
      static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  World w;
  ibv_qp* qp = w.make_qp();
  board->address = w.address(4096);
  board->key = w.mr->rkey;
  board->parent = qp->qp_num;
  const pid_t child = fork();
  if (child == 0) {
    World own;
    ibv_qp* mine = own.make_qp();
    own.to_init(mine);
    own.to_rtr(mine, board->parent);
    board->child = mine->qp_num;
    while (board->done == 0) std::this_thread::yield();
    World::to_rts(mine);
    own.memory[0] = 0x77;
    ck_assert_int_eq(own.post_rdma(mine, IBV_WR_RDMA_WRITE, 1, 64, board->address, board->key), 0);
    own.expect(1, IBV_WC_SUCCESS);
    _exit(0);
  }
  while (board->child == 0) std::this_thread::yield();
  w.to_init(qp);
  w.to_rtr(qp, board->child);
  World::to_rts(qp);
  board->done = 1;
  int status = -1;
  waitpid(child, &status, 0);
  ck_assert_int_eq(status, 0);
  ck_assert_uint_eq(w.memory[4096], 0x77);
}
END_TEST

START_TEST(children_of_children) {
  World w;
  const auto qps = w.pair();
  run_in_child([] {
    World own;
    const auto others = own.pair();
    run_in_child([] {
      World last;
      check_traffic(last, last.pair(), 6);
    });
    check_traffic(own, others, 7);
  });
  check_traffic(w, qps, 8);
}
END_TEST

// Why a process is not to fork among busy threads here, or null.
#if defined(__SANITIZE_THREAD__)
constexpr const char* kNoThreads =
    "ThreadSanitizer takes a thread of the child for the parent's, whose stack was there";
#elif defined(__SANITIZE_ADDRESS__)
constexpr const char* kNoThreads = "AddressSanitizer's allocator has locks that it does not hold during fork()";
#else
constexpr const char* kNoThreads = nullptr;
#endif

/// Whatever other threads hold when the child begins. (Check has a lock too: the thread asserts nothing.)
START_TEST(from_among_busy_threads) {
  World w;
  std::atomic<bool> stop{false}, failed{false};
  std::thread busy([&] {
    while (!stop) {
      ibv_qp_init_attr attr = w.qp_attributes();
      ibv_qp* qp = ibv_create_qp(w.pd, &attr);
      ibv_mr* mr = ibv_reg_mr(w.pd, w.memory.data(), 64, kAllAccess);
      if (qp == nullptr || mr == nullptr || ibv_dereg_mr(mr) != 0 || ibv_destroy_qp(qp) != 0) failed = true;
    }
  });
  for (uint8_t i = 1; i < 20; ++i)
    run_in_child([i] {
      World own;
      check_traffic(own, own.pair(), i);
    });
  stop = true;
  busy.join();
  ck_assert(!failed);
}
END_TEST

START_TEST(connection_manager) {
  rdma_event_channel* channel = rdma_create_event_channel();
  ck_assert_ptr_nonnull(channel);
  rdma_cm_id* id = nullptr;
  ck_assert_int_eq(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  run_in_child([&] {
    rdma_event_channel* own = rdma_create_event_channel();
    ck_assert_ptr_nonnull(own);
    rdma_cm_id* listener = nullptr;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ck_assert_int_eq(rdma_create_id(own, &listener, nullptr, RDMA_PS_TCP), 0);
    ck_assert_int_eq(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)), 0);
    ck_assert_int_eq(rdma_listen(listener, 1), 0);
    rdma_cm_event* event = nullptr;
    ck_assert(rdma_get_cm_event(channel, &event) == -1 && errno == EPERM);
    ck_assert(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)) == -1 && errno == EPERM);
    ck_assert_int_eq(rdma_destroy_id(listener), 0);
    rdma_destroy_event_channel(own);
  });
  ck_assert_int_eq(rdma_destroy_id(id), 0);
  rdma_destroy_event_channel(channel);
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  if (kNoThreads != nullptr) printf("SKIP from_among_busy_threads: %s\n", kNoThreads);
  return fabric::test::run_suite("softhca_fork", {a_child_opens_the_device,
                                                  what_it_inherits_is_not_its_own,
                                                  parent_and_child,
                                                  children_of_children,
                                                  {from_among_busy_threads, kNoThreads == nullptr ? 1 : 0},
                                                  connection_manager});
}
