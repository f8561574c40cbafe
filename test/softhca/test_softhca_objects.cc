// SPDX-License-Identifier: BSD-3-Clause
//
// Verbs objects: how long they live, what they refuse, which keys they accept. One rule a test.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;

START_TEST(device_is_busy_while_it_has_objects) {
  World w;
  ck_assert_int_eq(ibv_destroy_cq(w.cq), 0);
  ck_assert_int_eq(ibv_destroy_comp_channel(w.channel), 0);
  ck_assert_int_eq(ibv_dereg_mr(w.mr), 0);
  ck_assert_int_eq(ibv_dealloc_pd(w.pd), 0);
  ck_assert_int_eq(ibv_close_device(w.context), 0);
}
END_TEST

START_TEST(pd_is_busy_while_used) {
  World w;
  ck_assert_int_eq(ibv_dealloc_pd(w.pd), EBUSY);
  ck_assert_int_eq(ibv_dereg_mr(w.mr), 0);
  ibv_qp* qp = w.make_qp();
  ck_assert_int_eq(ibv_dealloc_pd(w.pd), EBUSY);
  ck_assert_int_eq(ibv_destroy_qp(qp), 0);
  ibv_ah_attr path = w.path();
  ibv_ah* ah = ibv_create_ah(w.pd, &path);
  ck_assert_ptr_nonnull(ah);
  ck_assert_int_eq(ibv_dealloc_pd(w.pd), EBUSY);
  ck_assert_int_eq(ibv_destroy_ah(ah), 0);
  ck_assert_int_eq(ibv_dealloc_pd(w.pd), 0);
}
END_TEST

START_TEST(cq_and_channel_are_busy_while_used) {
  World w;
  ck_assert_int_eq(ibv_destroy_comp_channel(w.channel), EBUSY);
  ibv_qp* qp = w.make_qp();
  ck_assert_int_eq(ibv_destroy_cq(w.cq), EBUSY);
  ck_assert_int_eq(ibv_destroy_qp(qp), 0);
  ck_assert_int_eq(ibv_destroy_cq(w.cq), 0);
  ck_assert_int_eq(ibv_destroy_comp_channel(w.channel), 0);
}
END_TEST

START_TEST(srq_is_busy_while_used) {
  World w;
  ibv_srq_init_attr attr{nullptr, {16, 1, 0}};
  ibv_srq* srq = ibv_create_srq(w.pd, &attr);
  ck_assert_ptr_nonnull(srq);
  ibv_qp* qp = w.make_qp(srq);
  ck_assert_int_eq(ibv_destroy_srq(srq), EBUSY);
  ck_assert_int_eq(ibv_destroy_qp(qp), 0);
  ck_assert_int_eq(ibv_destroy_srq(srq), 0);
}
END_TEST

START_TEST(capabilities_are_given_or_refused) {
  World w;
  ibv_qp_init_attr attr = w.qp_attributes();
  const ibv_qp_cap asked = attr.cap;
  ibv_qp* qp = ibv_create_qp(w.pd, &attr);
  ck_assert_ptr_nonnull(qp);
  ck_assert(attr.cap.max_send_wr >= asked.max_send_wr && attr.cap.max_recv_wr >= asked.max_recv_wr &&
            attr.cap.max_send_sge >= asked.max_send_sge && attr.cap.max_recv_sge >= asked.max_recv_sge &&
            attr.cap.max_inline_data >= asked.max_inline_data);
  const auto refused = [&w](auto change) {
    ibv_qp_init_attr bad = w.qp_attributes();
    change(bad.cap);
    errno = 0;
    return ibv_create_qp(w.pd, &bad) == nullptr && (errno == EINVAL || errno == ENOMEM);
  };
  const auto wr = static_cast<uint32_t>(w.limits.max_qp_wr) + 1;
  const auto sge = static_cast<uint32_t>(w.limits.max_sge) + 1;
  ck_assert(refused([&](ibv_qp_cap& cap) { cap.max_send_wr = wr; }));
  ck_assert(refused([&](ibv_qp_cap& cap) { cap.max_recv_wr = wr; }));
  ck_assert(refused([&](ibv_qp_cap& cap) { cap.max_send_sge = sge; }));
  ck_assert(refused([&](ibv_qp_cap& cap) { cap.max_recv_sge = sge; }));
  ck_assert(refused([&](ibv_qp_cap& cap) { cap.max_inline_data = 1U << 20; }));
  ck_assert_ptr_null(ibv_create_cq(w.context, w.limits.max_cqe + 1, nullptr, nullptr, 0));
  ck_assert_ptr_null(ibv_create_cq(w.context, 0, nullptr, nullptr, 0));
  ck_assert_ptr_null(ibv_create_cq(w.context, 8, nullptr, nullptr, w.context->num_comp_vectors));
  ibv_srq_init_attr srq{nullptr, {static_cast<uint32_t>(w.limits.max_srq_wr) + 1, 1, 0}};
  ck_assert_ptr_null(ibv_create_srq(w.pd, &srq));
}
END_TEST

