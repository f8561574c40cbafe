// SPDX-License-Identifier: BSD-3-Clause
//
// Requests that are used again are as new ones.
#include <tuple>

#include "btl_fabric/base/rdma_request.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

// What renew() has to set. All members are named, so that whoever adds one is told to decide here and there.
auto renewed_part(const RdmaOperation& one) {
  const auto& [kind, pieces, local, remote_address, rkey, operand, compare, confirm, reads_back, last_id, part_id,
               carried, carried_later, reads, windows, temporary] = one;
  const LocalMemory& first = local[0];
  (void)confirm;    // stays
  (void)temporary;  // is set for each piece
  return std::tuple(kind, pieces, first.address, first.length, first.mr, first.access, remote_address, rkey, operand,
                    compare, reads_back, last_id, part_id, carried, carried_later, reads, windows);
}

auto renewed_part(const RdmaRequest& one) {
  const auto& [operation, link, next, stranded, as_message, is_32_bit, op, is_swap, serial, pieces_to_come, status,
               is_piece, repeated_since, local, detours, remote, callback, local_address, local_handle, context, data] =
      one;
  (void)remote;  // is set with `local`
  return std::tuple(renewed_part(operation), link, next, stranded, as_message, is_32_bit, op, is_swap, serial,
                    pieces_to_come, status, is_piece, repeated_since, local, detours, callback, local_address,
                    local_handle, context, data);
}

void use(RdmaOperation& one) {
  static std::byte memory{};
  static ibv_mr region{};
  one.kind = RdmaKind::kCompareSwap;
  one.pieces = 2;
  one.local[0] = {&memory, 1, &region, 1};
  one.remote_address = one.operand = one.compare = one.last_id = one.part_id = one.carried = one.carried_later = 1;
  one.rkey = one.reads = one.windows = 1;
  one.confirm = {&memory, 1, &region, 1};
  one.reads_back = true;
}

template <class One, std::size_t... Member>
bool differs_everywhere(const One& one, const One& other, std::index_sequence<Member...>) {
  return ((std::get<Member>(one) != std::get<Member>(other)) && ...);
}

template <class Tuple>
bool differs_everywhere(const Tuple& one, const Tuple& other) {
  return differs_everywhere(one, other, std::make_index_sequence<std::tuple_size_v<Tuple>>());
}

START_TEST(a_renewed_operation_is_as_new) {
  RdmaOperation one;
  use(one);
  ck_assert(differs_everywhere(renewed_part(one), renewed_part(RdmaOperation())));
  one.renew();
  ck_assert(renewed_part(one) == renewed_part(RdmaOperation()));
  ck_assert_uint_eq(one.confirm.length, 1);
}
END_TEST

void call_back(mca_btl_base_module_t* /*btl*/, mca_btl_base_endpoint_t* /*endpoint*/, void* /*local*/,
               mca_btl_base_registration_handle_t* /*handle*/, void* /*context*/, void* /*data*/, int /*status*/) {}

START_TEST(a_renewed_request_is_as_new) {
  int something = 0;
  RdmaRequest one;
  use(one.operation);
  one.link = reinterpret_cast<Link*>(&something);
  one.next = &one;
  one.stranded = one.as_message = one.is_32_bit = one.is_swap = one.is_piece = true;
  one.op = MCA_BTL_ATOMIC_XOR;
  one.serial = one.pieces_to_come = 1;
  one.status = OPAL_ERROR;
  one.repeated_since = std::chrono::steady_clock::now();
  one.local = reinterpret_cast<Registration*>(&something);
  one.detours = 1;
  one.callback = call_back;
  one.local_address = one.context = one.data = &something;
  one.local_handle = reinterpret_cast<mca_btl_base_registration_handle_t*>(&something);
  ck_assert(differs_everywhere(renewed_part(one), renewed_part(RdmaRequest())));
  one.renew();
  ck_assert(renewed_part(one) == renewed_part(RdmaRequest()));
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("rdma_requests", {a_renewed_operation_is_as_new, a_renewed_request_is_as_new});
}
