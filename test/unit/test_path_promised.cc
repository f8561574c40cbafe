// SPDX-License-Identifier: BSD-3-Clause
//
// Packets whose messages are complete at once: they leave whatever their sender does, or the link fails.
#include "test/unit/coalescing_bench.h"

namespace fabric::test {

constexpr BenchOptions kPromising{
    .queues = "P,256,8,4,2,2:P,4096,8,4,2,2", .coalesce_size = 256, .watches_packets = true};

/// As many as leave alone, and then so many in a packet, all of them complete.
void send_complete(PathBench& bench, Link& link, int count) {
  for (int i = 0; i < kAlone + count; ++i) {
    ck_assert(bench.send_immediately(link, 8, static_cast<std::uint8_t>(i)));
  }
  ck_assert_uint_eq(bench.counters.messages_coalesced, static_cast<unsigned>(count));
}

START_TEST(messages_are_complete_in_a_promised_packet) {
  PathBench bench(kPromising);
  Link& link = bench.connect();
  send_complete(bench, link, 3);
  ck_assert_int_eq(bench.ticks_started, 1);
  ck_assert_uint_eq(posted(bench, link), kAlone);
  bench.path->progress();
  ck_assert_uint_eq(posted(bench, link), kAlone + 1);
  ck_assert(come_back(bench, link) == std::vector<int>({4, 5, 6}));
  complete_all(bench, link);
  bench.path->progress();
  ck_assert(bench.sends_ended.empty());
  ck_assert(!link.has_waiting());
  ck_assert_uint_eq(bench.counters.packets_coalesced, 1);
  ck_assert_uint_eq(bench.counters.bytes_sent, 7 * 8);
  const TxCredits& room = link.queues()[0].sends->tx;
  ck_assert_uint_eq(room.used(), room.unsignaled());
}
END_TEST

START_TEST(what_lies_is_posted_by_the_progress_thread) {
  PathBench bench(kPromising);
  Link& link = bench.connect();
  send_complete(bench, link, 3);
  ck_assert(bench.watch.tick());  // sees it
  ck_assert_uint_eq(posted(bench, link), kAlone);
  ck_assert(bench.watch.tick());
  ck_assert_uint_eq(posted(bench, link), kAlone + 1);
  ck_assert(bench.watch.tick());
  ck_assert_uint_eq(posted(bench, link), kAlone + 1);
  // The completion may be there before we know that it has been posted.
  complete_all(bench, link);
  ck_assert_int_ge(bench.path->progress(), 1);
  ck_assert(!link.has_waiting());
  ck_assert_uint_eq(bench.counters.packets_coalesced, 1);
  ck_assert_uint_eq(bench.pair(link).all_sends.back().bytes.size(), PacketHeader::kSize + 3 * kRecord);
}
END_TEST

START_TEST(after_one_that_lay_there_is_another_packet) {
  PathBench bench(kPromising);
  Link& link = bench.connect();
  send_complete(bench, link, 3);
  (void)bench.watch.tick();
  (void)bench.watch.tick();
  ck_assert(bench.send_immediately(link, 8, 7));
  ck_assert_int_eq(send_one(bench, link, 8), 1);
  ck_assert_uint_eq(posted(bench, link), kAlone + 1);
  bench.path->progress();
  ck_assert_uint_eq(posted(bench, link), kAlone + 2);
  ck_assert(come_back(bench, link) == std::vector<int>({7, 8}));
}
END_TEST

/// Messages that Open MPI wants to hear of go along.
START_TEST(callbacks_come_with_promised_packets) {
  PathBench bench(kPromising);
  Link& link = bench.connect();
  send_complete(bench, link, 2);
  ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  (void)bench.watch.tick();
  (void)bench.watch.tick();
  ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);  // in another one, since that has left
  bench.path->progress();
  ck_assert_uint_eq(posted(bench, link), kAlone + 2);
  ck_assert(bench.sends_ended.empty());
  complete_all(bench, link);
  bench.path->progress();
  ck_assert(bench.sends_ended == std::vector<int>(2, OPAL_SUCCESS));
}
END_TEST

