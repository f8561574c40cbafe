// SPDX-License-Identifier: BSD-3-Clause
//
// A GID table with empty entries (--set gids=8), as RoCE devices have it. One rule a test.
#include "test/softhca/verbs_world.h"

namespace {

using namespace verbs_test;

constexpr int kEntries = 8;

START_TEST(empty_entries_are_zero) {
  World w;
  ck_assert_int_eq(w.port.gid_tbl_len, kEntries);
  ibv_gid gid;
  const ibv_gid zero{};
  ck_assert_int_eq(ibv_query_gid(w.context, 1, kEntries - 1, &gid), 0);
  ck_assert_int_eq(std::memcmp(&gid, &zero, sizeof gid), 0);
  ck_assert_int_ne(std::memcmp(&w.gid, &zero, sizeof gid), 0);
  ck_assert_int_ne(ibv_query_gid(w.context, 1, kEntries, &gid), 0);
}
END_TEST

START_TEST(they_have_nothing_to_say) {
  World w;
  ibv_gid_entry entry;
  ck_assert_int_eq(ibv_query_gid_ex(w.context, 1, 0, &entry, 0), 0);
  ck_assert_int_eq(ibv_query_gid_ex(w.context, 1, kEntries - 1, &entry, 0), ENODATA);
  ck_assert_int_eq(ibv_query_gid_ex(w.context, 1, kEntries, &entry, 0), EINVAL);
}
END_TEST

START_TEST(the_list_leaves_them_out) {
  World w;
  ibv_gid_entry entries[kEntries];
  const ssize_t count = ibv_query_gid_table(w.context, entries, kEntries, 0);
  ck_assert(count > 0 && count < kEntries);
  ibv_gid_entry entry;
  ck_assert_int_eq(ibv_query_gid_ex(w.context, 1, static_cast<uint32_t>(count - 1), &entry, 0), 0);
  ck_assert_int_eq(ibv_query_gid_ex(w.context, 1, static_cast<uint32_t>(count), &entry, 0), ENODATA);
}
END_TEST

START_TEST(no_path_begins_there) {
  World w;
  ibv_ah_attr path = w.path();
  path.is_global = 1;
  path.grh.dgid = w.gid;
  ck_assert_ptr_nonnull(ibv_create_ah(w.pd, &path));
  path.grh.sgid_index = kEntries - 1;
  ck_assert_ptr_null(ibv_create_ah(w.pd, &path));
}
END_TEST

}  // namespace

int main() {
  if (!have_device()) return 77;
  return fabric::test::run_suite("softhca_gids", {empty_entries_are_zero, they_have_nothing_to_say,
                                                  the_list_leaves_them_out, no_path_begins_there});
}
