// SPDX-License-Identifier: BSD-3-Clause
//
// Eager RDMA: what is written into rings, and read from them.
#include "test/unit/eager_rdma_bench.h"

namespace fabric::test {

// ---- Sending

START_TEST(small_messages_are_written_into_the_peers_ring) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  const PeerRing ring;
  arrive(bench, link, offer_packet(ring.offer()));
  ck_assert(bench.send_immediately(link, 13, 5));
  const std::vector<FakeSend> sent = writes(bench, link);
  ck_assert_uint_eq(sent.size(), 1);
  ck_assert_uint_eq(sent[0].bytes.size(), 16 + RingTrailer::kSize);
  ck_assert_uint_eq(sent[0].remote_address + sent[0].bytes.size(), ring.offer().address + kSlot);
  ck_assert_uint_eq(sent[0].rkey, 77);
  ck_assert((sent[0].flags & IBV_SEND_INLINE) != 0);
  const RingTrailer trailer = trailer_of(sent[0]);
  ck_assert_uint_eq(trailer.size, 13);
  ck_assert_uint_eq(trailer.lap, 1);
  ck_assert_uint_eq(trailer.header.tag, PathBench::kTag);
  for (std::size_t i = 0; i < 16; ++i) {
    ck_assert_int_eq(std::to_integer<int>(sent[0].bytes[i]), i < 13 ? 5 : 0);
  }
  ck_assert_uint_eq(bench.counters.messages_by_eager_rdma, 1);
  ck_assert_uint_eq(bench.counters.messages_sent_inline, 1);
  ck_assert_uint_eq(bench.counters.bytes_sent, 13);
}
END_TEST

START_TEST(a_full_ring_leaves_the_queue) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  const PeerRing ring;
  arrive(bench, link, offer_packet(ring.offer()));
  for (std::size_t i = 0; i < kSlots + 2; ++i) {
    ck_assert(bench.send_immediately(link));
  }
  ck_assert_uint_eq(writes(bench, link).size(), kSlots);
  ck_assert_uint_eq(posted(bench, link, PacketKind::kMessage).size(), 2);
  // Slots come back with any packet, and are written in the second lap.
  std::vector<std::byte> packet = PathBench::packet(PacketKind::kMessage);
  PacketHeader{PacketKind::kMessage, PathBench::kTag, {}, 3}.write(packet.data());
  arrive(bench, link, packet);
  for (std::size_t i = 0; i < kSlots; ++i) {
    ck_assert(bench.send_immediately(link));
  }
  const std::vector<FakeSend> sent = writes(bench, link);
  ck_assert_uint_eq(sent.size(), kSlots + 3);
  ck_assert_uint_eq(trailer_of(sent[kSlots - 1]).lap, 1);
  ck_assert_uint_eq(trailer_of(sent[kSlots]).lap, 2);
  ck_assert_uint_eq(sent[kSlots].remote_address, sent[0].remote_address);
}
END_TEST

START_TEST(large_messages_and_what_waits_do_not_go_by_ring) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  const PeerRing ring;
  arrive(bench, link, offer_packet(ring.offer()));
  ck_assert(bench.send_immediately(link, kSlot - RingTrailer::kSize));
  ck_assert(bench.send_immediately(link, kSlot - RingTrailer::kSize + 1));
  ck_assert_uint_eq(writes(bench, link).size(), 1);
  for (int i = 0; i < 8; ++i) {
    ck_assert_int_ge(bench.send(link), 0);  // out of credits
  }
  ck_assert(!link.queues()[0].waiting.empty());
  ck_assert(!bench.send_immediately(link));
  ck_assert_uint_eq(writes(bench, link).size(), 1);
}
END_TEST