START_TEST(queues_hold_what_they_promise) {
  World w;
  ibv_qp_init_attr attr = w.qp_attributes();
  ibv_qp* qp = ibv_create_qp(w.pd, &attr);
  w.to_init(qp);
  for (uint32_t i = 0; i < attr.cap.max_recv_wr; ++i) ck_assert_int_eq(w.post_recv(qp, i, 0, 8), 0);
  ck_assert_int_eq(w.post_recv(qp, 99, 0, 8), ENOMEM);
}
END_TEST

START_TEST(numbers_are_not_reused_at_once) {
  World w;
  ibv_qp* qp = w.make_qp();
  const uint32_t number = qp->qp_num;
  ck_assert(number > 1 && number <= 0xffffff);
  ibv_destroy_qp(qp);
  ck_assert_uint_ne(w.make_qp()->qp_num, number);
  const uint32_t key = w.mr->rkey;
  ibv_dereg_mr(w.mr);
  ck_assert_uint_ne(ibv_reg_mr(w.pd, w.memory.data(), 64, kAllAccess)->rkey, key);
}
END_TEST

START_TEST(access_flags) {
  World w;
  const auto error_of = [&w](int access) {
    errno = 0;
    return ibv_reg_mr(w.pd, w.memory.data(), 64, access) == nullptr ? errno : 0;
  };
  ck_assert_int_eq(error_of(0), 0);
  ck_assert_int_eq(error_of(IBV_ACCESS_REMOTE_READ), 0);
  ck_assert_int_eq(error_of(IBV_ACCESS_REMOTE_WRITE), EINVAL);
  ck_assert_int_eq(error_of(IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
  ck_assert_int_eq(error_of(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), 0);
  ck_assert_int_eq(error_of(1 << 15), EINVAL);
  ck_assert_int_eq(error_of(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING), 0);
  ck_assert_int_eq(error_of(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
}
END_TEST

/// As many regions as the device says, beside windows. (Of a device with thousands only the beginning.)
START_TEST(regions_up_to_the_limit) {
  World w;
  const bool few = w.limits.max_mr < 1000;
  std::vector<ibv_mw*> windows;
  for (int i = 0; i < 30; ++i) {
    windows.push_back(ibv_alloc_mw(w.pd, IBV_MW_TYPE_1));
    ck_assert_ptr_nonnull(windows.back());
  }
  std::vector<ibv_mr*> regions;
  while (regions.size() < (few ? static_cast<std::size_t>(w.limits.max_mr) : 1000) - 1) {  // `w` has one
    regions.push_back(ibv_reg_mr(w.pd, w.memory.data(), 64, kAllAccess));
    ck_assert_ptr_nonnull(regions.back());
  }
  errno = 0;
  ck_assert(!few || (ibv_reg_mr(w.pd, w.memory.data(), 64, kAllAccess) == nullptr && errno == ENOMEM));
  ck_assert_int_eq(ibv_dereg_mr(regions.back()), 0);
  regions.back() = ibv_reg_mr(w.pd, w.memory.data(), 64, kAllAccess);
  ck_assert_ptr_nonnull(regions.back());
  for (ibv_mr* region : regions) ck_assert_int_eq(ibv_dereg_mr(region), 0);
  for (ibv_mw* window : windows) ck_assert_int_eq(ibv_dealloc_mw(window), 0);
}
END_TEST

START_TEST(memory_must_be_there) {
  World w;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* hole =
      static_cast<uint8_t*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  munmap(hole + page, page);
  ck_assert_ptr_null(ibv_reg_mr(w.pd, hole, 2 * page, IBV_ACCESS_LOCAL_WRITE));
  ck_assert_int_eq(errno, EFAULT);
  ck_assert_ptr_nonnull(ibv_reg_mr(w.pd, hole, page, IBV_ACCESS_LOCAL_WRITE));
  ck_assert_ptr_null(ibv_reg_mr(w.pd, reinterpret_cast<void*>(UINTPTR_MAX - 8), page, IBV_ACCESS_LOCAL_WRITE));
}
END_TEST

/// A write with `change`d key or address fails with that status, and both QPs are in ERR afterwards.
template <typename F>
void check_remote_key(ibv_wc_status status, F&& change) {
  World w;
  const auto qps = w.pair();
  uint64_t remote = w.address(4096);
  uint32_t rkey = w.mr->rkey;
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 64, remote, rkey), 0);
  w.expect(1, IBV_WC_SUCCESS);
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  change(w, qps, remote, rkey, opcode);
  ck_assert_int_eq(w.post_rdma(qps[0], opcode, 2, 64, remote, rkey), 0);
  w.expect(2, status);
  if (status == IBV_WC_SUCCESS) return;
  ck_assert_int_eq(World::state_of(qps[0]), IBV_QPS_ERR);
  ck_assert_int_eq(World::state_of(qps[1]), IBV_QPS_ERR);
}
using Pair = std::array<ibv_qp*, 2>;

START_TEST(wrong_rkey) {
  check_remote_key(IBV_WC_REM_ACCESS_ERR,
                   [](World&, const Pair&, uint64_t&, uint32_t& rkey, ibv_wr_opcode&) { rkey ^= 0x5500; });
}
END_TEST

START_TEST(stale_rkey) {
  check_remote_key(IBV_WC_REM_ACCESS_ERR,
                   [](World&, const Pair&, uint64_t&, uint32_t& rkey, ibv_wr_opcode&) { rkey = ibv_inc_rkey(rkey); });
}
END_TEST

START_TEST(rkey_of_another_pd) {
  check_remote_key(IBV_WC_REM_ACCESS_ERR, [](World& w, const Pair&, uint64_t&, uint32_t& rkey, ibv_wr_opcode&) {
    rkey = ibv_reg_mr(ibv_alloc_pd(w.context), w.memory.data(), w.memory.size(), kAllAccess)->rkey;
  });
}
END_TEST

START_TEST(out_of_bounds) {
  check_remote_key(IBV_WC_REM_ACCESS_ERR, [](World& w, const Pair&, uint64_t& remote, uint32_t&, ibv_wr_opcode&) {
    remote = w.address(w.memory.size() - 63);
  });
}
END_TEST

START_TEST(up_to_the_last_byte) {
  check_remote_key(IBV_WC_SUCCESS, [](World& w, const Pair&, uint64_t& remote, uint32_t&, ibv_wr_opcode&) {
    remote = w.address(w.memory.size() - 64);
  });
}
END_TEST

START_TEST(deregistered) {
  check_remote_key(IBV_WC_REM_ACCESS_ERR, [](World& w, const Pair&, uint64_t&, uint32_t& rkey, ibv_wr_opcode&) {
    ibv_mr* other = ibv_reg_mr(w.pd, w.memory.data(), w.memory.size(), kAllAccess);
    rkey = other->rkey;
    ck_assert_int_eq(ibv_dereg_mr(other), 0);
  });
}
END_TEST

START_TEST(region_without_the_right) {
  check_remote_key(IBV_WC_REM_ACCESS_ERR, [](World& w, const Pair&, uint64_t&, uint32_t& rkey, ibv_wr_opcode&) {
    rkey = ibv_reg_mr(w.pd, w.memory.data(), w.memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)->rkey;
  });
}
END_TEST

START_TEST(qp_without_the_right) {
  check_remote_key(IBV_WC_REM_INV_REQ_ERR, [](World&, const Pair& qps, uint64_t&, uint32_t&, ibv_wr_opcode&) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    ck_assert_int_eq(ibv_modify_qp(qps[1], &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
  });
}
END_TEST

START_TEST(rereg_changes_bounds) {
  check_remote_key(IBV_WC_REM_ACCESS_ERR, [](World& w, const Pair&, uint64_t& remote, uint32_t& rkey, ibv_wr_opcode&) {
    ibv_mr* other = ibv_reg_mr(w.pd, w.memory.data(), w.memory.size(), kAllAccess);
    ck_assert_int_eq(ibv_rereg_mr(other, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, w.memory.data(), 64, 0), 0);
    rkey = other->rkey;
    remote = w.address(1);
  });
}
END_TEST

START_TEST(wrong_lkey) {
  World w;
  const auto qps = w.pair();
  ibv_sge list = w.sge(0, 64);
  list.lkey ^= 0x5500;
  ibv_send_wr wr{};
  wr.wr_id = 3;
  wr.sg_list = &list;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma = {w.address(4096), w.mr->rkey};
  ck_assert_int_eq(World::post(qps[0], wr), 0);
  w.expect(3, IBV_WC_LOC_PROT_ERR);
  ck_assert_int_eq(World::state_of(qps[0]), IBV_QPS_ERR);
}
END_TEST

START_TEST(region_at_another_address) {
  World w;
  const auto qps = w.pair();
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const uint64_t iova = (uint64_t{7} << 40) + w.address(0) % page;
  ibv_mr* mr = ibv_reg_mr_iova(w.pd, w.memory.data(), 8192, iova, kAllAccess);
  ck_assert_ptr_nonnull(mr);
  w.memory[0] = 0x5a;
  w.memory[4096] = 0;
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 1, iova + 4096, mr->rkey), 0);
  w.expect(1, IBV_WC_SUCCESS);
  ck_assert_uint_eq(w.memory[4096], 0x5a);
}
END_TEST

// The memory of a device that its own processor cannot touch at the address that it has.
START_TEST(region_of_a_file) {
  World w;
  const auto qps = w.pair();
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const int file = memfd_create("device", 0);
  ck_assert_int_eq(ftruncate(file, static_cast<off_t>(3 * page)), 0);
  void* hidden = mmap(nullptr, 3 * page, PROT_NONE, MAP_SHARED, file, 0);
  auto* seen = static_cast<uint8_t*>(mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  ck_assert(hidden != MAP_FAILED && seen != MAP_FAILED);
  const size_t offset = page + 100;
  const uint64_t address = reinterpret_cast<uint64_t>(hidden) + offset;
  ibv_mr* mr = ibv_reg_dmabuf_mr(w.pd, offset, page, address, file, kAllAccess);
  ck_assert_ptr_nonnull(mr);
  close(file);

  w.memory[0] = 0x5a;
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 1, address + 7, mr->rkey), 0);
  w.expect(1, IBV_WC_SUCCESS);
  ck_assert_uint_eq(seen[offset + 7], 0x5a);

  // From there, by its own key.
  seen[offset + 9] = 0xa5;
  ibv_sge piece{address + 9, 1, mr->lkey};
  ibv_send_wr wr{};
  wr.wr_id = 2;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {w.address(4096), w.mr->rkey};
  ck_assert_int_eq(World::post(qps[0], wr), 0);
  w.expect(2, IBV_WC_SUCCESS);
  ck_assert_uint_eq(w.memory[4096], 0xa5);

  // By a window, whose addresses are the region's.
  ibv_mw* mw = ibv_alloc_mw(w.pd, IBV_MW_TYPE_2);
  ck_assert_ptr_nonnull(mw);
  ibv_send_wr bind{};
  bind.wr_id = 3;
  bind.opcode = IBV_WR_BIND_MW;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_mw.mw = mw;
  bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  bind.bind_mw.bind_info = {mr, address, 64, IBV_ACCESS_REMOTE_WRITE};
  ck_assert_int_eq(World::post(qps[1], bind), 0);
  w.expect(3, IBV_WC_SUCCESS);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 4, 1, address + 11, bind.bind_mw.rkey), 0);
  w.expect(4, IBV_WC_SUCCESS);
  ck_assert_uint_eq(seen[offset + 11], 0x5a);
  ck_assert_int_eq(ibv_dealloc_mw(mw), 0);

  ck_assert_int_eq(ibv_dereg_mr(mr), 0);
  munmap(hidden, 3 * page);
  munmap(seen, 3 * page);
}
END_TEST

