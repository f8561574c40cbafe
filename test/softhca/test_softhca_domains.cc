// SPDX-License-Identifier: BSD-3-Clause
//
// Thread domains, and parent domains with memory of the program's. One rule a test.
#include <cstdlib>

#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;

/// What the allocator was asked for.
struct Memory {
  unsigned given = 0;
  unsigned taken_back = 0;
  uint64_t resource = 0;
  void* answer = nullptr;  // if set, in place of memory
  bool none = false;
  uint8_t* last = nullptr;
  size_t last_size = 0;
};

void* allocate(ibv_pd*, void* context, size_t size, size_t alignment, uint64_t resource) {
  auto& memory = *static_cast<Memory*>(context);
  if (memory.none || memory.answer != nullptr) return memory.answer;
  ++memory.given;
  memory.resource = resource;
  memory.last_size = size;
  memory.last = static_cast<uint8_t*>(std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment));
  return memory.last;
}

void take_back(ibv_pd*, void* context, void* pointer, uint64_t resource) {
  auto& memory = *static_cast<Memory*>(context);
  ++memory.taken_back;
  ck_assert(resource == memory.resource);
  std::free(pointer);
}

ibv_pd* make_domain(const World& w, Memory* memory = nullptr, ibv_td* td = nullptr) {
  ibv_parent_domain_init_attr attr{};
  attr.pd = w.pd;
  attr.td = td;
  if (memory != nullptr) {
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = allocate;
    attr.free = take_back;
    attr.pd_context = memory;
  }
  return ibv_alloc_parent_domain(w.context, &attr);
}

ibv_qp* make_qp_in(const World& w, ibv_pd* domain) {
  ibv_qp_init_attr attr = w.qp_attributes();
  return ibv_create_qp(domain, &attr);
}

/// Keys of the one domain are good in the other.
void check_traffic(const World& w, ibv_qp* qp) {
  ibv_qp* peer = w.make_qp();
  w.connect(qp, peer);
  for (uint64_t i = 0; i < 100; ++i) {
    w.memory[0] = static_cast<uint8_t>(i + 1);
    ck_assert_int_eq(w.post_rdma(qp, IBV_WR_RDMA_WRITE, i, 8, w.address(4096), w.mr->rkey), 0);
    w.expect(i, IBV_WC_SUCCESS);
    ck_assert_uint_eq(w.memory[4096], i + 1);
  }
}

START_TEST(a_domain_in_a_domain) {
  World w;
  ibv_td_init_attr attr{};
  ibv_td* td = ibv_alloc_td(w.context, &attr);
  ck_assert_ptr_nonnull(td);
  ibv_pd* domain = make_domain(w, nullptr, td);
  ck_assert_ptr_nonnull(domain);
  ibv_qp* qp = make_qp_in(w, domain);
  ck_assert_ptr_nonnull(qp);
  check_traffic(w, qp);
  ck_assert_int_eq(ibv_dealloc_pd(domain), EBUSY);
  ck_assert_int_eq(ibv_destroy_qp(qp), 0);
  ck_assert_int_eq(ibv_dealloc_td(td), EBUSY);
  ck_assert_int_eq(ibv_dealloc_pd(w.pd), EBUSY);
  ck_assert_int_eq(ibv_dealloc_pd(domain), 0);
  ck_assert_int_eq(ibv_dealloc_td(td), 0);
}
END_TEST

START_TEST(send_queues_lie_in_the_programs_memory) {
  World w;
  Memory memory;
  ibv_pd* domain = make_domain(w, &memory);
  ibv_qp* qp = make_qp_in(w, domain);
  ck_assert_ptr_nonnull(qp);
  ck_assert_uint_eq(memory.given, 1);
  std::vector<uint8_t> before(memory.last, memory.last + memory.last_size);
  check_traffic(w, qp);
  ck_assert_int_ne(std::memcmp(before.data(), memory.last, before.size()), 0);
  ck_assert_uint_eq(memory.taken_back, 0);
  ck_assert_int_eq(ibv_destroy_qp(qp), 0);
  ck_assert_uint_eq(memory.taken_back, 1);
  // Regions, shared receive queues and address handles take nothing of it.
  ck_assert_ptr_nonnull(ibv_reg_mr(domain, w.memory.data(), 64, kAllAccess));
  ibv_srq_init_attr queue{nullptr, {16, 1, 0}};
  ck_assert_ptr_nonnull(ibv_create_srq(domain, &queue));
  ck_assert_uint_eq(memory.given, 1);
}
END_TEST

START_TEST(an_allocator_may_leave_it_to_the_device) {
  World w;
  Memory memory;
  memory.answer = IBV_ALLOCATOR_USE_DEFAULT;
  ibv_qp* qp = make_qp_in(w, make_domain(w, &memory));
  ck_assert_ptr_nonnull(qp);
  check_traffic(w, qp);
  ck_assert_int_eq(ibv_destroy_qp(qp), 0);
  ck_assert_uint_eq(memory.taken_back, 0);
}
END_TEST

START_TEST(an_allocator_may_have_none) {
  World w;
  Memory memory;
  memory.none = true;
  ibv_pd* domain = make_domain(w, &memory);
  ck_assert_ptr_null(make_qp_in(w, domain));
  ck_assert_int_eq(errno, ENOMEM);
  ck_assert_int_eq(ibv_dealloc_pd(domain), 0);
}
END_TEST

START_TEST(completion_queues) {
  World w;
  ibv_pd* domain = make_domain(w);
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = domain;
  ibv_cq_ex* cq = ibv_create_cq_ex(w.context, &attr);
  ck_assert_ptr_nonnull(cq);
  ck_assert_int_eq(ibv_dealloc_pd(domain), EBUSY);
  ck_assert_int_eq(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  ck_assert_int_eq(ibv_dealloc_pd(domain), 0);
  attr.parent_domain = w.pd;
  ck_assert_ptr_null(ibv_create_cq_ex(w.context, &attr));
  ck_assert_int_eq(errno, EINVAL);
}
END_TEST

START_TEST(domains_that_are_refused) {
  World w;
  ibv_td_init_attr thread{1};
  ck_assert_ptr_null(ibv_alloc_td(w.context, &thread));
  const auto refused = [&w](auto change) {
    ibv_parent_domain_init_attr attr{};
    attr.pd = w.pd;
    change(attr);
    errno = 0;
    return ibv_alloc_parent_domain(w.context, &attr) == nullptr && errno == EINVAL;
  };
  ck_assert(refused([](auto& attr) { attr.pd = nullptr; }));
  ck_assert(refused([](auto& attr) { attr.comp_mask = 1U << 5; }));
  ck_assert(refused([](auto& attr) { attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS; }));
  ck_assert(refused([&](auto& attr) { attr.pd = make_domain(w); }));
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite(
      "softhca_domains",
      {a_domain_in_a_domain, send_queues_lie_in_the_programs_memory, an_allocator_may_leave_it_to_the_device,
       an_allocator_may_have_none, completion_queues, domains_that_are_refused});
}
