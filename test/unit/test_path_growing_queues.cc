// SPDX-License-Identifier: BSD-3-Clause
//
// P queues that begin with few receives: a sender that runs out of credits says so with its next message, and the queue of its
// peer grows, as far as there is room for completions.
#include "test/unit/check_main.h"
#include "test/unit/path_bench.h"

namespace fabric::test {

constexpr BenchOptions kGrowing{.queues = "P,256,16,8,8,2,2:P,4096,8,4,2,2"};

/// A message of the peer's that says whether it had to wait for a credit.
void receive(PathBench& bench, Link& link, bool is_short) {
  std::vector<std::byte> bytes(PacketHeader::kSize + 8);
  const std::uint16_t notes = is_short ? PacketHeader::kShortOfCredits : 0;
  PacketHeader{PacketKind::kMessage, PathBench::kTag, {}, notes}.write(bytes.data());
  bench.device.receive(bench.pair(link), bytes);
  bench.path->progress();
}

/// Of a message that has been sent.
PacketHeader header_of(PathBench& bench, Link& link, std::size_t index) {
  PacketHeader header;
  const auto& bytes = bench.pair(link).sends[index].bytes;
  ck_assert(header.read(bytes.data(), bytes.size()));
  return header;
}

START_TEST(begins_with_few_receives) {
  PathBench bench(kGrowing);
  Link& link = bench.connect();
  ck_assert_uint_eq(link.queues()[0].receives.posted(), 4);
  ck_assert_uint_eq(link.queues()[1].receives.posted(), 10);
  ck_assert_uint_eq(link.queues()[0].credits.sendable(), 2);
}
END_TEST

START_TEST(who_waits_for_a_credit_says_so_once) {
  PathBench bench(kGrowing);
  Link& link = bench.connect();
  for (std::size_t i = 0; i < 2; ++i) {
    ck_assert_int_ge(bench.send(link), 0);
    ck_assert(!header_of(bench, link, i).is_short_of_credits());
  }
  ck_assert_int_ge(bench.send(link), 0);  // waits
  ck_assert_int_ge(bench.send(link), 0);  // behind it
  ck_assert_uint_eq(bench.pair(link).sends.size(), 2);
  bench.receive(link, {.credits = 4, .explicit_seen = 0});  // of a queue that has grown
  bench.path->progress();
  ck_assert_uint_ge(bench.pair(link).sends.size(), 4);
  ck_assert(header_of(bench, link, 2).is_short_of_credits());
  ck_assert(!header_of(bench, link, 3).is_short_of_credits());
}
END_TEST

START_TEST(grows_for_a_peer_that_waits) {
  PathBench bench(kGrowing);
  Link& link = bench.connect();
  receive(bench, link, false);
  ck_assert_uint_eq(link.queues()[0].receives.posted(), 4);
  for (const std::uint32_t depth : {6U, 10U, 18U, 18U}) {
    receive(bench, link, true);
    ck_assert_uint_eq(link.queues()[0].credits.depth(), depth);
    ck_assert_uint_ge(link.queues()[0].receives.posted() + 4, depth);
  }
  ck_assert_uint_eq(bench.counters.receive_queues_grown, 3);
  ck_assert_uint_eq(bench.failures.size(), 0);
  // The peer has, or gets with the next message, all that it did not have before.
  unsigned granted = link.queues()[0].credits.take_grant().credits;
  for (std::size_t i = 0; i < bench.pair(link).sends.size(); ++i) {
    granted += header_of(bench, link, i).grant.credits;
  }
  ck_assert_uint_ge(granted, 14);
}
END_TEST

START_TEST(does_not_grow_without_room_for_completions) {
  PathBench bench(kGrowing);
  Link& link = bench.connect();
  CompletionQueueSet& set = *bench.path->queues().completion_queues;
  CompletionQueueRoom all;
  for (std::uint32_t count = 1U << 16; count > 0; count /= 2) {
    while (set.extend(set.queue(0), count, all)) {
    }
  }
  receive(bench, link, true);
  ck_assert_uint_eq(link.queues()[0].credits.depth(), 4);
  ck_assert_uint_eq(bench.counters.receive_queues_grown, 0);
  ck_assert_uint_eq(bench.messages, 1);
  all = {};
  receive(bench, link, true);
  ck_assert_uint_eq(link.queues()[0].credits.depth(), 6);
}
END_TEST

/// It goes on with what it has, and does not ask again each time that the peer waits.
START_TEST(does_not_grow_without_memory) {
  PathBench bench({.queues = "P,256,1024,512,512,2,512"});
  Link& link = bench.connect();
  bench.device.registers = false;
  receive(bench, link, true);
  const std::uint32_t depth = link.queues()[0].credits.depth();
  ck_assert_uint_lt(depth, 512 + 2 + 512);
  const unsigned regions = bench.device.regions;
  bench.device.registers = true;
  for (unsigned i = 0; i < 2000; ++i) {
    (void)link.queues()[0].credits.take_grant();  // as if something had gone to the peer
    receive(bench, link, true);
    bench.pair(link).sends.clear();
  }
  ck_assert_uint_eq(link.queues()[0].credits.depth(), depth);
  ck_assert_uint_eq(bench.device.regions, regions);
  ck_assert_uint_eq(bench.messages, 2001);
  ck_assert_uint_eq(bench.failures.size(), 0);
}
END_TEST

/// The room that the queue had more goes back with the link.
START_TEST(gives_back_what_it_had_more) {
  PathBench bench(kGrowing);
  for (int i = 0; i < 100; ++i) {
    Link& link = bench.connect();
    receive(bench, link, true);
    ck_assert_uint_eq(link.queues()[0].credits.depth(), 6);
    bench.close(link);
    link.post_drain_markers();
    bench.device.flush(bench.pair(link, 0));
    bench.device.flush(bench.pair(link, 1));
    while (bench.path->progress() > 0) {
    }
    ck_assert(link.is_drained());
    bench.links.clear();
  }
}
END_TEST

/// Shared queues have no credits to be short of.
START_TEST(a_shared_queue_takes_no_such_note) {
  PathBench bench({.queues = "S,256,16,8"});
  Link& link = bench.connect();
  std::vector<std::byte> bytes(PacketHeader::kSize + 8);
  PacketHeader{PacketKind::kMessage, PathBench::kTag, {}, PacketHeader::kShortOfCredits}.write(bytes.data());
  bench.device.receive(*bench.shared[0], bench.pair(link), bytes);
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert_uint_eq(bench.messages, 0);
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("path_growing_queues",
                   {begins_with_few_receives, who_waits_for_a_credit_says_so_once, grows_for_a_peer_that_waits,
                    does_not_grow_without_room_for_completions, does_not_grow_without_memory,
                    gives_back_what_it_had_more, a_shared_queue_takes_no_such_note});
}