START_TEST(regions_of_files_that_are_refused) {
  World w;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const int file = memfd_create("device", 0);
  ck_assert_int_eq(ftruncate(file, static_cast<off_t>(page)), 0);
  const auto refused = [&](uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
    errno = 0;
    return ibv_reg_dmabuf_mr(w.pd, offset, length, iova, fd, access) == nullptr ? errno : 0;
  };
  ck_assert_int_eq(refused(0, 0, page, file, kAllAccess), EINVAL);
  ck_assert_int_eq(refused(8, 8, page, file, kAllAccess), EINVAL);  // not at the same place of a page
  ck_assert_int_eq(refused(0, page, page, -1, kAllAccess), EBADF);
  ck_assert_int_eq(refused(0, page, page, file, IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
  close(file);
}
END_TEST

START_TEST(cq_events_hold_the_cq) {
  World w;
  const auto qps = w.pair();
  ck_assert_int_eq(ibv_req_notify_cq(w.cq, 0), 0);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 8, w.address(4096), w.mr->rkey), 0);
  ck_assert(World::becomes_readable(w.channel->fd));
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ck_assert_int_eq(ibv_get_cq_event(w.channel, &cq, &cq_context), 0);
  ck_assert_ptr_eq(cq, w.cq);
  ck_assert_ptr_eq(cq_context, &w);
  ibv_destroy_qp(qps[0]);
  ibv_destroy_qp(qps[1]);
  std::atomic<bool> acked{false};
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    acked = true;
    ibv_ack_cq_events(w.cq, 1);
  });
  ck_assert_int_eq(ibv_destroy_cq(w.cq), 0);
  ck_assert(acked);
  later.join();
}
END_TEST

