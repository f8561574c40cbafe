// SPDX-License-Identifier: BSD-3-Clause
//
// The end of a read or write is told when a message can follow it at once.
#include "test/unit/path_bench.h"

using namespace fabric;
using namespace fabric::test;

namespace {

/// The queue that reads and writes go over, and the one that short messages do.
constexpr std::size_t kRdma = 1;
constexpr std::size_t kShort = 0;
constexpr std::uint32_t kCredits = 8;

void complete(PathBench& bench, Link& link, std::size_t queue, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    bench.device.complete_send(bench.pair(link, queue));
  }
  bench.path->progress();
}

/// A link without a credit for short messages, with `writes` that the device has done.
Link& connect_without_credits(PathBench& bench, std::size_t writes) {
  Link& link = bench.connect();
  for (std::uint32_t i = 0; i < kCredits; ++i) {
    ck_assert_int_eq(bench.send(link, kShort), OPAL_SUCCESS);
  }
  complete(bench, link, kShort, kCredits);
  ck_assert(link.queues()[kShort].room() == Room::kNoCredit);
  for (std::size_t i = 0; i < writes; ++i) {
    ck_assert_int_eq(bench.submit(link, bench.request(RdmaKind::kWrite)), OPAL_SUCCESS);
  }
  complete(bench, link, kRdma, writes);
  ck_assert_uint_eq(bench.requests_ended.size(), 0);
  ck_assert_uint_eq(link.rdma().outstanding(), writes);
  ck_assert_uint_eq(link.rdma().in_flight(), 0);
  ck_assert_uint_eq(bench.counters.rdma_held, writes);
  return link;
}

}  // namespace

/// ob1 sends one message from each callback: none of them waits.
START_TEST(an_end_waits_until_a_message_can_follow) {
  PathBench bench;
  Link& link = connect_without_credits(bench, 3);
  bench.on_finished = [&](int) { ck_assert_int_eq(bench.send(link, kShort), OPAL_SUCCESS); };
  for (std::size_t credits = 1; credits <= 2; ++credits) {
    const std::size_t before = bench.requests_ended.size();
    bench.receive(link, {.credits = static_cast<std::uint16_t>(credits)});
    bench.path->progress();
    ck_assert_uint_eq(bench.requests_ended.size(), before + credits);
    ck_assert(link.queues()[kShort].waiting.empty());
  }
  ck_assert_uint_eq(bench.counters.waits_for_credit, 0);
  ck_assert_uint_eq(link.rdma().outstanding(), 0);
  for (const int status : bench.requests_ended) {
    ck_assert_int_eq(status, OPAL_SUCCESS);
  }
}
END_TEST

/// The application goes on to send, and its messages wait: they do not keep an end for ever, which goes first.
START_TEST(an_end_goes_before_what_waits) {
  PathBench bench;
  Link& link = connect_without_credits(bench, 2);
  for (int i = 0; i < 3; ++i) {
    ck_assert_int_eq(bench.send(link, kShort), OPAL_SUCCESS);
  }
  bench.sends_ended.clear();
  bench.on_finished = [&](int) { ck_assert_int_eq(bench.send(link, kShort), OPAL_SUCCESS); };
  const std::size_t before = bench.pair(link, kShort).sends.size();
  bench.receive(link, {.credits = 3});
  bench.path->progress();
  ck_assert_uint_eq(bench.requests_ended.size(), 2);
  ck_assert_uint_eq(bench.pair(link, kShort).sends.size(), before + 3);
  bench.receive(link, {.credits = 2});
  bench.path->progress();
  ck_assert(link.queues()[kShort].waiting.empty());
  ck_assert_uint_eq(bench.counters.waits_for_credit, 3);
  complete(bench, link, kShort, 5);
  ck_assert_uint_eq(bench.sends_ended.size(), 5);
}
END_TEST

/// But an atomic that goes as a message stays behind those that were sent before it.
START_TEST(an_atomic_message_overtakes_nothing) {
  PathBench bench;
  Link& link = connect_without_credits(bench, 2);
  ck_assert_int_eq(bench.send(link, kShort), OPAL_SUCCESS);
  int atomics = 0;
  bench.on_finished = [&](int) {
    ++atomics;
    ck_assert_int_eq(bench.submit(link, bench.request(RdmaKind::kFetchAdd, true)), OPAL_SUCCESS);
  };
  const std::size_t before = bench.sends_ended.size();
  bench.receive(link, {.credits = 1});
  bench.path->progress();
  bench.on_finished = nullptr;
  ck_assert_int_eq(atomics, 2);
  ck_assert_uint_eq(bench.counters.waits_for_credit, 3);
  complete(bench, link, kShort, 1);
  ck_assert_uint_eq(bench.sends_ended.size(), before + 1);
}
END_TEST

/// No more are begun than may be under way, and those that wait go on when the ends are told.
START_TEST(what_is_held_counts_as_under_way) {
  PathBench bench({.rdma_depth = 4});
  Link& link = connect_without_credits(bench, 4);
  ck_assert_int_eq(bench.submit(link, bench.request(RdmaKind::kWrite)), OPAL_SUCCESS);
  ck_assert(link.rdma().has_waiting());
  bench.receive(link, {.credits = 1});
  bench.path->progress();
  ck_assert_uint_eq(bench.requests_ended.size(), 4);
  ck_assert(!link.rdma().has_waiting());
  complete(bench, link, kRdma, 1);
  ck_assert_uint_eq(bench.requests_ended.size(), 5);
}
END_TEST

/// A target that makes no progress keeps nobody for ever.
START_TEST(what_is_held_too_long_is_told) {
  PathBench bench;
  (void)connect_without_credits(bench, 2);
  while (bench.requests_ended.size() < 2) {
    bench.path->progress();
  }
  ck_assert_int_eq(bench.requests_ended[0], OPAL_SUCCESS);
}
END_TEST

/// Nothing of ob1's follows an atomic, and one-sided operations do not wait for their target.
START_TEST(the_end_of_an_atomic_is_told) {
  PathBench bench;
  Link& link = connect_without_credits(bench, 1);
  ck_assert_int_eq(bench.submit(link, bench.request(RdmaKind::kFetchAdd)), OPAL_SUCCESS);
  complete(bench, link, kRdma, 1);
  ck_assert_uint_eq(bench.requests_ended.size(), 1);
}
END_TEST

/// The link ends: what was done was done well. 0: it fails; 1: it is closed; 2: nobody is there to hear of it.
START_TEST(what_is_held_ends_with_the_link) {
  PathBench bench;
  Link& link = connect_without_credits(bench, 2);
  if (_i == 2) {
    link.rdma().forget_callers();
  }
  if (_i == 0) {
    bench.fail(link);
  } else {
    bench.close(link);
  }
  ck_assert_uint_eq(bench.requests_ended.size(), _i == 2 ? 0 : 2);
  for (const int status : bench.requests_ended) {
    ck_assert_int_eq(status, OPAL_SUCCESS);
  }
  ck_assert_uint_eq(link.rdma().outstanding(), 0);
  bench.path->progress();
}
END_TEST

int main() {
  return run_suite("path: ends that are held back", {an_end_waits_until_a_message_can_follow,
                                                     an_end_goes_before_what_waits,
                                                     an_atomic_message_overtakes_nothing,
                                                     what_is_held_counts_as_under_way,
                                                     what_is_held_too_long_is_told,
                                                     the_end_of_an_atomic_is_told,
                                                     {what_is_held_ends_with_the_link, 3}});
}