/// What cannot leave is not called complete.
START_TEST(nothing_is_promised_without_a_credit) {
  PathBench bench(kPromising);
  Link& link = bench.connect();
  for (int i = 0; i < kAlone; ++i) {
    ck_assert(bench.send_immediately(link));
  }
  for (int i = 0; i < 4; ++i) {
    ck_assert_int_ge(bench.send(link, 0, 200), 0);  // too large for a packet
  }
  ck_assert_uint_eq(posted(bench, link), 8);
  ck_assert(!bench.send_immediately(link));
  ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  ck_assert(!bench.send_immediately(link));  // nor into one that waits
  ck_assert(!bench.watch.tick() || bench.watch.tick());
  ck_assert_uint_eq(posted(bench, link), 8);
}
END_TEST

START_TEST(a_full_promised_packet_leaves_at_once) {
  PathBench bench(kPromising);
  Link& link = bench.connect();
  constexpr int kFit = 256 / kRecord;
  send_complete(bench, link, kFit);
  ck_assert_uint_eq(posted(bench, link), kAlone);
  ck_assert(bench.send_immediately(link));
  ck_assert_uint_eq(posted(bench, link), kAlone + 1);
  ck_assert_int_eq(bench.send(link, 0, 200), OPAL_SUCCESS);  // one that goes alone takes the next packet along
  ck_assert_uint_eq(posted(bench, link), kAlone + 3);
}
END_TEST

START_TEST(a_link_ends_with_a_promised_packet) {
  for (const bool lies : {false, true}) {
    PathBench bench(kPromising);
    Link& link = bench.connect();
    send_complete(bench, link, 2);
    ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
    if (lies) {
      (void)bench.watch.tick();
      (void)bench.watch.tick();
    }
    bench.fail(link);
    ck_assert_uint_eq(posted(bench, link), static_cast<std::size_t>(kAlone) + (lies ? 1 : 0));
    (void)bench.watch.tick();
    (void)bench.watch.tick();
    ck_assert_uint_eq(posted(bench, link), static_cast<std::size_t>(kAlone) + (lies ? 1 : 0));
    bench.device.flush(bench.pair(link));
    bench.path->progress();
    ck_assert(bench.sends_ended == std::vector<int>(1, OPAL_ERR_UNREACH));
    const TxCredits& room = link.queues()[0].sends->tx;
    ck_assert(lies || room.unsignaled() == 0);
    bench.links.clear();
    (void)bench.watch.tick();
  }
}
END_TEST

START_TEST(goodbye_comes_after_a_promised_packet) {
  PathBench bench(kPromising);
  Link& link = bench.connect();
  send_complete(bench, link, 2);
  link.say_goodbye();
  const std::vector<FakeSend>& sends = bench.pair(link).all_sends;
  ck_assert_uint_eq(sends.size(), kAlone + 2);
  ck_assert(static_cast<PacketKind>(sends[kAlone].bytes[0]) == PacketKind::kMessages);
  ck_assert(static_cast<PacketKind>(sends[kAlone + 1].bytes[0]) == PacketKind::kGoodbye);
}
END_TEST

START_TEST(a_promised_packet_changes_links) {
  PathBench bench(kPromising);
  Link& link = bench.connect();
  send_complete(bench, link, 2);
  Link& next = bench.go_over_from(link, Link::State::kFailed);
  ck_assert_uint_eq(posted(bench, next), 1);
  ck_assert(come_back(bench, next) == std::vector<int>({4, 5}));
}
END_TEST

START_TEST(a_refused_promise_fails_the_link) {
  for (const bool lies : {false, true}) {
    PathBench bench(kPromising);
    Link& link = bench.connect();
    send_complete(bench, link, 2);
    ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
    bench.device.refuse_sends(EINVAL);
    if (lies) {
      (void)bench.watch.tick();
      (void)bench.watch.tick();
      ck_assert(bench.failures.empty());
    }
    bench.path->progress();
    ck_assert_uint_eq(bench.failures.size(), 1);
    ck_assert_int_eq(bench.failures[0].error_number, EINVAL);
    ck_assert(bench.sends_ended == std::vector<int>(1, OPAL_ERR_UNREACH));
  }
}
END_TEST