START_TEST(what_the_device_does_not_copy_goes_by_no_ring) {
  PathBench bench({.max_inline = 40, .eager_rdma = EagerRdma::kOn});
  Link& link = bench.connect();
  const PeerRing ring;
  arrive(bench, link, offer_packet(ring.offer()));
  ck_assert(bench.send_immediately(link, 24));
  ck_assert(bench.send_immediately(link, 25));
  ck_assert_uint_eq(writes(bench, link).size(), 1);
}
END_TEST

/// Their completions come in batches, with those of inline messages, and the accounts are the send queue's.
START_TEST(writes_take_room_and_give_it_back) {
  PathBench bench({.queues = "P,256,64,32,16,2", .eager_rdma = EagerRdma::kOn});
  Link& link = bench.connect();
  const PeerRing ring;
  arrive(bench, link, offer_packet(ring.offer()));
  TxCredits& room = link.queues()[0].sends->tx;
  for (std::uint16_t round = 0; round < 50; ++round) {
    for (std::size_t i = 0; i < kSlots; ++i) {
      ck_assert(bench.send_immediately(link));
    }
    while (!bench.pair(link).sends.empty()) {
      bench.device.complete_send(bench.pair(link));
    }
    std::vector<std::byte> packet = PathBench::packet(PacketKind::kMessage);
    PacketHeader{PacketKind::kMessage, PathBench::kTag, {}, kSlots}.write(packet.data());
    arrive(bench, link, packet);
    ck_assert_uint_eq(room.used(), room.unsignaled());
  }
  ck_assert_uint_eq(writes(bench, link).size(), 50 * kSlots);
}
END_TEST

START_TEST(a_refused_write_fails_the_link) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  const PeerRing ring;
  arrive(bench, link, offer_packet(ring.offer()));
  bench.device.refuse_sends(EINVAL);
  ck_assert(bench.send_immediately(link));
  ck_assert_uint_eq(bench.failures.size(), 1);
  ck_assert(bench.failures[0].kind == LinkFailure::Kind::kRefusedPost);
}
END_TEST

// ---- Receiving

START_TEST(who_talks_much_is_given_a_ring) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  bench.receive(link);
  bench.path->progress();
  ck_assert(posted(bench, link, PacketKind::kRing).empty());
  Writer peer = talk_for_ring(bench, link);
  ck_assert_uint_eq(peer.offer().slots, kSlots);
  ck_assert_uint_eq(peer.offer().slot_size, kSlot);
  ck_assert_uint_eq(bench.counters.eager_rdma_rings, 1);
  peer.write(7, 8);
  peer.write(8, 1);
  ck_assert(take(bench) == std::vector<int>({7, 8}));
  ck_assert_uint_eq(bench.last_message.size(), 1);
  ck_assert(take(bench).empty());
}
END_TEST

/// Round and round, further than laps have numbers.
START_TEST(a_ring_goes_round) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  Writer peer = talk_for_ring(bench, link);
  for (int i = 0; i < 300 * static_cast<int>(kSlots); ++i) {
    peer.write(static_cast<std::uint8_t>(i));
    ck_assert(take(bench) == std::vector<int>({i % 256}));
  }
}
END_TEST

START_TEST(slots_go_back_with_what_we_send) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  Writer peer = talk_for_ring(bench, link);
  peer.write(1);
  peer.write(2);
  ck_assert(take(bench) == std::vector<int>({1, 2}));
  for (const unsigned expected : {2U, 0U}) {
    ck_assert(bench.send_immediately(link));
    PacketHeader header;
    ck_assert(header.read(posted(bench, link, PacketKind::kMessage).back().bytes.data(), PacketHeader::kSize));
    ck_assert_uint_eq(header.ring_slots(), expected);
  }
}
END_TEST

START_TEST(credits_come_through_rings_too) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  Writer peer = talk_for_ring(bench, link);
  for (int i = 0; i < 8; ++i) {
    ck_assert_int_ge(bench.send(link), 0);
  }
  ck_assert(!link.queues()[0].waiting.empty());
  peer.write(1, 8, 0, {.credits = 4, .explicit_seen = 0});
  bench.path->progress();
  ck_assert(link.queues()[0].waiting.empty());
}
END_TEST

