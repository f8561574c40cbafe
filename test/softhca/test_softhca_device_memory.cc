// SPDX-License-Identifier: BSD-3-Clause
//
// Device memory: what is copied into it, and what peers read, write and count there. One rule a test.
#include <sys/wait.h>
#include <unistd.h>

#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;

constexpr unsigned kRegionAccess = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

uint64_t most(const World& w) {
  ibv_device_attr_ex attr{};
  ck_assert_int_eq(ibv_query_device_ex(w.context, nullptr, &attr), 0);
  return attr.max_dm_size;
}

ibv_dm* allocate(const World& w, size_t length) {
  ibv_alloc_dm_attr attr{};
  attr.length = length;
  return ibv_alloc_dm(w.context, &attr);
}

START_TEST(as_much_as_there_is) {
  World w;
  const uint64_t all = most(w);
  ck_assert_uint_gt(all, 0);
  ck_assert_ptr_null(allocate(w, all + 1));
  ck_assert_int_eq(errno, ENOMEM);
  ibv_dm* first = allocate(w, all - 4096);
  ibv_dm* second = allocate(w, 4096);
  ck_assert(first != nullptr && second != nullptr && first->handle != second->handle);
  ck_assert_ptr_null(allocate(w, 4));
  ck_assert_int_eq(ibv_free_dm(second), 0);
  ck_assert_ptr_nonnull(allocate(w, 4));
  ibv_alloc_dm_attr bad{4096, 0, 1};
  ck_assert_ptr_null(ibv_alloc_dm(w.context, &bad));
  ck_assert_int_eq(errno, EINVAL);
}
END_TEST

START_TEST(copies) {
  World w;
  ibv_dm* dm = allocate(w, 100);
  char text[] = "0123456";
  char back[8] = {};
  ck_assert_int_eq(ibv_memcpy_to_dm(dm, 92, text, 8), 0);
  ck_assert_int_eq(ibv_memcpy_from_dm(back, dm, 92, 8), 0);
  ck_assert_str_eq(back, text);
  // Not beyond its end, and by whole words.
  for (const auto& [offset, length] :
       {std::pair<uint64_t, size_t>{96, 8}, {104, 4}, {1, 4}, {4, 3}, {UINT64_MAX - 3, 8}})
    ck_assert(ibv_memcpy_to_dm(dm, offset, text, length) != 0 && ibv_memcpy_from_dm(back, dm, offset, length) != 0);
}
END_TEST

/// A peer reads, writes and adds there; addresses begin with zero, wherever in the memory the region does.
START_TEST(peers_reach_it) {
  World w;
  const auto qps = w.pair();
  ibv_dm* dm = allocate(w, 4096);
  ibv_mr* mr = ibv_reg_dm_mr(w.pd, dm, 1024, 2048, kRegionAccess);
  ck_assert_ptr_nonnull(mr);
  std::memcpy(w.memory.data(), "into the device", 16);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 16, 8, mr->rkey), 0);
  w.expect(1, IBV_WC_SUCCESS);
  char back[16];
  ck_assert_int_eq(ibv_memcpy_from_dm(back, dm, 1024 + 8, 16), 0);
  ck_assert_str_eq(back, "into the device");
  std::memset(w.memory.data(), 0, 16);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_READ, 2, 16, 8, mr->rkey), 0);
  w.expect(2, IBV_WC_SUCCESS);
  ck_assert_str_eq(reinterpret_cast<char*>(w.memory.data()), "into the device");

  uint64_t number = 40;
  ck_assert_int_eq(ibv_memcpy_to_dm(dm, 1024 + 64, &number, sizeof number), 0);
  ibv_sge list = w.sge(0, 8);
  ibv_send_wr add{};
  add.wr_id = 3;
  add.sg_list = &list;
  add.num_sge = 1;
  add.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  add.wr.atomic = {64, 2, 0, mr->rkey};
  ck_assert_int_eq(World::post(qps[0], add), 0);
  w.expect(3, IBV_WC_SUCCESS);
  ck_assert_int_eq(ibv_memcpy_from_dm(&number, dm, 1024 + 64, sizeof number), 0);
  ck_assert_uint_eq(number, 42);

  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 4, 16, 2048 - 8, mr->rkey), 0);
  w.expect(4, IBV_WC_REM_ACCESS_ERR);
}
END_TEST

/// It is also where messages come from, and where they go.
START_TEST(messages) {
  World w;
  const auto qps = w.pair();
  ibv_dm* dm = allocate(w, 8192);
  const ibv_mr* mr = ibv_reg_dm_mr(w.pd, dm, 0, 8192, kRegionAccess);
  ck_assert_ptr_nonnull(mr);
  ck_assert_int_eq(ibv_memcpy_to_dm(dm, 0, "the message", 12), 0);
  ibv_sge from{0, 12, mr->lkey}, to{4096, 12, mr->lkey};
  ibv_recv_wr receive{1, nullptr, &to, 1};
  ibv_recv_wr* bad = nullptr;
  ck_assert_int_eq(ibv_post_recv(qps[1], &receive, &bad), 0);
  ibv_send_wr send{};
  send.sg_list = &from;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  ck_assert_int_eq(World::post(qps[0], send), 0);
  for (int i = 0; i < 2; ++i) ck_assert_int_eq(w.next().status, IBV_WC_SUCCESS);
  char back[12];
  ck_assert_int_eq(ibv_memcpy_from_dm(back, dm, 4096, 12), 0);
  ck_assert_str_eq(back, "the message");
}
END_TEST

START_TEST(busy_while_registered) {
  World w;
  ibv_dm* dm = allocate(w, 4096);
  ibv_mr* mr = ibv_reg_dm_mr(w.pd, dm, 0, 4096, kRegionAccess);
  ck_assert_int_eq(ibv_free_dm(dm), EBUSY);
  ck_assert_int_eq(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  ck_assert_int_eq(ibv_dereg_mr(mr), 0);
  ck_assert_int_eq(ibv_free_dm(dm), 0);
}
END_TEST

START_TEST(regions_that_are_refused) {
  World w;
  ibv_dm* dm = allocate(w, 100);
  const auto refused = [&](uint64_t offset, size_t length, unsigned access) {
    errno = 0;
    return ibv_reg_dm_mr(w.pd, dm, offset, length, access) == nullptr && errno == EINVAL;
  };
  ck_assert(refused(0, 104, kRegionAccess));
  ck_assert(refused(100, 1, kRegionAccess));
  ck_assert(refused(UINT64_MAX, 2, kRegionAccess));
  ck_assert(refused(0, 100, kRegionAccess & ~unsigned{IBV_ACCESS_ZERO_BASED}));
  ck_assert(refused(0, 100, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE));
  ck_assert_ptr_nonnull(ibv_reg_dm_mr(w.pd, dm, 100, 0, kRegionAccess));
}
END_TEST

/// A child has memory of its own, and its parent's.
START_TEST(children) {
  World w;
  ibv_dm* dm = allocate(w, 8);
  const pid_t child = fork();
  if (child == 0) {
    const bool good = most(w) != 0 && allocate(w, 64) != nullptr && ibv_memcpy_to_dm(dm, 0, "abcdefg", 8) == 0;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ck_assert_int_eq(status, 0);
  char back[8];
  ck_assert_int_eq(ibv_memcpy_from_dm(back, dm, 0, 8), 0);
  ck_assert_str_eq(back, "abcdefg");
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite("softhca_device_memory", {as_much_as_there_is, copies, peers_reach_it, messages,
                                                           busy_while_registered, regions_that_are_refused, children});
}
