// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <map>
#include <random>

#include "common/accounting/qpn_table.h"
#include "test/unit/check_main.h"

namespace {

using fabric::QpnTable;

START_TEST(finds_what_was_inserted_and_nothing_else) {
  QpnTable<int> table;
  int a = 1;
  int b = 2;
  table.insert(17, &a);
  table.insert(0, &b);  // queue pair number 0 is as good as any
  ck_assert_ptr_eq(table.find(17), &a);
  ck_assert_ptr_eq(table.find(0), &b);
  ck_assert_ptr_null(table.find(18));
  ck_assert_uint_eq(table.size(), 2);
}
END_TEST

START_TEST(erasing_what_is_not_there_changes_nothing) {
  QpnTable<int> table;
  int a = 1;
  table.insert(5, &a);
  table.erase(6);
  ck_assert_ptr_eq(table.find(5), &a);
  ck_assert_uint_eq(table.size(), 1);
}
END_TEST

/// Numbers from a small range collide all the time; std::map says what is right.
START_TEST(agrees_with_a_map_under_random_use) {
  std::mt19937 random(1);
  std::array<int, 300> values{};
  QpnTable<int> table;
  std::map<std::uint32_t, int*> model;
  for (int step = 0; step < 200'000; ++step) {
    const auto index = static_cast<std::uint32_t>(random() % values.size());
    const std::uint32_t qpn = index << (index % 3 * 8);
    if (model.contains(qpn)) {
      table.erase(qpn);
      model.erase(qpn);
    } else {
      table.insert(qpn, &values[index]);
      model[qpn] = &values[index];
    }
    const auto probe = static_cast<std::uint32_t>(random() % values.size());
    const std::uint32_t probe_qpn = probe << (probe % 3 * 8);
    const auto found = model.find(probe_qpn);
    ck_assert_ptr_eq(table.find(probe_qpn), found == model.end() ? nullptr : found->second);
    ck_assert_uint_eq(table.size(), model.size());
  }
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite("qpn_table",
                                 {finds_what_was_inserted_and_nothing_else, erasing_what_is_not_there_changes_nothing,
                                  agrees_with_a_map_under_random_use});
}
