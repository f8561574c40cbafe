// SPDX-License-Identifier: BSD-3-Clause
//
// Import: another context by the descriptor of the first, and other handles of its objects. One rule a test.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;

ibv_context* import(const World& w) {
  ibv_context* context = ibv_import_device(dup(w.context->cmd_fd));
  ck_assert_ptr_nonnull(context);
  return context;
}

/// A queue pair of the second context uses domain and region of the first.
START_TEST(a_domain_and_a_region) {
  World w;
  ibv_context* context = import(w);
  ck_assert_str_eq(ibv_get_device_name(context->device), ibv_get_device_name(w.context->device));
  ibv_pd* pd = ibv_import_pd(context, w.pd->handle);
  ck_assert_ptr_nonnull(pd);
  ibv_mr* mr = ibv_import_mr(pd, w.mr->handle);
  ck_assert_ptr_nonnull(mr);
  ck_assert_uint_eq(mr->lkey, w.mr->lkey);
  ck_assert_uint_eq(mr->length, w.mr->length);
  ibv_qp_init_attr attr = w.qp_attributes();
  attr.send_cq = attr.recv_cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  ibv_qp* qp = ibv_create_qp(pd, &attr);
  ck_assert_ptr_nonnull(qp);
  ibv_qp* peer = w.make_qp();
  w.connect(qp, peer);
  w.memory[0] = 0x5a;
  ck_assert_int_eq(w.post_rdma(qp, IBV_WR_RDMA_WRITE, 1, 8, w.address(4096), mr->rkey), 0);
  const ibv_wc wc = World::next(attr.send_cq);
  ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
  ck_assert_uint_eq(w.memory[4096], 0x5a);

  // The domain has other handles. One that is given back too early goes with its last queue pair.
  ck_assert_int_eq(ibv_destroy_qp(peer), 0);
  ck_assert_int_eq(ibv_dereg_mr(mr), EINVAL);
  ck_assert_int_eq(ibv_dealloc_pd(pd), EINVAL);
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
  ck_assert_int_eq(ibv_dereg_mr(w.mr), 0);
  ck_assert_int_eq(ibv_dealloc_pd(w.pd), EBUSY);
  ck_assert_int_eq(ibv_destroy_qp(qp), 0);
  ck_assert_int_eq(ibv_dealloc_pd(w.pd), 0);
}
END_TEST

START_TEST(device_memory) {
  World w;
  ibv_context* context = import(w);
  ibv_alloc_dm_attr attr{};
  attr.length = 64;
  ibv_dm* dm = ibv_alloc_dm(w.context, &attr);
  ibv_dm* other = ibv_import_dm(context, dm->handle);
  ck_assert_ptr_nonnull(other);
  char back[8];
  ck_assert_int_eq(ibv_memcpy_to_dm(dm, 0, "abcdefg", 8), 0);
  ck_assert_int_eq(ibv_memcpy_from_dm(back, other, 0, 8), 0);
  ck_assert_str_eq(back, "abcdefg");
  ck_assert_int_eq(ibv_free_dm(dm), EBUSY);
  ck_assert_int_eq(ibv_free_dm(other), EINVAL);
  ibv_unimport_dm(other);
  ck_assert_int_eq(ibv_free_dm(dm), 0);
}
END_TEST

START_TEST(descriptors_and_numbers_that_are_refused) {
  World w;
  const auto refused = [](const void* object) { return object == nullptr && errno == EINVAL; };
  ck_assert(refused(ibv_import_device(open("/dev/null", O_RDWR))));
  ck_assert(ibv_import_device(-1) == nullptr && errno == EBADF);
  ibv_context* context = import(w);
  ck_assert(refused(ibv_import_pd(context, w.pd->handle + 1)));
  ibv_context* stranger = World::open_first();  // another context of the same device
  ck_assert(refused(ibv_import_pd(stranger, w.pd->handle)));
  ibv_pd* pd = ibv_import_pd(context, w.pd->handle);
  ck_assert(refused(ibv_import_mr(pd, w.mr->handle + 1)));
  ck_assert(refused(ibv_import_mr(pd, UINT32_MAX)));
  ck_assert(refused(ibv_import_dm(context, 1)));
}
END_TEST

/// The first context may be closed before the second.
START_TEST(contexts_end_in_any_order) {
  ibv_context* first = World::open_first();
  ibv_context* second = ibv_import_device(dup(first->cmd_fd));
  ck_assert_ptr_nonnull(second);
  const int fd = second->cmd_fd;
  ck_assert_int_eq(ibv_close_device(first), 0);
  World w(second);
  ck_assert_int_ne(fcntl(fd, F_GETFD), -1);
  ck_assert_int_eq(ibv_dereg_mr(w.mr), 0);
  ck_assert_int_eq(ibv_destroy_cq(w.cq), 0);
  ck_assert_int_eq(ibv_destroy_comp_channel(w.channel), 0);
  ck_assert_int_eq(ibv_dealloc_pd(w.pd), 0);
  ck_assert_int_eq(ibv_close_device(second), 0);
  ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite(
      "softhca_import",
      {a_domain_and_a_region, device_memory, descriptors_and_numbers_that_are_refused, contexts_end_in_any_order});
}
