// SPDX-License-Identifier: BSD-3-Clause
//
// Which receive queues are chosen, over a grid of jobs and devices, and which of them two processes have in common.
#include <string>

#include "cpc/queue_pairs/queue_choice.h"
#include "test/unit/check_main.h"

namespace fabric::cpc {
namespace {

QueueRoom room(std::int64_t peers, std::int64_t queue_pairs, std::uint64_t memory = 0) {
  QueueRoom made;
  made.peers = peers;
  made.queue_pairs = queue_pairs;
  made.memory = memory;
  made.settings.max_inline = 64;
  made.settings.rdma_depth = 64;
  return made;
}

/// The same on iWARP, where shared queues are P queues.
ReceiveQueues run(const QueueRoom& in, std::uint8_t level) {
  const ReceiveQueues queues = queues_of_level(level);
  return in.link == Transport::kIwarp ? queues.without_shared() : queues;
}

}  // namespace

START_TEST(each_level_has_some_of_the_queues_before) {
  for (std::uint8_t level = 0; level < kQueueLevels; ++level) {
    const ReceiveQueues own = queues_of_level(level);
    const auto subsets = subsets_of_level(level, own);
    ck_assert_uint_eq(subsets.size(), std::size_t{kQueueLevels} - level);
    for (std::size_t i = 0; i < subsets.size(); ++i) {
      const ReceiveQueues theirs = queues_of_level(static_cast<std::uint8_t>(level + i));
      ck_assert(subsets[i].queues().canonical() == theirs.canonical());
      ck_assert(i == 0 || subsets[i].count() < subsets[i - 1].count());  // a request tells them apart by that
      ck_assert_uint_eq(subsets[i].largest(), theirs.largest());
    }
  }
}
END_TEST

START_TEST(a_message_has_a_place_in_every_subset) {
  const ReceiveQueues own = queues_of_level(0);
  for (const QueueSubset& subset : subsets_of_level(0, own)) {
    for (std::size_t index = 0; index < own.count(); ++index) {
      const QueueSpec& taken = subset.queues()[subset.place(index)];
      ck_assert(taken.size >= own[index].size || taken.size == subset.largest());
      const std::size_t best = subset.queues().smallest_fitting(own[index].size);
      ck_assert(best == subset.count() || taken.size == subset.queues()[best].size);
    }
    for (std::size_t place = 0; place < subset.count(); ++place) {
      ck_assert_uint_eq(subset.place(subset.index(place)), place);
    }
  }
}
END_TEST

START_TEST(few_peers_have_receives_of_their_own) {
  ck_assert_uint_eq(choose_level(room(1, 1000)).level, 0);
  ck_assert_uint_eq(choose_level(room(kMostPeersWithOwnReceives, 1000)).level, 0);
  const QueueChoice more = choose_level(room(kMostPeersWithOwnReceives + 1, 1000));
  ck_assert_uint_eq(more.level, 1);
  ck_assert_str_eq(more.why.c_str(), "33 peers, more than the 32 that have receives of their own");
  ck_assert(more.shortfall.empty());
  ck_assert_uint_eq(choose_level(room(1, 1000), 2).level, 2);
  QueueRoom iwarp = room(kMostPeersWithOwnReceives, 1000);
  iwarp.link = Transport::kIwarp;
  ck_assert_uint_eq(choose_level(iwarp).level, 0);
  ++iwarp.peers;
  const QueueChoice one_queue = choose_level(iwarp);
  ck_assert_uint_eq(one_queue.level, 2);
  ck_assert_str_eq(one_queue.why.c_str(), "33 peers, each of which has receives of its own for every queue on iWARP");
}
END_TEST

/// Never over a limit, and no more frugal than need be.
START_TEST(what_is_chosen_fits) {
  int unfit = 0;
  int cached = 0;
  for (const Transport link : {Transport::kInfiniBand, Transport::kRoce, Transport::kIwarp}) {
    for (const std::int64_t peers : {1, 2, 31, 32, 33, 100, 1023, 10'000, 100'000}) {
      for (const std::int64_t pairs : {1, 4, 100, 256, 4096, 262'144, 1'000'000}) {
        for (const std::uint64_t memory : {0, 1 << 20, 8 << 20, 64 << 20, 1 << 30}) {
          QueueRoom in = room(peers, pairs, memory);
          in.link = link;
          const QueueChoice choice = choose_level(in);
          if (!choice.shortfall.empty()) {
            ck_assert_uint_eq(choice.level, kQueueLevels - 1);
            ++unfit;
            continue;
          }
          const ReceiveQueues queues = within_memory(run(in, choice.level), in);
          const QueueDemand demand = queue_demand(queues, link, in.settings);
          const std::int64_t connections = most_connections(queues, in);
          cached += connections < peers ? 1 : 0;
          ck_assert(connections <= kFewestConnections || demand.queue_pairs_per_peer * connections <= pairs);
          ck_assert(memory == 0 || demand.bytes(connections) <= memory);
          ck_assert(choice.level == kQueueLevels - 1 || connections == peers);
          ck_assert(ReceiveQueues::parse(queues.canonical()).has_value());
        }
      }
    }
  }
  ck_assert_int_gt(unfit, 0);
  ck_assert_int_gt(cached, 0);
}
END_TEST

START_TEST(long_messages_keep_their_queue) {
  QueueRoom in = room(1000, 1000);
  ck_assert_uint_eq(choose_level(in).level, 2);
  in.longest = 20'000;
  const QueueChoice choice = choose_level(in);
  ck_assert_uint_eq(choice.level, 1);
  ck_assert_str_eq(
      choice.why.c_str(),
      "3000 queue pairs for 1000 peers, and 1000 are this process's part of the device: idle connections make "
      "room for others");
}
END_TEST

}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite(
      "queue_choice", {each_level_has_some_of_the_queues_before, a_message_has_a_place_in_every_subset,
                       few_peers_have_receives_of_their_own, what_is_chosen_fits, long_messages_keep_their_queue});
}