/// The progress thread could not post it, and the link fails for another reason before this thread hears of that.
START_TEST(a_refused_promise_is_not_under_way) {
  PathBench bench(kPromising);
  Link& link = bench.connect();
  send_complete(bench, link, 2);
  ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  bench.device.refuse_sends(EINVAL);
  (void)bench.watch.tick();
  (void)bench.watch.tick();
  bench.fail(link);
  ck_assert(bench.sends_ended == std::vector<int>(1, OPAL_ERR_UNREACH));
  ck_assert_uint_eq(link.queues()[0].in_flight, 0);
  ck_assert_uint_eq(link.queues()[0].sends->tx.unsignaled(), 0);
}
END_TEST

constexpr BenchOptions kEarly{
    .queues = "P,1024,32,16,8,2", .coalesce_size = 1024, .watches_packets = true, .coalesce_first = 2};

START_TEST(packets_of_a_burst_leave_early) {
  PathBench bench(kEarly);
  Link& link = bench.connect();
  // Packets of 2 and 4 messages leave by themselves, one of 3 with progress().
  for (int round = 1; round <= 2; ++round) {
    for (int i = 0; i < kAlone + 2 + 4 + 3; ++i) {
      ck_assert(bench.send_immediately(link, 8, static_cast<std::uint8_t>(i)));
    }
    const auto& sends = bench.pair(link).all_sends;
    ck_assert_uint_eq(bench.counters.packets_coalesced, 3 * round - 1);
    ck_assert_uint_eq(sends[sends.size() - 2].bytes.size(), PacketHeader::kSize + 2 * kRecord);
    ck_assert_uint_eq(sends.back().bytes.size(), PacketHeader::kSize + 4 * kRecord);
    bench.path->progress();
    ck_assert_uint_eq(posted(bench, link), round * (kAlone + 3U));
    ck_assert(come_back(bench, link) == std::vector<int>({10, 11, 12}));
    complete_all(bench, link);
    bench.path->progress();
    ck_assert(!link.has_waiting());
  }
}
END_TEST

/// Unlike one that leaves because the sender waits for each message: after that more leave alone.
START_TEST(a_burst_with_a_small_end_is_a_burst) {
  PathBench bench(kEarly);
  Link& link = bench.connect();
  for (int round = 1; round <= 2; ++round) {
    for (int i = 0; i < kAlone + 2 + 1; ++i) {
      ck_assert(bench.send_immediately(link));
    }
    finish(bench, link);
    ck_assert_uint_eq(bench.counters.packets_coalesced, 2 * round);
  }
}
END_TEST

/// The first one of a burst has left early, so that fewer leave alone from now on, but more have in this one.
START_TEST(what_waits_for_a_callback_joins_a_burst_too) {
  PathBench bench(kEarly);
  Link& link = bench.connect();
  for (int i = 0; i < kAlone + 1; ++i) {
    ck_assert(bench.send_immediately(link));
  }
  finish(bench, link);
  for (int i = 0; i < 2 * kAlone + 2 + 1; ++i) {
    ck_assert(bench.send_immediately(link));
  }
  const std::size_t before = posted(bench, link);
  ck_assert_int_eq(bench.send(link), OPAL_SUCCESS);
  ck_assert_uint_eq(posted(bench, link), before);
  ck_assert_uint_eq(bench.counters.messages_coalesced, 1 + 2 + 1 + 1);
  finish(bench, link);
  ck_assert(bench.sends_ended == std::vector<int>(1, OPAL_SUCCESS));
}
END_TEST

