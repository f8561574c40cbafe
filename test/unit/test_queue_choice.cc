// SPDX-License-Identifier: BSD-3-Clause
//
// Which receive queues are chosen, over a grid of jobs and devices, and which of them two processes have in common.
#include <algorithm>
#include <string>
#include <vector>

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

/// Of a job with so many processes on each host, whose devices have XRC.
QueueRoom xrc_room(std::int64_t hosts, std::int64_t processes, std::int64_t queue_pairs, std::uint64_t memory = 0) {
  QueueRoom made = room(hosts * processes - 1, queue_pairs, memory);
  made.processes = processes;
  made.has_xrc = true;
  return made;
}

QueueChoice choose(const std::vector<QueueRoom>& rooms) {
  return choose_level_of_all(rooms);
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
      "3000 queue pairs for 1000 peers, and this process may have 1000 (its part of the device, or btl_fabric_max_queue_pairs): "
      "idle connections make room for others");
}
END_TEST

START_TEST(two_processes_have_the_same_queues) {
  for (std::uint8_t one = 0; one <= kXrcLevel; ++one) {
    for (std::uint8_t other = 0; other <= kXrcLevel; ++other) {
      const auto ours = subsets_of_level(one, queues_of_level(one));
      const auto theirs = subsets_of_level(other, queues_of_level(other));
      const ReceiveQueues& common = ours.at(common_subset(one, other)).queues();
      ck_assert(common.canonical() == theirs.at(common_subset(other, one)).queues().canonical());
      ck_assert(common.has_others() && !common.has_xrc());
    }
  }
  const auto subsets = subsets_of_level(kXrcLevel, queues_of_level(kXrcLevel));
  ck_assert(subsets.size() == 2 && subsets[0].queues().has_xrc() && !subsets[0].queues().has_others());
  ck_assert_uint_eq(subsets[0].largest(), subsets[1].largest());
}
END_TEST

START_TEST(x_queues_where_nothing_else_has_room) {
  const QueueRoom in = xrc_room(1, 128, 64);
  const QueueChoice choice = choose({in});
  ck_assert_uint_eq(choice.level, kXrcLevel);
  ck_assert_str_eq(
      choice.why.c_str(),
      "127 queue pairs for 127 peers, and this process may have 64 (its part of the device, or btl_fabric_max_queue_pairs): "
      "the 128 processes of a host share queue pairs");
  ck_assert(!choice.is_cached && choice.shortfall.empty());
  ck_assert_uint_eq(choose({xrc_room(1, 128, 127)}).level, 2);  // there is room
  ck_assert_uint_eq(choose({xrc_room(128, 1, 64)}).level, 2);   // nobody to share with
  ck_assert_uint_eq(choose({xrc_room(32, 4, 64)}).level, 2);    // no less than others
  QueueRoom without = in;
  without.has_xrc = false;
  const QueueChoice cached = choose({without});
  ck_assert(cached.level == 2 && cached.is_cached);
  ck_assert(choose({in, without}).level == 2 && choose({without, in}).level == 2);
  ck_assert(choose({in, xrc_room(1, 128, 3)}).level == 2);
  ck_assert(choose({xrc_room(1, 128, 127), in}).level == kXrcLevel);
  QueueRoom long_messages = in;
  long_messages.longest = 20'000;
  ck_assert_uint_eq(choose({long_messages}).level, 1);
}
END_TEST

/// Never over a limit, with or without XRC, and X queues only where there is no room otherwise.
/// Even where there is room for others.
START_TEST(x_queues_are_chosen_where_nothing_else_can_be_connected) {
  const QueueRoom with_xrc = xrc_room(2, 4, 1000);
  ck_assert_uint_eq(choose({with_xrc}).level, 0);
  const QueueChoice choice = choose_xrc(std::vector{with_xrc, with_xrc});
  ck_assert_uint_eq(choice.level, kXrcLevel);
  ck_assert(choice.shortfall.empty() && !choice.is_cached);
  QueueRoom without = with_xrc;
  without.has_xrc = false;
  ck_assert_uint_eq(choose_xrc(std::vector{with_xrc, without}).level, 0);
  QueueRoom small = with_xrc;
  small.memory = 1;
  ck_assert(!choose_xrc(std::vector{with_xrc, small, with_xrc}).shortfall.empty());
}
END_TEST

START_TEST(x_queues_fit) {
  int chosen = 0;
  int cached = 0;
  for (const std::int64_t hosts : {1, 2, 16, 100, 1000}) {
    for (const std::int64_t processes : {1, 2, 16, 128, 512}) {
      for (const std::int64_t pairs : {1, 4, 64, 500, 4096, 262'144}) {
        for (const std::uint64_t memory : {0, 1 << 20, 8 << 20, 64 << 20, 1 << 30}) {
          QueueRoom in = xrc_room(hosts, processes, pairs, memory);
          in.peers = std::max<std::int64_t>(1, in.peers);
          const QueueChoice choice = choose({in});
          in.has_xrc = false;
          const QueueChoice otherwise = choose({in});
          cached += choice.is_cached ? 1 : 0;
          if (choice.level != kXrcLevel) {
            ck_assert(choice.level == otherwise.level && choice.why == otherwise.why);
            continue;
          }
          ++chosen;
          ck_assert(otherwise.is_cached && processes > 1);
          const ReceiveQueues queues = within_memory(queues_of_level(kXrcLevel), in);
          ck_assert_int_eq(in.hosts(), hosts);
          ck_assert(kXrcPairsPerHost * hosts + most_connections(queues, in) <= pairs);
          ck_assert(memory == 0 || bytes_of_all(queues, in) <= memory);
          const QueueDemand demand = queue_demand(queues, in.link, in.settings);
          const auto others = static_cast<std::uint64_t>(most_connections(queues, in));
          const auto few = static_cast<std::uint64_t>(std::min(in.peers, kFewestConnections));
          ck_assert(memory == 0 || bytes_of_all(queues, in) + (others - few) * demand.per_peer.sum() <= memory);
        }
      }
    }
  }
  ck_assert_int_gt(chosen, 20);
  ck_assert_int_gt(cached, 20);
}
END_TEST

}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite(
      "queue_choice", {each_level_has_some_of_the_queues_before, a_message_has_a_place_in_every_subset,
                       few_peers_have_receives_of_their_own, what_is_chosen_fits, long_messages_keep_their_queue,
                       two_processes_have_the_same_queues, x_queues_where_nothing_else_has_room,
                       x_queues_are_chosen_where_nothing_else_can_be_connected, x_queues_fit});
}
