// SPDX-License-Identifier: BSD-3-Clause
//
// The completion queues of a port on a device whose verbs are the test's: when one grows, and when another is made.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "common/accounting/completion_queue_set.h"
#include "test/unit/check_main.h"

namespace {

int largest = 1000;  ///< completion queue of the device
int most = 64;       ///< completion queues
bool can_resize = true;
std::vector<int> sizes;  ///< of those that were made, as they are now
int resized = 0;         ///< times

}  // namespace

// These take the place of libibverbs'.
extern "C" {

#pragma GCC visibility push(default)

int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* attributes) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->max_cqe = largest;
  return 0;
}
ibv_cq* ibv_create_cq(ibv_context* context, int entries, void*, ibv_comp_channel*, int) {
  if (static_cast<int>(sizes.size()) == most) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* queue = new ibv_cq{};
  queue->context = context;
  queue->handle = static_cast<std::uint32_t>(sizes.size());
  sizes.push_back(entries);
  return queue;
}
int ibv_resize_cq(ibv_cq* queue, int entries) {
  ck_assert_int_le(entries, largest);
  ++resized;
  if (!can_resize) {
    return EOPNOTSUPP;
  }
  sizes[queue->handle] = entries;
  return 0;
}
int ibv_destroy_cq(ibv_cq* queue) {
  delete queue;
  return 0;
}

#pragma GCC visibility pop

}  // extern "C"

namespace fabric {
namespace {

/// 100 entries at first, 20 of them for shared receives.
struct Bench {
  explicit Bench(CompletionQueueSet::Limits limits = {}) : set(&context, 100, 20, limits) {
    sizes.clear();
    resized = 0;
  }

  /// Reserves for so many connections of 30 entries. Gives the number of those that there was room for.
  int connect(int connections) {
    int connected = 0;
    for (int i = 0; i < connections; ++i) {
      if (auto room = set.reserve(30)) {
        rooms.push_back(std::move(*room));
        ++connected;
      }
    }
    return connected;
  }
  [[nodiscard]] int room() const {
    int sum = 0;
    for (const int size : sizes) {
      sum += (size - 20) / 30;
    }
    return sum;
  }