START_TEST(a_refused_early_packet_fails_the_link) {
  PathBench bench(kEarly);
  Link& link = bench.connect();
  for (int i = 0; i < kAlone + 1; ++i) {
    ck_assert(bench.send_immediately(link));
  }
  bench.device.refuse_sends(EINVAL);
  ck_assert(bench.send_immediately(link));  // it is lost with the link, which is reported
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert_uint_eq(link.queues()[0].in_flight, 0);
}
END_TEST

START_TEST(packets_are_filled_where_posting_takes_long) {
  using std::chrono::nanoseconds;
  EarlyPackets early(std::nullopt);
  for (unsigned i = 0; i < EarlyPackets::kSamples; ++i) {
    ck_assert_uint_eq(early.first(), EarlyPackets::kFirst);
    early.took(EarlyPackets::kCheap + nanoseconds(1));
  }
  ck_assert_uint_eq(early.first(), EarlyPackets::kFilled);
  EarlyPackets now_and_then(std::nullopt);  // a process may lose its processor
  for (unsigned i = 0; i < EarlyPackets::kSamples; ++i) {
    now_and_then.took(i == 3 ? EarlyPackets::kCheap : std::chrono::seconds(1));
  }
  ck_assert_uint_eq(now_and_then.first(), EarlyPackets::kFirst);
  ck_assert_uint_eq(EarlyPackets(0).first(), EarlyPackets::kFilled);
  ck_assert_uint_eq(EarlyPackets(5).first(), 5);
  ck_assert_uint_eq(EarlyPackets::next(5), 10);
  ck_assert_uint_eq(EarlyPackets::next(EarlyPackets::kFilled - 1), EarlyPackets::kFilled);
}
END_TEST

/// As posting does, whose time is what counts.
START_TEST(the_time_of_each_post_is_taken) {
  using std::chrono::steady_clock;
  EarlyPackets early(std::nullopt);
  for (unsigned i = 0; i < EarlyPackets::kSamples; ++i) {
    ck_assert_uint_eq(early.first(), EarlyPackets::kFirst);
    const int result = early.timed([i] {
      for (const auto start = steady_clock::now(); steady_clock::now() - start <= EarlyPackets::kCheap;) {
      }
      return static_cast<int>(i);
    });
    ck_assert_int_eq(result, static_cast<int>(i));
  }
  ck_assert_uint_eq(early.first(), EarlyPackets::kFilled);
  EarlyPackets chosen(5);  // nothing is measured
  ck_assert_int_eq(chosen.timed([] { return 7; }), 7);
  ck_assert_uint_eq(chosen.first(), 5);
}
END_TEST

START_TEST(ticks_end_when_no_packet_is_opened) {
  PathBench bench({.queues = "P,256,64,32,16,2,64", .coalesce_size = 256, .watches_packets = true});
  Link& link = bench.connect();
  for (int round = 1; round <= 3; ++round) {
    while (!link.has_waiting()) {
      ck_assert(bench.send_immediately(link));
    }
    bench.path->progress();
    ck_assert_int_eq(bench.ticks_started, round);
    int ticks = 0;
    while (bench.watch.tick()) {
      ck_assert_int_lt(++ticks, 1000);
    }
    ck_assert_int_ge(ticks, 10);
  }
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite(
      "path_promised",
      {messages_are_complete_in_a_promised_packet, what_lies_is_posted_by_the_progress_thread,
       after_one_that_lay_there_is_another_packet, callbacks_come_with_promised_packets,
       nothing_is_promised_without_a_credit, a_full_promised_packet_leaves_at_once, a_link_ends_with_a_promised_packet,
       goodbye_comes_after_a_promised_packet, a_promised_packet_changes_links, a_refused_promise_fails_the_link,
       a_refused_promise_is_not_under_way, packets_of_a_burst_leave_early, a_burst_with_a_small_end_is_a_burst,
       what_waits_for_a_callback_joins_a_burst_too, a_refused_early_packet_fails_the_link,
       packets_are_filled_where_posting_takes_long, the_time_of_each_post_is_taken,
       ticks_end_when_no_packet_is_opened});
}