START_TEST(unread_events_go_with_the_cq) {
  World w;
  const auto qps = w.pair();
  ibv_req_notify_cq(w.cq, 0);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 8, w.address(4096), w.mr->rkey), 0);
  ck_assert(World::becomes_readable(w.channel->fd));
  ibv_destroy_qp(qps[0]);
  ibv_destroy_qp(qps[1]);
  ck_assert_int_eq(ibv_destroy_cq(w.cq), 0);
  ck_assert(!World::readable(w.channel->fd, 0));
}
END_TEST

START_TEST(async_events_hold_the_qp) {
  World w;
  const auto qps = w.pair();
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 8, w.address(4096), w.mr->rkey ^ 0x5500), 0);
  w.expect(1, IBV_WC_REM_ACCESS_ERR);
  ibv_async_event event = w.next_event();
  ck_assert_int_eq(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  ck_assert_ptr_eq(event.element.qp, qps[1]);
  std::atomic<bool> acked{false};
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    acked = true;
    ibv_ack_async_event(&event);
  });
  ck_assert_int_eq(ibv_destroy_qp(qps[1]), 0);
  ck_assert(acked);
  later.join();
}
END_TEST

START_TEST(unread_events_go_with_the_qp) {
  World w;
  const auto qps = w.pair();
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 8, w.address(4096), w.mr->rkey ^ 0x5500), 0);
  w.expect(1, IBV_WC_REM_ACCESS_ERR);
  ck_assert(World::becomes_readable(w.context->async_fd));
  ck_assert_int_eq(ibv_destroy_qp(qps[1]), 0);
  ck_assert(!World::readable(w.context->async_fd, 0));
}
END_TEST

