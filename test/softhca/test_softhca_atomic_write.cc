// SPDX-License-Identifier: BSD-3-Clause
//
// RDMA ATOMIC WRITE: eight bytes at once. One rule a test.
#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;

constexpr uint64_t kWord = 0x0123456789abcdef;

uint64_t word_at(const World& w, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, w.memory.data() + offset, sizeof word);
  return word;
}

/// Eight bytes at offset 0 of the memory, in two pieces, or of another length.
int post(const World& w, ibv_qp* qp, uint64_t wr_id, uint64_t remote, uint32_t length = 8) {
  ibv_sge list[2] = {w.sge(0, 4), w.sge(4, length - 4)};
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = list;
  wr.num_sge = 2;
  wr.opcode = IBV_WR_ATOMIC_WRITE;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = w.mr->rkey;
  return World::post(qp, wr);
}

START_TEST(from_memory) {
  World w;
  const auto qps = w.pair();
  std::memcpy(w.memory.data(), &kWord, sizeof kWord);
  ck_assert_int_eq(post(w, qps[0], 1, w.address(4096)), 0);
  const ibv_wc wc = w.next();
  ck_assert(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_ATOMIC_WRITE);
  ck_assert_uint_eq(word_at(w, 4096), kWord);
  ck_assert_int_eq(post(w, qps[0], 2, w.address(4096), 12), EINVAL);
  ck_assert_int_eq(post(w, qps[0], 3, w.address(4096), 4), EINVAL);
}
END_TEST

START_TEST(by_the_extended_interface) {
  World w;
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = w.cq;
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = w.pd;
  attr.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_RDMA_WRITE;
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(ibv_create_qp_ex(w.context, &attr));
  ck_assert_ptr_nonnull(qp);
  w.connect(&qp->qp_base, w.make_qp());
  ibv_wr_start(qp);
  qp->wr_flags = IBV_SEND_SIGNALED;
  for (uint64_t i = 0; i < 2; ++i) {
    uint64_t word = kWord + i;
    qp->wr_id = i;
    ibv_wr_atomic_write(qp, w.mr->rkey, w.address(4096 + 8 * i), &word);  // which is copied
  }
  ck_assert_int_eq(ibv_wr_complete(qp), 0);
  for (uint64_t i = 0; i < 2; ++i) {
    w.expect(i, IBV_WC_SUCCESS);
    ck_assert_uint_eq(word_at(w, 4096 + 8 * i), kWord + i);
  }
}
END_TEST

START_TEST(unaligned) {
  World w;
  const auto qps = w.pair();
  ck_assert_int_eq(post(w, qps[0], 1, w.address(4100)), 0);
  w.expect(1, IBV_WC_REM_INV_REQ_ERR);
  ck_assert_uint_eq(word_at(w, 4096), 0);
}
END_TEST

START_TEST(out_of_bounds) {
  World w;
  const auto qps = w.pair();
  ck_assert_int_eq(post(w, qps[0], 1, w.address(w.memory.size())), 0);
  w.expect(1, IBV_WC_REM_ACCESS_ERR);
}
END_TEST

START_TEST(other_kinds_of_queue_pair) {
  World w;
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = w.cq;
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_UD;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = w.pd;
  attr.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE;
  ck_assert_ptr_null(ibv_create_qp_ex(w.context, &attr));
  ck_assert_int_eq(errno, EOPNOTSUPP);
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite("softhca_atomic_write", {from_memory, by_the_extended_interface, unaligned,
                                                          out_of_bounds, other_kinds_of_queue_pair});
}
