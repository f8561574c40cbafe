// SPDX-License-Identifier: BSD-3-Clause
//
// Memory that is registered on demand (--set odp=yes): one region for all that a process has or will have, on every kind of queue
// pair, and advice about pages. One rule a test.
#include <sys/mman.h>
#include <unistd.h>

#include "test/softhca/xrc_world.h"

namespace {

using namespace verbs_test;

constexpr int kOnDemand = kAllAccess & ~IBV_ACCESS_MW_BIND;

/// Some pages that nobody has touched.
struct Pages {
  static constexpr size_t kCount = 16;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  uint8_t* const first =
      static_cast<uint8_t*>(mmap(nullptr, kCount* page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

  uint64_t address(size_t n = 0) const { return reinterpret_cast<uint64_t>(first + n * page); }
  bool is_there(size_t n) const {
    unsigned char resident = 0;
    ck_assert_int_eq(mincore(first + n * page, page, &resident), 0);
    return (resident & 1) != 0;
  }
  ibv_sge sge(const ibv_mr* mr, size_t n, uint32_t length) const { return {address(n), length, mr->lkey}; }
};

ibv_mr* whole_process(const World& w, int access = kOnDemand) {
  ibv_mr* mr = ibv_reg_mr(w.pd, nullptr, SIZE_MAX, access | IBV_ACCESS_ON_DEMAND);
  ck_assert_ptr_nonnull(mr);
  return mr;
}

START_TEST(it_is_said_what_can_be_done) {
  World w;
  ibv_device_attr_ex attr{};
  ck_assert_int_eq(ibv_query_device_ex(w.context, nullptr, &attr), 0);
  ck_assert_uint_eq(attr.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
  const auto& can = attr.odp_caps.per_transport_caps;
  ck_assert((can.rc_odp_caps & IBV_ODP_SUPPORT_ATOMIC) != 0 && (can.uc_odp_caps & IBV_ODP_SUPPORT_WRITE) != 0);
  ck_assert((can.ud_odp_caps & IBV_ODP_SUPPORT_SEND) != 0 && (attr.xrc_odp_caps & IBV_ODP_SUPPORT_SRQ_RECV) != 0);
}
END_TEST

/// The region is older than the memory.
START_TEST(one_region_has_all_memory) {
  World w;
  const auto qps = w.pair();
  const ibv_mr* mr = whole_process(w);
  const Pages from, to;
  for (uint32_t length : {64U, 4000U, 40000U}) {
    std::memset(from.first, static_cast<int>(length & 0xff) + 1, length);
    ibv_sge source = from.sge(mr, 0, length), sink = to.sge(mr, 0, length);
    ibv_recv_wr receive{1, nullptr, &sink, 1};
    ibv_recv_wr* bad = nullptr;
    ck_assert_int_eq(ibv_post_recv(qps[1], &receive, &bad), 0);
    ibv_send_wr send{};
    send.wr_id = 2;
    send.sg_list = &source;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    ck_assert_int_eq(World::post(qps[0], send), 0);
    for (int i = 0; i < 2; ++i) ck_assert_int_eq(w.next().status, IBV_WC_SUCCESS);
    ck_assert_int_eq(std::memcmp(from.first, to.first, length), 0);
  }
  std::memset(from.first, 3, 100);
  ibv_sge source = from.sge(mr, 0, 100);
  ibv_send_wr write{};
  write.wr_id = 3;
  write.sg_list = &source;
  write.num_sge = 1;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.wr.rdma.remote_addr = to.address(5) - 50;
  write.wr.rdma.rkey = mr->rkey;
  ck_assert_int_eq(World::post(qps[0], write), 0);
  w.expect(3, IBV_WC_SUCCESS);
  ck_assert_int_eq(std::memcmp(from.first, to.first + 5 * to.page - 50, 100), 0);
}
END_TEST

START_TEST(datagrams) {
  World w;
  const ibv_mr* mr = whole_process(w);
  const Pages from, to;
  ibv_qp* qps[2];
  for (ibv_qp*& qp : qps) {
    qp = w.make_qp(nullptr, IBV_QPT_UD);
    ibv_qp_attr attr = w.init_attributes();
    attr.qkey = 11;
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    ck_assert_int_eq(World::set_state(qp, IBV_QPS_RTR), 0);
    attr.qp_state = IBV_QPS_RTS;
    ck_assert_int_eq(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }
  std::memset(from.first, 9, 1000);
  ibv_sge source = from.sge(mr, 0, 1000), sink = to.sge(mr, 0, 1040);
  ibv_recv_wr receive{1, nullptr, &sink, 1};
  ibv_recv_wr* bad = nullptr;
  ck_assert_int_eq(ibv_post_recv(qps[1], &receive, &bad), 0);
  ibv_ah_attr path = w.path();
  ibv_send_wr send{};
  send.sg_list = &source;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.wr.ud.ah = ibv_create_ah(w.pd, &path);
  send.wr.ud.remote_qpn = qps[1]->qp_num;
  send.wr.ud.remote_qkey = 11;
  ck_assert_int_eq(World::post(qps[0], send), 0);
  for (int i = 0; i < 2; ++i) ck_assert_int_eq(w.next().status, IBV_WC_SUCCESS);
  ck_assert_int_eq(std::memcmp(from.first, to.first + 40, 1000), 0);
}
END_TEST

START_TEST(no_window_is_bound_to_it) {
  World w;
  ck_assert_ptr_null(ibv_reg_mr(w.pd, nullptr, SIZE_MAX, kAllAccess | IBV_ACCESS_ON_DEMAND));
  ck_assert_int_eq(errno, EOPNOTSUPP);
}
END_TEST

START_TEST(advice_brings_pages) {
  World w;
  const ibv_mr* mr = whole_process(w);
  const Pages pages;
  const auto advise = [&](ibv_advise_mr_advice advice, size_t n) {
    ibv_sge sge = pages.sge(mr, n, 100);
    ck_assert_int_eq(ibv_advise_mr(w.pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), 0);
  };
  advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 1);
  ck_assert(!pages.is_there(1));
  advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 1);
  ck_assert(pages.is_there(1) && !pages.is_there(0) && !pages.is_there(2));
  advise(IBV_ADVISE_MR_ADVICE_PREFETCH, 3);
  // Two at once, one over the edge of a page.
  ibv_sge both[2] = {pages.sge(mr, 7, 10), {pages.address(10) - 4, 8, mr->lkey}};
  ck_assert_int_eq(ibv_advise_mr(w.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, both, 2), 0);
  ck_assert(pages.is_there(7) && pages.is_there(9) && pages.is_there(10) && !pages.is_there(8));
}
END_TEST

START_TEST(wrong_advice) {
  World w;
  const Pages pages;
  const ibv_mr* mr = ibv_reg_mr(w.pd, pages.first, pages.page, IBV_ACCESS_ON_DEMAND);
  const ibv_mr* whole = whole_process(w);
  ck_assert_ptr_nonnull(mr);
  const auto advise = [&](ibv_sge sge, ibv_advise_mr_advice advice = IBV_ADVISE_MR_ADVICE_PREFETCH,
                          uint32_t flags = IBV_ADVISE_MR_FLAG_FLUSH) {
    return ibv_advise_mr(w.pd, advice, flags, &sge, 1);
  };
  const auto page = static_cast<uint32_t>(pages.page);
  ck_assert_int_eq(advise(pages.sge(mr, 0, page)), 0);
  ck_assert_int_eq(advise(pages.sge(mr, 0, page + 1)), EFAULT);
  ck_assert_int_eq(advise(pages.sge(mr, 0, page), IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE), EFAULT);
  ck_assert_int_eq(advise(w.sge(0, 8)), EFAULT);  // it is pinned
  ck_assert_int_eq(mprotect(pages.first + 5 * pages.page, pages.page, PROT_READ), 0);
  ck_assert_int_eq(advise(pages.sge(whole, 5, 8)), 0);
  ck_assert_int_eq(advise(pages.sge(whole, 5, 8), IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE), EFAULT);
  munmap(pages.first + 4 * pages.page, pages.page);
  ck_assert_int_eq(advise(pages.sge(whole, 4, 8)), EFAULT);
  ck_assert_int_eq(advise(pages.sge(whole, 4, 8), IBV_ADVISE_MR_ADVICE_PREFETCH, 0), 0);  // nobody waits for the result
  ck_assert_int_eq(advise(pages.sge(mr, 0, 8), IBV_ADVISE_MR_ADVICE_PREFETCH, 2), EINVAL);
  ck_assert_int_eq(advise(pages.sge(mr, 0, 8), static_cast<ibv_advise_mr_advice>(3)), EOPNOTSUPP);
  ck_assert_int_eq(ibv_advise_mr(w.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 0), EINVAL);
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite(
      "softhca_on_demand", {it_is_said_what_can_be_done, one_region_has_all_memory, datagrams, no_window_is_bound_to_it,
                            advice_brings_pages, wrong_advice});
}
