// SPDX-License-Identifier: BSD-3-Clause
//
// What every unit test program does: one suite, one case, an exit status; and comparisons that Check lacks.
#pragma once

#include <check.h>
#undef fail  // the name of functions in libstdc++ and here
#include <sys/resource.h>

#include <cstdlib>
#include <initializer_list>
#include <string>

namespace fabric::test {

/// ck_assert_str_eq keeps pointers into its operands, which may be temporaries: this takes strings.
inline void check_text(const std::string& actual, const std::string& expected) {
  ck_assert_msg(actual == expected, "text is\n%s\nshould be\n%s", actual.c_str(), expected.c_str());
}

inline void check_text_has(const std::string& text, const std::string& part) {
  ck_assert_msg(text.find(part) != std::string::npos, "\"%s\" lacks \"%s\"", text.c_str(), part.c_str());
}

/// `result` must be an error whose text has `part` in it.
template <class Result>
void check_error_has(const Result& result, const std::string& part) {
  ck_assert_msg(!result, "taken, should be refused: %s", part.c_str());
  check_text_has(result.error().text, part);
}

/// A test, or one that runs for each `_i` from `first` to before `end`.
struct Test {
  Test(const TTest* one) : test(one) {}  // NOLINT: a test stands for one run of it
  Test(const TTest* one, int end_of_loop) : Test(one, 0, end_of_loop) {}
  Test(const TTest* one, int first_of_loop, int end_of_loop) : test(one), first(first_of_loop), end(end_of_loop) {}
  const TTest* test;
  int first = 0;
  int end = 1;
};

/// Runs a suite of one case. Returns the exit status of the program.
inline int run_case(const char* name, TCase* tcase, std::initializer_list<Test> tests) {
  Suite* suite = suite_create(name);
  for (const Test& test : tests) {
    tcase_add_loop_test(tcase, test.test, test.first, test.end);
  }
  suite_add_tcase(suite, tcase);
  SRunner* runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/// Runs `tests` as suite `name`; `seconds` is the limit for each. Returns the exit status of the program.
inline int run_suite(const char* name, std::initializer_list<Test> tests, double seconds = 60) {
  TCase* tcase = tcase_create(name);
  tcase_set_timeout(tcase, seconds);
  return run_case(name, tcase, tests);
}

/// For tests that compute all the time: the limit for each is one of processor time, however busy the machine is. (One that
/// waits after all ends too, in the end.)
template <rlim_t seconds>
int run_computations(const char* name, std::initializer_list<Test> tests) {
  TCase* tcase = tcase_create(name);
  tcase_set_timeout(tcase, 20.0 * seconds);
  const auto limit_this_process = [] {  // one per test
    const rlimit most{seconds, seconds + 1};
    ck_assert_int_eq(setrlimit(RLIMIT_CPU, &most), 0);
  };
  tcase_add_checked_fixture(tcase, limit_this_process, nullptr);
  return run_case(name, tcase, tests);
}

}  // namespace fabric::test
