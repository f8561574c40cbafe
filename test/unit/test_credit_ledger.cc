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

START_TEST(every_receive_has_one_buffer) {
  RxLedgerBook book(100);
  book.take(10, &kA);
  book.take(20, &kB);
  book.compare(70, 2);
  book.give_back(10, &kA);  // in any order
  book.take(30, &kA);
  book.give_back(20, &kB);
  book.compare(70, 1);
  test::check_text(book.problem(), "");
}
END_TEST

START_TEST(no_buffer_is_posted_or_comes_back_twice) {
  RxLedgerBook twice(100);
  twice.take(10, &kA);
  twice.take(10, &kA);
  ck_assert_msg(mentions(twice.problem(), "a buffer that is posted already; 90 of 100 free"), "%s",
                twice.problem().c_str());
  RxLedgerBook back(100);
  back.take(10, &kA);
  back.give_back(10, &kB);
  ck_assert_msg(mentions(back.problem(), "a buffer that is not posted"), "%s", back.problem().c_str());
  RxLedgerBook other(100);
  other.take(10, &kA);
  other.give_back(20, &kA);
  ck_assert_msg(mentions(other.problem(), "a buffer that holds 10"), "%s", other.problem().c_str());
}
END_TEST

START_TEST(receive_queues_and_their_counters_agree) {
  RxLedgerBook room(100);
  room.take(101, &kA);
  ck_assert_msg(mentions(room.problem(), "101 are taken; 100 of 100 free"), "%s", room.problem().c_str());
  RxLedgerBook bytes(100);
  bytes.take(10, &kA);
  bytes.compare(80, 1);
  ck_assert_msg(mentions(bytes.problem(), "the counter says that 80 are free"), "%s", bytes.problem().c_str());
  RxLedgerBook posted(100);
  posted.take(10, &kA);
  posted.compare(90, 2);
  ck_assert_msg(mentions(posted.problem(), "2 receives are posted"), "%s", posted.problem().c_str());
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
      "credit_ledger",
      {every_byte_has_an_owner, nobody_gives_back_twice, nobody_gives_back_anothers, nobody_takes_what_there_is_not,
       the_counter_agrees, every_receive_has_one_buffer, no_buffer_is_posted_or_comes_back_twice,
       receive_queues_and_their_counters_agree, receives_and_credits_have_one_owner_each});
}
