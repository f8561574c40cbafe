// SPDX-License-Identifier: BSD-3-Clause
//
// Send queues that share entries of a completion queue: one that sends much gets what others do not use, nobody waits for ever, and
// never is more under way than there is room for.
#include <random>
#include <vector>

#include "test/unit/check_main.h"
#include "test/unit/path_bench.h"

namespace fabric::test {

constexpr std::uint32_t kShared = 20;
constexpr BenchOptions kSharing{.queues = "S,256,200,100,64,150,2", .max_inline = 0, .shared_sends = kShared};

std::size_t under_way(PathBench& bench, Link& link) {
  return bench.pair(link).sends.size();
}

std::uint32_t free_to_share(PathBench& bench) {
  return bench.path->queues().completion_queues->sends_of(bench.pair(*bench.links.front()).verbs.send_cq)->free();
}

/// Until one has to wait. Gives how many are under way then.
std::size_t send_until_full(PathBench& bench, Link& link) {
  while (!link.has_waiting()) {
    ck_assert_int_ge(bench.send(link), 0);
  }
  return under_way(bench, link);
}

void complete_all(PathBench& bench, Link& link) {
  while (under_way(bench, link) > 0) {
    bench.device.complete_send(bench.pair(link));
    bench.path->progress();
  }
}

START_TEST(what_one_does_not_use_another_gets) {
  PathBench bench(kSharing);
  Link& first = bench.connect();
  Link& second = bench.connect();
  const std::uint32_t own = first.queues()[0].sends->own;
  ck_assert_uint_ge(own, cpc::kOwnSends);
  ck_assert_uint_lt(own + kShared, first.queues()[0].sends->tx.space().entries());
  ck_assert_uint_eq(free_to_share(bench), 0);  // whoever comes first has all
  ck_assert_uint_eq(send_until_full(bench, second), own + kShared);
  ck_assert_uint_gt(bench.counters.completions_borrowed, 0);
  ck_assert_uint_eq(send_until_full(bench, first), own);
  complete_all(bench, second);
  complete_all(bench, first);
  ck_assert_uint_eq(send_until_full(bench, first), own + kShared);
  complete_all(bench, first);
  ck_assert(!first.has_waiting() && !second.has_waiting());
}
END_TEST

/// What waits goes as soon as there is room for its own.
START_TEST(who_gets_nothing_goes_on_with_its_own) {
  PathBench bench(kSharing);
  Link& first = bench.connect();
  Link& second = bench.connect();
  (void)send_until_full(bench, first);
  const std::size_t own = send_until_full(bench, second);
  ck_assert_int_eq(bench.send(second), OPAL_SUCCESS);
  const std::size_t posted = bench.pair(second).all_sends.size();
  bench.device.complete_send(bench.pair(second));
  bench.path->progress();
  ck_assert_uint_eq(bench.pair(second).all_sends.size(), posted + 1);
  ck_assert_uint_eq(under_way(bench, second), own);
}
END_TEST

START_TEST(a_link_that_goes_leaves_all) {
  PathBench bench(kSharing);
  bench.connect();
  Link& second = bench.connect();
  const std::size_t all = send_until_full(bench, second);
  bench.fail(second);
  bench.device.flush(bench.pair(second));
  bench.path->progress();
  bench.links.pop_back();
  ck_assert_uint_eq(free_to_share(bench), kShared);
  ck_assert_uint_eq(send_until_full(bench, *bench.links.front()), all);
}
END_TEST

/// Whoever goes first.
START_TEST(who_stays_gets_what_those_had_that_go) {
  PathBench bench(kSharing);
  for (int i = 0; i < 6; ++i) {
    bench.connect();
  }
  for (const std::ptrdiff_t goes : {2, 4, 0, 2}) {
    bench.links.erase(bench.links.begin() + goes);
    Link& last = *bench.links.back();
    (void)send_until_full(bench, *bench.links.front());
    complete_all(bench, *bench.links.front());  // it keeps what it has borrowed
    ck_assert_uint_eq(send_until_full(bench, last), last.queues()[0].sends->own + kShared);
    complete_all(bench, last);
  }
}
END_TEST

START_TEST(operations_wait_for_what_others_have) {
  PathBench bench(kSharing);
  Link& first = bench.connect();
  Link& second = bench.connect();
  (void)send_until_full(bench, first);
  for (int i = 0; i < 4; ++i) {
    ck_assert_int_eq(bench.submit(second, bench.request(RdmaKind::kWrite)), OPAL_SUCCESS);
  }
  complete_all(bench, second);
  complete_all(bench, first);
  ck_assert(!second.has_waiting());
  ck_assert(second.rdma().in_flight() == 0);
}
END_TEST

/// Random messages and operations on several links, which come and go.
START_TEST(never_more_under_way_than_there_is_room_for) {
  std::mt19937 random(static_cast<unsigned>(_i));
  PathBench bench(kSharing);
  for (int i = 0; i < 5; ++i) {
    bench.connect();
  }
  for (int step = 0; step < 4000; ++step) {
    Link& link = *bench.links[random() % bench.links.size()];
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
      case 3:
        (void)bench.send(link);
        break;
      case 4:
        (void)bench.submit(link, bench.request(RdmaKind::kWrite));
        break;
      case 5:
        bench.path->progress();
        break;
      default:
        if (under_way(bench, link) > 0) {
          bench.device.complete_send(bench.pair(link));
        }
    }
    std::size_t all = 0;
    std::size_t room = kShared;
    for (const auto& one : bench.links) {
      all += under_way(bench, *one);
      room += one->queues()[0].sends->own;
    }
    ck_assert_uint_le(all, room);
  }
  for (int round = 0; round < 1000; ++round) {
    for (const auto& one : bench.links) {
      complete_all(bench, *one);
    }
  }
  for (const auto& one : bench.links) {
    ck_assert(!one->has_waiting() && one->rdma().in_flight() == 0);
  }
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("path_shared_completions", {what_one_does_not_use_another_gets,
                                               who_gets_nothing_goes_on_with_its_own,
                                               a_link_that_goes_leaves_all,
                                               who_stays_gets_what_those_had_that_go,
                                               operations_wait_for_what_others_have,
                                               {never_more_under_way_than_there_is_room_for, 8}});
}
