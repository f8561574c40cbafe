// SPDX-License-Identifier: BSD-3-Clause
//
// Many threads use the same objects at the same time; most useful in a build with -fsanitize=thread.
#include <atomic>
#include <thread>

#include "test/softhca/verbs_world.h"

namespace {

using verbs_test::World;

constexpr int kMessages = 3000;  // of each sender
constexpr int kSenders = 3;

// Several threads send on one QP and several poll one CQ; meanwhile memory is registered and other QPs come and go.
START_TEST(all_at_once) {
  World world;
  const auto [a, b] = world.pair();
  std::atomic<int> sent{0};
  std::atomic<int> received{0};
  std::atomic<bool> stop{false};
  const int all = kSenders * kMessages;
  for (int i = 0; i < 16; ++i) ck_assert_int_eq(world.post_recv(b, 1, 0, 64), 0);

  std::vector<std::thread> threads;
  for (int t = 0; t < kSenders; ++t)
    threads.emplace_back([&, t, qp = a] {
      for (int i = 0; i < kMessages;) {
        const int error = world.post_send(qp, 2, 4096 + static_cast<size_t>(t) * 64, 64);
        ck_assert(error == 0 || error == ENOMEM);
        error == 0 ? static_cast<void>(++i) : std::this_thread::yield();
      }
    });
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, qp = b] {
      while (sent < all || received < all) {
        ibv_wc wc[8];
        const int n = ibv_poll_cq(world.cq, 8, wc);
        ck_assert_int_ge(n, 0);
        for (int i = 0; i < n; ++i) {
          if (wc[i].wr_id > 2) continue;  // of a QP that came and went
          ck_assert_int_eq(wc[i].status, IBV_WC_SUCCESS);
          if (wc[i].wr_id == 2) {
            ++sent;
          } else {
            ++received;
            ck_assert_int_eq(world.post_recv(qp, 1, 0, 64), 0);
          }
        }
      }
      stop = true;
    });
  threads.emplace_back([&] {
    std::vector<uint8_t> memory(4096);
    while (!stop) {
      ibv_mr* mr = ibv_reg_mr(world.pd, memory.data(), memory.size(), verbs_test::kAllAccess);
      ck_assert_ptr_nonnull(mr);
      ck_assert_int_eq(ibv_dereg_mr(mr), 0);
    }
  });
  threads.emplace_back([&] {
    while (!stop) {
      const auto [c, d] = world.pair();
      ck_assert_int_eq(world.post_recv(d, 3, 2048, 64), 0);
      for (int i = 0; i < 4; ++i) ck_assert_int_eq(world.post_send(c, 3, 8192, 64), 0);  // the second waits
      ck_assert_int_eq(World::set_state(c, IBV_QPS_ERR), 0);
      ck_assert_int_eq(ibv_destroy_qp(c), 0);
      ck_assert_int_eq(ibv_destroy_qp(d), 0);
    }
  });
  for (std::thread& thread : threads) thread.join();
  ck_assert_int_eq(sent, all);
  ck_assert_int_eq(received, all);
}
END_TEST

// FETCH_ADD on one word from several threads: none is lost.
START_TEST(atomics) {
  World world;
  constexpr int kAdds = 2000;
  constexpr unsigned kAdders = 3;
  std::atomic<unsigned> done{0};
  const auto poll = [&] {
    ibv_wc wc;
    const int n = ibv_poll_cq(world.cq, 1, &wc);
    ck_assert_int_ge(n, 0);
    if (n == 0) return;
    ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
    ++done;
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t <= kAdders; ++t)
    threads.emplace_back([&, t] {
      const auto [qp, other] = world.pair();
      ibv_sge sge = world.sge(t * 64, 8);
      ibv_send_wr wr{};
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
      wr.wr.atomic = {world.address(0), 1, 0, world.mr->rkey};
      for (int i = 0; i < kAdds;) {
        const int error = World::post(qp, wr);
        ck_assert(error == 0 || error == ENOMEM);
        if (error == 0) ++i;
        poll();
      }
    });
  for (std::thread& thread : threads) thread.join();
  while (done != kAdders * kAdds) poll();
  uint64_t sum = 0;
  std::memcpy(&sum, world.memory.data(), sizeof sum);
  ck_assert_uint_eq(sum, kAdders * kAdds);
}
END_TEST

}  // namespace

int main() {
  if (!verbs_test::have_device()) return 77;
  return fabric::test::run_suite("softhca_threads", {all_at_once, atomics}, 120);
}
