// SPDX-License-Identifier: BSD-3-Clause
#include <stdexcept>
#include <vector>

#include "common/base/fixed_array.h"
#include "test/unit/check_main.h"

namespace fabric::test {
namespace {

std::vector<int> gone;

/// Neither copied nor moved.
struct Fixed {
  explicit Fixed(int its_number) : number(its_number) {
    if (number < 0) {
      throw std::invalid_argument("negative");
    }
  }
  Fixed(const Fixed&) = delete;
  Fixed& operator=(const Fixed&) = delete;
  ~Fixed() { gone.push_back(number); }
  const int number;
};

START_TEST(objects_lie_next_to_each_other_and_stay) {
  FixedArray<Fixed> array(3);
  ck_assert_uint_eq(array.size(), 0);
  ck_assert(array.begin() == array.end());
  const Fixed& first = array.emplace_back(1);
  array.emplace_back(2);
  array.emplace_back(3);
  ck_assert_uint_eq(array.size(), 3);
  ck_assert_ptr_eq(&first, &array.front());
  ck_assert_ptr_eq(&array[2], &first + 2);
  int expected = 0;
  for (const Fixed& one : array) {
    ck_assert_int_eq(one.number, ++expected);
  }
  ck_assert_int_eq(expected, 3);
}
END_TEST

START_TEST(what_was_made_goes_last_first) {
  gone.clear();
  try {
    FixedArray<Fixed> array(4);
    array.emplace_back(1);
    array.emplace_back(2);
    array.emplace_back(-1);
    ck_abort_msg("nothing was thrown");
  } catch (const std::invalid_argument&) {
  }
  ck_assert(gone == std::vector<int>({2, 1}));
}
END_TEST

}  // namespace
}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("fixed_array", {objects_lie_next_to_each_other_and_stay, what_was_made_goes_last_first});
}