  ibv_context context{};
  CompletionQueueSet set;
  std::vector<CompletionQueueRoom> rooms;
};

}  // namespace

START_TEST(one_queue_grows_to_the_largest_there_is) {
  largest = 1000;
  can_resize = true;
  Bench bench;
  ck_assert_int_eq(bench.connect(32), 32);
  ck_assert_uint_eq(bench.set.count(), 1);
  ck_assert_int_eq(sizes[0], 1000);
  ck_assert_int_lt(resized, 12);
  ck_assert_int_eq(bench.connect(1), 1);  // (1000 - 20) / 30 are 32
  ck_assert_uint_eq(bench.set.count(), 2);
  ck_assert(bench.rooms[31].cq() == bench.set.queue(0) && bench.rooms[32].cq() == bench.set.queue(1));
}
END_TEST

START_TEST(a_device_that_cannot_resize_is_asked_once) {
  largest = 1000;
  can_resize = false;
  Bench bench;
  ck_assert_int_eq(bench.connect(50), 50);
  ck_assert_int_eq(resized, 1);
  ck_assert_uint_gt(bench.set.count(), 2);
  ck_assert_int_ge(bench.room(), 50);
}
END_TEST

START_TEST(resizing_can_be_forbidden) {
  can_resize = true;
  Bench bench({.may_resize = false});
  ck_assert_int_eq(bench.connect(10), 10);
  ck_assert_int_eq(resized, 0);
  ck_assert_uint_gt(bench.set.count(), 2);
}
END_TEST

START_TEST(room_that_is_given_back_is_used_again) {
  largest = 1000;
  can_resize = true;
  Bench bench;
  ck_assert_int_eq(bench.connect(10), 10);
  const int size = sizes[0];
  for (int i = 0; i < 100; ++i) {
    bench.rooms.erase(bench.rooms.begin(), bench.rooms.begin() + 5);
    ck_assert_int_eq(bench.connect(5), 5);
  }
  ck_assert_int_eq(sizes[0], size);
  ck_assert_uint_eq(bench.set.count(), 1);
}
END_TEST

START_TEST(room_for_more_of_a_queue_pair) {
  Bench bench;
  {
    const CompletionQueueRoom first = bench.set.reserve(30).value();
    CompletionQueueRoom more;
    ck_assert(!bench.set.extend(nullptr, 10, more));
    ck_assert(bench.set.extend(first.cq(), 10, more) && bench.set.extend(first.cq(), 40, more));
    ck_assert_int_eq(resized, 0);
    ck_assert(bench.set.extend(first.cq(), 1, more));  // the queue grows
    ck_assert_int_eq(resized, 1);
    ck_assert(!bench.set.extend(first.cq(), static_cast<std::uint32_t>(largest), more));
    more.reduce(11);
    ck_assert(bench.set.extend(first.cq(), 11, more));
    ck_assert_int_eq(resized, 1);
    ck_assert_uint_eq(bench.set.count(), 1);
  }
  const int size = sizes[0];
  ck_assert(bench.set.reserve(static_cast<std::uint32_t>(size) - 20).has_value());  // all has come back
  ck_assert_int_eq(resized, 1);
}
END_TEST

/// Of a device with one queue, which can become large enough for what 10 connections begin with, and 100 entries more.
START_TEST(room_for_more_is_not_that_of_others_to_come) {
  largest = 20 + 10 * 30 + 100;
  can_resize = true;
  most = 1;
  {
    Bench bench({.queues = 1, .at_first = 10 * 30, .shared_sends = 0});
    ck_assert_int_eq(bench.connect(2), 2);
    CompletionQueueRoom more;
    ck_assert(!bench.set.extend(bench.set.queue(0), 101, more));
    ck_assert(bench.set.extend(bench.set.queue(0), 60, more) && bench.set.extend(bench.set.queue(0), 40, more));
    ck_assert(!bench.set.extend(bench.set.queue(0), 1, more));
    ck_assert_int_eq(bench.connect(8), 8);
    // A peer that has gone may come back.
    bench.rooms.pop_back();
    ck_assert(!bench.set.extend(bench.set.queue(0), 1, more));
    more.reduce(1);
    ck_assert(bench.set.extend(bench.set.queue(0), 1, more));
    ck_assert_int_eq(bench.connect(1), 1);
  }
  most = 64;
}
END_TEST

START_TEST(what_no_queue_holds_is_refused) {
  largest = 200;
  can_resize = true;
  most = 3;
  Bench bench;
  ck_assert_int_eq(bench.connect(100), 3 * 6);  // (200 - 20) / 30 each
  const auto refused = bench.set.reserve(30);
  ck_assert(!refused && refused.error().text.find("creating a completion queue") != std::string::npos);
  const auto too_large = bench.set.reserve(190);
  ck_assert(!too_large && too_large.error().text.find("raise btl_fabric_cq_size") != std::string::npos);
  most = 64;
}
END_TEST

/// Queue pairs that own 30 entries each, and would like 50 more.
struct SharingBench : Bench {
  using Bench::Bench;
  void connect_sharing(int connections) {
    for (int i = 0; i < connections; ++i) {
      rooms.push_back(set.reserve({30, 50}).value());
    }
  }
  [[nodiscard]] std::uint32_t shared(std::size_t queue = 0) { return set.sends_of(set.queue(queue))->free(); }
};

START_TEST(sends_share_entries_up_to_a_limit) {
  largest = 1000;
  can_resize = true;
  SharingBench bench({.shared_sends = 120});
  bench.connect_sharing(2);
  ck_assert_uint_eq(bench.shared(), 100);
  bench.connect_sharing(18);
  ck_assert_uint_eq(bench.shared(), 120);
  ck_assert_int_ge(sizes[0], 20 + 20 * 30 + 120);
  bench.connect_sharing(8);  // (1000 - 20 - 120) / 30 are 28
  ck_assert_uint_eq(bench.set.count(), 1);
  bench.connect_sharing(1);
  ck_assert_uint_eq(bench.set.count(), 2);
  ck_assert_uint_eq(bench.shared(1), 50);
  ibv_cq other{};
  ck_assert_ptr_null(bench.set.sends_of(&other));
}
END_TEST

START_TEST(what_is_shared_does_not_grow_with_queue_pairs_that_come_and_go) {
  largest = 1000;
  can_resize = true;
  SharingBench bench;
  for (int i = 0; i < 100; ++i) {
    bench.connect_sharing(2);
    bench.rooms.clear();
  }
  ck_assert_uint_eq(bench.shared(), 100);
}
END_TEST

START_TEST(queues_that_cannot_grow_leave_room_for_peers) {
  largest = 1000;
  can_resize = false;
  SharingBench bench({.may_resize = false});
  bench.connect_sharing(2);
  ck_assert_uint_eq(bench.shared(), 100 / 4);
  ck_assert_uint_eq(bench.set.count(), 2);
}
END_TEST

/// Whatever is taken and given back, by several queue pairs.
START_TEST(entries_are_lent_and_come_back) {
  SendCompletions shared;
  shared.add(10);
  ck_assert_uint_eq(shared.take(4), 4);
  ck_assert_uint_eq(shared.take(8), 6);
  ck_assert_uint_eq(shared.take(1), 0);
  shared.give_back(3);
  ck_assert_uint_eq(shared.free(), 3);
}
END_TEST

}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "completion_queues",
      {one_queue_grows_to_the_largest_there_is, a_device_that_cannot_resize_is_asked_once, resizing_can_be_forbidden,
       room_that_is_given_back_is_used_again, room_for_more_of_a_queue_pair,
       room_for_more_is_not_that_of_others_to_come, what_no_queue_holds_is_refused, sends_share_entries_up_to_a_limit,
       what_is_shared_does_not_grow_with_queue_pairs_that_come_and_go, queues_that_cannot_grow_leave_room_for_peers,
       entries_are_lent_and_come_back});
}
