// SPDX-License-Identifier: BSD-3-Clause
//
// Which data can go out from where they are.
#include "btl_fabric/base/opal.h"
#include "test/unit/check_main.h"

using namespace fabric;

namespace {

/// The bytes of one block on this kind of processor.
opal_convertor_t one_block() {
  opal_convertor_t convertor{};
  convertor.flags = CONVERTOR_HOMOGENEOUS | OPAL_DATATYPE_FLAG_CONTIGUOUS | OPAL_DATATYPE_FLAG_NO_GAPS;
  convertor.count = 1;
  return convertor;
}

}  // namespace

START_TEST(one_block_goes_as_it_is) {
  ck_assert(!needs_packing(one_block()));
}
END_TEST

START_TEST(data_with_gaps_are_packed) {
  opal_convertor_t convertor = one_block();
  convertor.flags = CONVERTOR_HOMOGENEOUS;
  ck_assert(needs_packing(convertor));
}
END_TEST

START_TEST(data_that_are_converted_are_packed) {
  opal_convertor_t convertor = one_block();
  convertor.flags &= ~std::uint32_t{CONVERTOR_HOMOGENEOUS};
  ck_assert(needs_packing(convertor));
}
END_TEST

START_TEST(data_of_an_accelerator_are_packed) {
  opal_convertor_t convertor = one_block();
  convertor.flags |= kOnAccelerator;
  ck_assert(needs_packing(convertor));
}
END_TEST

int main() {
  return fabric::test::run_suite("convertors", {one_block_goes_as_it_is, data_with_gaps_are_packed,
                                                data_that_are_converted_are_packed, data_of_an_accelerator_are_packed});
}