/// After fork() the child's calls fail, and change nothing for the parent.
START_TEST(child_has_no_device) {
  World w;
  const auto qps = w.pair();
  const pid_t child = fork();
  if (child == 0) {
    ibv_wc wc{};
    const bool all_fail = ibv_destroy_qp(qps[0]) != 0 && ibv_dereg_mr(w.mr) != 0 &&
                          ibv_alloc_pd(w.context) == nullptr && w.post_send(qps[0], 1, 0, 8) != 0 &&
                          ibv_poll_cq(w.cq, 1, &wc) < 0;
    _exit(all_fail ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ck_assert_int_eq(status, 0);
  ck_assert_int_eq(w.post_rdma(qps[0], IBV_WR_RDMA_WRITE, 1, 8, w.address(4096), w.mr->rkey), 0);
  w.expect(1, IBV_WC_SUCCESS);
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite("softhca_objects", {device_is_busy_while_it_has_objects,
                                                     pd_is_busy_while_used,
                                                     cq_and_channel_are_busy_while_used,
                                                     srq_is_busy_while_used,
                                                     capabilities_are_given_or_refused,
                                                     queues_hold_what_they_promise,
                                                     numbers_are_not_reused_at_once,
                                                     access_flags,
                                                     regions_up_to_the_limit,
                                                     memory_must_be_there,
                                                     wrong_rkey,
                                                     stale_rkey,
                                                     rkey_of_another_pd,
                                                     out_of_bounds,
                                                     up_to_the_last_byte,
                                                     deregistered,
                                                     region_without_the_right,
                                                     qp_without_the_right,
                                                     rereg_changes_bounds,
                                                     wrong_lkey,
                                                     region_at_another_address,
                                                     region_of_a_file,
                                                     regions_of_files_that_are_refused,
                                                     cq_events_hold_the_cq,
                                                     unread_events_go_with_the_cq,
                                                     async_events_hold_the_qp,
                                                     unread_events_go_with_the_qp,
                                                     child_has_no_device});
}
