// SPDX-License-Identifier: BSD-3-Clause
//
// What every unit test program does: one suite, one case, an exit status; and a comparison that Check lacks.
#pragma once

#include <check.h>
#undef fail  // the name of functions in libstdc++ and here

#include <cstdlib>
#include <initializer_list>
#include <string>

namespace fabric::test {

/// ck_assert_str_eq keeps pointers into its operands, which may be temporaries: this takes strings.
inline void check_text(const std::string& actual, const std::string& expected) {
  ck_assert_msg(actual == expected, "text is\n%s\nshould be\n%s", actual.c_str(), expected.c_str());
}

/// Runs `tests` as suite `name`; `seconds` is the limit for each. Returns the exit status of the program.
inline int run_suite(const char* name, std::initializer_list<const TTest*> tests, double seconds = 60) {
  Suite* suite = suite_create(name);
  TCase* tcase = tcase_create(name);
  tcase_set_timeout(tcase, seconds);
  for (const TTest* test : tests) {
    tcase_add_test(tcase, test);
  }
  suite_add_tcase(suite, tcase);
  SRunner* runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace fabric::test