START_TEST(rings_are_for_links_that_are_up_and_for_no_x_queues) {
  PathBench bench({.queues = "X,256,8,4:X,4096,8,4", .eager_rdma = EagerRdma::kOn});
  FakeQueuePair& pair = bench.device.make_queue_pair();
  cpc::XrcPath path;
  path.queue_pair = &pair.verbs;
  path.sender = 1;
  Link& link = bench.share(bench.path->sender(path), 0x501);
  for (int i = 0; i < 5; ++i) {
    FakeQueuePair target;
    target.verbs.qp_num = 0x501;
    bench.device.receive(*bench.shared[0], target, PathBench::packet(PacketKind::kMessage));
    bench.path->progress();
  }
  ck_assert_uint_eq(bench.messages, 5);
  ck_assert_uint_eq(bench.counters.eager_rdma_rings, 0);
  ck_assert(!link.has_waiting());
}
END_TEST

START_TEST(verbs_is_asked_where_no_table_knows) {
  for (const bool in_order : {false, true}) {
    PathBench bench({.eager_rdma = EagerRdma::kWhereInOrder});
    bench.device.writes_in_order = in_order;
    Link& link = bench.connect();
    bench.receive(link);
    bench.receive(link);
    bench.path->progress();
    ck_assert_uint_eq(posted(bench, link, PacketKind::kRing).size(), in_order ? 1 : 0);
  }
}
END_TEST

START_TEST(without_memory_or_buffers_there_is_no_ring) {
  PathBench bench({.most_sends = 1, .eager_rdma = EagerRdma::kOn});
  Link& link = bench.connect();
  {
    const AllBuffers none(bench);
    bench.device.registers = false;
    bench.receive(link);
    bench.receive(link);
    bench.path->progress();
    ck_assert(posted(bench, link, PacketKind::kRing).empty());
    bench.device.registers = true;
  }
  (void)talk_for_ring(bench, link);  // the next time

  PathBench poor(kRings);
  Link& other = poor.connect();
  poor.device.registers = false;
  poor.receive(other);
  poor.receive(other);
  poor.path->progress();
  ck_assert(posted(poor, other, PacketKind::kRing).empty());
  ck_assert(poor.failures.empty());
  poor.device.registers = true;
  (void)talk_for_ring(poor, other);
}
END_TEST

/// A callback may make progress: the messages behind come then, but no slot is given back before all callbacks have returned.
START_TEST(callbacks_make_progress) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  Writer peer = talk_for_ring(bench, link);
  peer.write(1);
  peer.write(2);
  bench.on_message = [&] {
    bench.path->progress();
    ck_assert(bench.send_immediately(link));
    PacketHeader header;
    ck_assert(header.read(posted(bench, link, PacketKind::kMessage).back().bytes.data(), PacketHeader::kSize));
    ck_assert_uint_eq(header.ring_slots(), 0);
  };
  bench.path->progress();
  bench.on_message = nullptr;
  ck_assert_uint_eq(bench.messages, 4);
  ck_assert_uint_eq(link.queues()[0].notes, 2);
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("path_eager_rdma",
                   {small_messages_are_written_into_the_peers_ring, a_full_ring_leaves_the_queue,
                    large_messages_and_what_waits_do_not_go_by_ring, what_the_device_does_not_copy_goes_by_no_ring,
                    writes_take_room_and_give_it_back, a_refused_write_fails_the_link, who_talks_much_is_given_a_ring,
                    a_ring_goes_round, slots_go_back_with_what_we_send, credits_come_through_rings_too,
                    rings_are_for_links_that_are_up_and_for_no_x_queues, verbs_is_asked_where_no_table_knows,
                    without_memory_or_buffers_there_is_no_ring, callbacks_make_progress});
}
