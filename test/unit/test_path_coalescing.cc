// SPDX-License-Identifier: BSD-3-Clause
//
// Several small messages in one packet: which wait for others and for how long, and what the receiver makes of them.
#include "test/unit/coalescing_bench.h"

namespace fabric::test {
namespace {

constexpr BenchOptions kCoalescing{.coalesce_size = 256};

/// A packet of several messages, which says that the first has `size` bytes, and has `length` bytes after its header.
std::vector<std::byte> packet_of(std::uint16_t size, std::size_t length) {
  std::vector<std::byte> bytes = PathBench::packet(PacketKind::kMessages, length);
  RecordHeader{size, PathBench::kTag}.write(bytes.data() + PacketHeader::kSize);
  return bytes;
}

}  // namespace

START_TEST(the_first_few_leave_at_once_and_the_others_together) {
  PathBench bench(kCoalescing);
  Link& link = bench.connect();
  send_many(bench, link, 7);
  ck_assert_uint_eq(posted(bench, link), kAlone);
  ck_assert(link.has_waiting());
  bench.path->progress();
  ck_assert_uint_eq(posted(bench, link), kAlone + 1);
  ck_assert_uint_eq(bench.pair(link).all_sends.back().bytes.size(), PacketHeader::kSize + 3 * kRecord);
  ck_assert(bench.sends_ended.empty());
  complete_all(bench, link);
  bench.path->progress();
  ck_assert(bench.sends_ended == std::vector<int>(3, OPAL_SUCCESS));
  ck_assert(come_back(bench, link) == std::vector<int>({4, 5, 6}));
  ck_assert_uint_eq(bench.counters.messages_sent_inline, kAlone);
  ck_assert_uint_eq(bench.counters.messages_coalesced, 3);
  ck_assert_uint_eq(bench.counters.packets_coalesced, 1);
  ck_assert_uint_eq(bench.counters.bytes_sent, 7 * 8);
  ck_assert_uint_eq(bench.counters.messages_received, 3);
  ck_assert_uint_eq(bench.counters.bytes_received, 3 * 8);
}
END_TEST

START_TEST(who_makes_progress_in_between_waits_for_nothing) {
  PathBench bench(kCoalescing);
  Link& link = bench.connect();
  for (int i = 1; i <= 3; ++i) {
    send_many(bench, link, 2);
    ck_assert_uint_eq(posted(bench, link), 2U * static_cast<unsigned>(i));
    bench.path->progress();
  }
  ck_assert_uint_eq(bench.counters.packets_coalesced, 0);
}
END_TEST

START_TEST(a_full_packet_leaves_at_once) {
  PathBench bench(kCoalescing);
  Link& link = bench.connect();
  constexpr int kFit = 256 / kRecord;
  send_many(bench, link, kAlone + kFit);
  ck_assert_uint_eq(posted(bench, link), kAlone);
  send_many(bench, link, 1);
  ck_assert_uint_eq(posted(bench, link), kAlone + 1);
  bench.path->progress();
  ck_assert_uint_eq(posted(bench, link), kAlone + 2);
}
END_TEST

START_TEST(large_messages_go_alone) {
  PathBench bench(kCoalescing);
  Link& link = bench.connect();
  send_many(bench, link, 5);
  ck_assert_int_eq(send_one(bench, link, 0, 56), OPAL_SUCCESS);  // a quarter of a packet with its header
  ck_assert_uint_eq(posted(bench, link), kAlone);
  ck_assert_int_eq(send_one(bench, link, 0, 57), 1);  // and takes the packet along
  ck_assert_uint_eq(posted(bench, link), kAlone + 2);
}
END_TEST

START_TEST(it_can_be_turned_off) {
  PathBench bench;
  Link& link = bench.connect();
  send_many(bench, link, 7);
  ck_assert_uint_eq(posted(bench, link), 7);
}
END_TEST

START_TEST(another_message_takes_the_packet_along) {
  PathBench bench(kCoalescing);
  Link& link = bench.connect();
  send_many(bench, link, 6);
  ck_assert_int_eq(bench.send(link, 0, 100), OPAL_SUCCESS);
  ck_assert_uint_eq(posted(bench, link), kAlone + 2);
  ck_assert_uint_eq(bench.pair(link).all_sends[kAlone].bytes.size(), PacketHeader::kSize + 2 * kRecord);
  ck_assert(!link.has_waiting());
}
END_TEST

/// A packet that waits for a credit takes more messages, and leaves with the credit.
START_TEST(a_packet_waits_for_credits_as_any_message) {
  PathBench bench({.queues = "P,256,4,2,1,1:P,4096,8,4,2,2", .coalesce_size = 256});
  Link& link = bench.connect();
  send_many(bench, link, 4);  // all credits
  send_many(bench, link, 1);
  bench.path->progress();
  ck_assert_uint_eq(posted(bench, link), 4);
  ck_assert_uint_eq(bench.counters.waits_for_credit, 1);
  send_many(bench, link, 30);  // 16 fit in a packet
  bench.path->progress();
  ck_assert_uint_eq(posted(bench, link), 4);
  bench.receive(link, {.credits = 4, .explicit_seen = 0});
  bench.path->progress();
  bench.path->progress();
  complete_all(bench, link);
  bench.path->progress();
  ck_assert(!link.has_waiting());
  ck_assert_uint_gt(bench.counters.packets_coalesced, 1);
}
END_TEST

START_TEST(without_a_buffer_messages_go_alone) {
  PathBench bench({.most_sends = 2, .coalesce_size = 256});
  Link& link = bench.connect();
  std::vector<Fragment*> all;
  while (Fragment* one = bench.path->get_send(0)) {
    all.push_back(one);
  }
  put_back(all.back());
  all.pop_back();
  send_many(bench, link, 6);
  ck_assert_uint_eq(posted(bench, link), 6);
  for (Fragment* one : all) {
    put_back(one);
  }
}
END_TEST

START_TEST(a_link_ends_with_an_open_packet) {
  PathBench bench({.most_sends = 4, .coalesce_size = 256});
  const unsigned all = bench.buffers_left();
  for (const bool fails : {true, false}) {
    Link& link = bench.connect();
    send_many(bench, link, 6);
    ck_assert_uint_eq(bench.buffers_left(), all - 3);  // with those of its messages
    fails ? bench.fail(link) : bench.close(link);
    ck_assert_uint_eq(bench.buffers_left(), all);
    bench.path->progress();
    ck_assert_uint_eq(posted(bench, link), kAlone);
    ck_assert(bench.sends_ended == std::vector<int>(2, OPAL_ERR_UNREACH));  // of the one that failed
  }
  bench.sends_ended.clear();
  Link& link = bench.connect();
  send_many(bench, link, 6);
  bench.device.refuse_sends(ENOMEM);
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert_uint_eq(bench.buffers_left(), all);
  ck_assert(bench.sends_ended == std::vector<int>(2, OPAL_ERR_UNREACH));
}
END_TEST

START_TEST(a_refused_packet_fails_what_comes_behind_it) {
  PathBench bench({.most_sends = 4, .coalesce_size = 256});
  const unsigned all = bench.buffers_left();
  Link& link = bench.connect();
  send_many(bench, link, 6);
  bench.device.refuse_sends(ENOMEM);
  ck_assert_int_eq(send_one(bench, link, 0, 100), OPAL_ERR_UNREACH);
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert_uint_eq(bench.buffers_left(), all);
  ck_assert(bench.sends_ended == std::vector<int>(2, OPAL_ERR_UNREACH));
}
END_TEST

/// What waits goes over the next link.
START_TEST(a_packet_changes_links) {
  PathBench bench(kCoalescing);
  Link& old = bench.connect();
  send_many(bench, old, 7);
  Link& link = bench.go_over_from(old, Link::State::kClosed);
  ck_assert_uint_eq(posted(bench, link), 1);
  bench.device.complete_send(bench.pair(link));
  bench.path->progress();
  ck_assert(bench.sends_ended == std::vector<int>(3, OPAL_SUCCESS));
}
END_TEST

START_TEST(a_packet_fails_for_each_of_its_messages) {
  PathBench bench({.most_sends = 8, .coalesce_size = 256});
  const unsigned all = bench.buffers_left();
  Link& link = bench.connect();
  send_many(bench, link, 7);
  bench.path->progress();
  for (int i = 0; i < kAlone; ++i) {
    bench.pair(link).sends.pop_front();  // these have arrived, of which nobody hears
  }
  bench.device.fail_send(bench.pair(link), IBV_WC_RETRY_EXC_ERR);
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(bench.failures[0].is_missed);
  ck_assert(bench.sends_ended == std::vector<int>(3, OPAL_ERR_UNREACH));
  ck_assert_uint_eq(bench.buffers_left(), all);
}
END_TEST

/// Who waits for each message before the next meets the limit now and then; it goes up, and comes down with real bursts.
START_TEST(packets_of_one_message_are_avoided) {
  PathBench bench({.queues = "P,256,200,8,4,2,200:P,4096,8,4,2,2", .coalesce_size = 256});
  Link& link = bench.connect();
  unsigned sent = 0;
  for (const unsigned limit : {4U, 8U, 16U, 16U}) {
    send_many(bench, link, static_cast<int>(limit) + 1);
    ck_assert_uint_eq(posted(bench, link), sent + limit);
    bench.path->progress();
    sent += limit + 1;
  }
  send_many(bench, link, 16 + 9);
  ck_assert_uint_eq(posted(bench, link), sent + 16);
  bench.path->progress();
  send_many(bench, link, 6);
  ck_assert_uint_eq(posted(bench, link), sent + 16 + 1 + kAlone);
}
END_TEST

START_TEST(goodbye_comes_after_the_packet) {
  PathBench bench(kCoalescing);
  Link& link = bench.connect();
  send_many(bench, link, 6);
  link.say_goodbye();
  const auto& sends = bench.pair(link).all_sends;
  ck_assert_uint_eq(sends.size(), kAlone + 2);
  ck_assert(static_cast<PacketKind>(sends[kAlone].bytes[0]) == PacketKind::kMessages);
  ck_assert(static_cast<PacketKind>(sends[kAlone + 1].bytes[0]) == PacketKind::kGoodbye);
}
END_TEST

START_TEST(a_link_goes_with_an_open_packet) {
  PathBench bench(kCoalescing);
  send_many(bench, bench.connect(), 6);
  Link& second = bench.connect();
  send_many(bench, second, 6);
  send_many(bench, bench.connect(), 6);
  bench.close(second);
  bench.links.erase(bench.links.begin() + 1);
  bench.path->progress();
  ck_assert_uint_eq(bench.counters.packets_coalesced, 2);
}
END_TEST

/// What a callback does meanwhile changes nothing: the messages that are left are the peer's, and have come.
START_TEST(callbacks_make_progress_and_fail_the_link) {
  PathBench bench(kCoalescing);
  Link& link = bench.connect();
  std::vector<std::byte> packet = packet_of(8, 3 * kRecord);
  for (std::size_t i = 1; i < 3; ++i) {
    RecordHeader{8, PathBench::kTag}.write(packet.data() + PacketHeader::kSize + i * kRecord);
  }
  bench.on_message = [&] {
    bench.path->progress();
    if (bench.messages == 1) {
      bench.fail(link);
    }
  };
  bench.device.receive(bench.pair(link), packet);
  bench.path->progress();
  ck_assert_uint_eq(bench.messages, 3);
}
END_TEST

START_TEST(what_callbacks_send_leaves_at_once) {
  PathBench bench(kCoalescing);
  Link& link = bench.connect();
  bench.on_message = [&] {
    send_many(bench, link, 6);
    ck_assert_uint_eq(posted(bench, link), 6);
  };
  bench.receive(link);
  bench.path->progress();
  ck_assert_uint_eq(bench.messages, 1);
  ck_assert_uint_eq(bench.counters.packets_coalesced, 0);
}
END_TEST

START_TEST(messages_may_be_empty_or_fill_the_packet) {
  PathBench bench(kCoalescing);
  Link& link = bench.connect();
  bench.device.receive(bench.pair(link), packet_of(0, RecordHeader::kSize));
  bench.path->progress();
  ck_assert_uint_eq(bench.messages, 1);
  ck_assert(bench.last_message.empty());
  bench.device.receive(bench.pair(link), packet_of(240, 248));
  bench.path->progress();
  ck_assert_uint_eq(bench.messages, 2);
  ck_assert_uint_eq(bench.last_message.size(), 240);
  bench.device.receive(bench.pair(link), PathBench::packet(PacketKind::kMessages, 0));
  bench.path->progress();
  ck_assert_uint_eq(bench.messages, 2);
  ck_assert(bench.failures.empty());
}
END_TEST

START_TEST(what_is_no_message_fails_the_link) {
  struct Bad {
    std::uint16_t size;
    std::size_t length;
  };
  for (const Bad& bad : {Bad{9, 16}, Bad{8, 9}, Bad{0xffff, 256}, Bad{1, 8}}) {
    PathBench bench(kCoalescing);
    Link& link = bench.connect();
    bench.device.receive(bench.pair(link), packet_of(bad.size, bad.length));
    bench.path->progress();
    ck_assert_uint_eq(bench.messages, 0);
    ck_assert_uint_eq(bench.failures.size(), 1);
    ck_assert(bench.failures[0].kind == LinkFailure::Kind::kBadPacket);
  }
  // The first is good, and behind it there are too few bytes for another.
  PathBench bench(kCoalescing);
  Link& link = bench.connect();
  bench.device.receive(bench.pair(link), packet_of(8, kRecord + 7));
  bench.path->progress();
  ck_assert_uint_eq(bench.messages, 1);
  ck_assert_uint_eq(bench.failures.size(), 1);
}
END_TEST

/// X queues: the open packet of a link holds up nothing of another link through the same queue pair.
START_TEST(packets_go_through_shared_senders) {
  PathBench bench({.queues = "X,256,32,16,16,16,2:X,4096,32,16,16,16,2", .coalesce_size = 256});
  FakeQueuePair& pair = bench.device.make_queue_pair();
  cpc::XrcPath path;
  path.queue_pair = &pair.verbs;
  path.sender = 1;
  SharedSendQueue& sends = bench.path->sender(path);
  Link& first = bench.share(sends, 0x501);
  Link& second = bench.share(sends, 0x502);
  send_many(bench, first, 6);
  send_many(bench, second, 1);
  ck_assert_uint_eq(pair.all_sends.size(), kAlone + 1);
  bench.path->progress();
  ck_assert_uint_eq(pair.all_sends.size(), kAlone + 2);
  ck_assert_uint_eq(pair.all_sends.back().bytes.size(), PacketHeader::kSize + 2 * kRecord);
  ck_assert(!first.has_waiting());
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("path_coalescing", {the_first_few_leave_at_once_and_the_others_together,
                                       who_makes_progress_in_between_waits_for_nothing,
                                       a_full_packet_leaves_at_once,
                                       large_messages_go_alone,
                                       it_can_be_turned_off,
                                       another_message_takes_the_packet_along,
                                       a_packet_waits_for_credits_as_any_message,
                                       without_a_buffer_messages_go_alone,
                                       a_link_ends_with_an_open_packet,
                                       a_refused_packet_fails_what_comes_behind_it,
                                       goodbye_comes_after_the_packet,
                                       a_link_goes_with_an_open_packet,
                                       a_packet_changes_links,
                                       a_packet_fails_for_each_of_its_messages,
                                       packets_of_one_message_are_avoided,
                                       callbacks_make_progress_and_fail_the_link,
                                       what_callbacks_send_leaves_at_once,
                                       messages_may_be_empty_or_fill_the_packet,
                                       what_is_no_message_fails_the_link,
                                       packets_go_through_shared_senders});
}
