// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include "common/accounting/credit_ledger.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

const int kA = 0;
const int kB = 0;

bool mentions(const std::string& text, const char* what) {
  return text.find(what) != std::string::npos;
}

START_TEST(every_byte_has_an_owner) {
  TxLedgerBook book(100);
  book.take(10);
  book.take(20, &kA);  // the 10 are its own too
  book.take(5, &kB);
  book.compare(65);
  book.give_back(30, &kA);
  book.give_back(5, &kB);
  book.compare(100);
  test::check_text(book.problem(), "");
}
END_TEST

START_TEST(nobody_gives_back_twice) {
  TxLedgerBook book(100);
  book.take(20, &kA);
  book.take(20, &kB);
  book.give_back(20, &kA);
  book.give_back(20, &kA);
  ck_assert_msg(mentions(book.problem(), "by one who holds none; 80 of 100 free"), "%s", book.problem().c_str());
}
END_TEST

START_TEST(nobody_gives_back_anothers) {
  TxLedgerBook book(100);
  book.take(20, &kA);
  book.take(30, &kB);
  book.give_back(30, &kA);
  ck_assert_msg(mentions(book.problem(), "by one who holds 20"), "%s", book.problem().c_str());
}
END_TEST

START_TEST(nobody_takes_what_there_is_not) {
  TxLedgerBook book(100);
  book.take(101, &kA);
  ck_assert_msg(mentions(book.problem(), "the sum is not 100"), "%s", book.problem().c_str());
}
END_TEST

START_TEST(the_counter_agrees) {
  TxLedgerBook book(100);
  book.take(20, &kA);
  book.compare(90);
  ck_assert_msg(mentions(book.problem(), "the counter says that 90 are free"), "%s", book.problem().c_str());
}
END_TEST

START_TEST(receives_and_credits_have_one_owner_each) {
  WindowLedgerBook book(8, 6);
  test::check_text(book.check(0, 0, 6), "");
  book.arrived(3);
  test::check_text(book.check(0, 3, 6), "");
  test::check_text(book.check(2, 1, 6), "");
  book.granted(2);
  test::check_text(book.check(0, 1, 6), "");
  test::check_text(book.check(1, 1, 6), "8 receives, but the peer has 7, owed are 1, consumed 1");
  book.spent(2);
  test::check_text(book.check(0, 1, 4), "");
  test::check_text(book.check(0, 1, 5), "6 credits, but we have 5, and spent are 2");
  book.returned(1);
  test::check_text(book.check(0, 1, 5), "");
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "credit_ledger", {every_byte_has_an_owner, nobody_gives_back_twice, nobody_gives_back_anothers,
                        nobody_takes_what_there_is_not, the_counter_agrees, receives_and_credits_have_one_owner_each});
}
