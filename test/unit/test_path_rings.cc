// SPDX-License-Identifier: BSD-3-Clause
//
// The rings of eager RDMA: who has one, what becomes of it in the end, and what is none.
#include "test/unit/eager_rdma_bench.h"

namespace fabric::test {

// ---- Who has one

START_TEST(who_talks_more_takes_the_ring_over) {
  PathBench bench(kRings);
  Link& idle = bench.connect();
  Link& busy = bench.connect();
  Writer first = talk_for_ring(bench, idle);
  first.write(1);
  first.write(2);
  bench.path->progress();
  for (int i = 0; i < 2; ++i) {  // the first time the other has used it, lately
    ck_assert_uint_eq(posted(bench, idle, PacketKind::kRing).size(), 1);
    bench.receive(busy);
    bench.receive(busy);
    bench.path->progress();
    bench.receive(busy, {}, 1);
    bench.path->progress();
  }
  const std::vector<FakeSend> to_idle = posted(bench, idle, PacketKind::kRing);
  ck_assert_uint_eq(to_idle.size(), 2);
  RingOffer withdrawn;
  ck_assert(withdrawn.read(to_idle[1].bytes.data() + PacketHeader::kSize, RingOffer::kSize));
  ck_assert_uint_eq(withdrawn.slots, 0);
  // What is under way still comes; then the peer leaves.
  first.write(3);
  bench.device.receive(bench.pair(idle), PathBench::packet(PacketKind::kRingLeft, 0));
  ck_assert(take(bench) == std::vector<int>({3}));
  Writer second = talk_for_ring(bench, busy);
  ck_assert_uint_eq(second.offer().address, first.offer().address);
  second.write(9);
  ck_assert(take(bench) == std::vector<int>({9}));
}
END_TEST

START_TEST(a_ring_is_left_when_the_peer_wants_it_back) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  const PeerRing ring;
  arrive(bench, link, offer_packet(ring.offer()));
  ck_assert(bench.send_immediately(link));
  arrive(bench, link, offer_packet({}));
  ck_assert_uint_eq(posted(bench, link, PacketKind::kRingLeft).size(), 1);
  ck_assert(bench.send_immediately(link));
  ck_assert_uint_eq(writes(bench, link).size(), 1);
  // A slot that came back late is of no more use; then there may be another ring.
  arrive(bench, link, offer_packet(ring.offer(), 1));
  ck_assert(bench.send_immediately(link));
  ck_assert_uint_eq(writes(bench, link).size(), 2);
  ck_assert(bench.failures.empty());
}
END_TEST

START_TEST(a_peer_that_wants_its_ring_back_waits_for_a_buffer) {
  PathBench bench({.most_sends = 1, .eager_rdma = EagerRdma::kOn});
  Link& link = bench.connect();
  const PeerRing ring;
  arrive(bench, link, offer_packet(ring.offer()));
  {
    const AllBuffers none(bench);
    bench.device.registers = false;
    arrive(bench, link, offer_packet({}));
    ck_assert(posted(bench, link, PacketKind::kRingLeft).empty());
  }
  bench.path->progress();
  ck_assert_uint_eq(posted(bench, link, PacketKind::kRingLeft).size(), 1);
}
END_TEST

// ---- The end

START_TEST(goodbye_comes_after_what_is_in_the_ring) {
  PathBench bench({.queues = "P,256,8,4,2,2", .eager_rdma = EagerRdma::kOn});
  Link& link = bench.connect();
  Writer peer = talk_for_ring(bench, link);
  int before_goodbye = 0;
  // The goodbye is polled with the message that is handled first; the ring is written in between.
  bench.on_message = [&] {
    if (++before_goodbye == 1) {
      peer.write(5);
    }
    ck_assert_int_eq(bench.goodbyes_arrived, 0);
  };
  bench.receive(link);
  bench.device.receive(bench.pair(link), PathBench::packet(PacketKind::kGoodbye, 0));
  bench.path->progress();
  ck_assert_int_eq(before_goodbye, 2);
  ck_assert_int_eq(bench.goodbyes_arrived, 1);
}
END_TEST

START_TEST(a_link_gives_its_ring_back) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  const Writer first = talk_for_ring(bench, link);
  bench.close(link);
  bench.links.clear();
  Link& other = bench.connect();
  Writer second = talk_for_ring(bench, other);
  ck_assert_uint_eq(second.offer().address, first.offer().address);
  second.write(4);
  ck_assert(take(bench) == std::vector<int>({4}));
}
END_TEST

/// What is said about rings belongs to a link, and goes with it.
START_TEST(offers_do_not_change_links) {
  PathBench bench(kRings);
  Link& link = bench.connect();
  for (int i = 0; i < 9; ++i) {
    ck_assert_int_ge(bench.send(link), 0);  // out of credits
  }
  bench.receive(link);
  bench.receive(link);
  bench.path->progress();
  ck_assert(posted(bench, link, PacketKind::kRing).empty());
  ck_assert_uint_eq(bench.counters.eager_rdma_rings, 1);
  Link& next = bench.go_over_from(link, Link::State::kFailed);
  ck_assert(posted(bench, next, PacketKind::kRing).empty());
  ck_assert(!posted(bench, next, PacketKind::kMessage).empty());
}
END_TEST

START_TEST(what_is_no_offer_fails_the_link) {
  const PeerRing ring;
  RingOffer crooked = ring.offer();
  crooked.slot_size = 12;
  const std::vector<std::vector<std::byte>> bad = {
      offer_packet(crooked),
      offer_packet({}),                             // of what?
      offer_packet(ring.offer(), 1),                // gives a slot of a ring that there is not: accepted, see below
      PathBench::packet(PacketKind::kRing, 3),      // too short
      PathBench::packet(PacketKind::kRingLeft, 0),  // no ring was asked back
  };
  for (std::size_t i = 0; i < bad.size(); ++i) {
    PathBench bench(kRings);
    Link& link = bench.connect();
    arrive(bench, link, bad[i]);
    ck_assert_uint_eq(bench.failures.size(), i == 2 ? 0 : 1);
  }
  PathBench bench(kRings);
  Link& link = bench.connect();
  arrive(bench, link, offer_packet(ring.offer()));
  arrive(bench, link, offer_packet(ring.offer()));  // a second one
  ck_assert_uint_eq(bench.failures.size(), 1);
  PathBench other(kRings);
  Link& second = other.connect();
  arrive(other, second, offer_packet(ring.offer()), 1);  // over another queue
  ck_assert_uint_eq(other.failures.size(), 1);
}
END_TEST

START_TEST(what_is_no_message_in_a_ring_fails_the_link) {
  const RingTrailer bad[] = {
      {{PacketKind::kGoodbye, 0, {}}, 8, 1},                                                // not in a ring
      {{PacketKind::kMessage, PathBench::kTag, {}}, kSlot, 1},                              // too long
      {{PacketKind::kMessage, PathBench::kTag, {.credits = 9, .explicit_seen = 0}}, 8, 1},  // credits that we never had
  };
  for (const RingTrailer& trailer : bad) {
    PathBench bench(kRings);
    Link& link = bench.connect();
    Writer peer = talk_for_ring(bench, link);
    peer.write(trailer, 1);
    bench.path->progress();
    bench.path->progress();
    ck_assert_uint_eq(bench.failures.size(), 1);
    ck_assert(bench.failures[0].kind == LinkFailure::Kind::kBadPacket);
  }
  // Slots that were never written.
  PathBench bench(kRings);
  Link& link = bench.connect();
  const PeerRing ring;
  arrive(bench, link, offer_packet(ring.offer()));
  Writer peer = talk_for_ring(bench, link);
  peer.write(1, 8, 1);
  bench.path->progress();
  ck_assert_uint_eq(bench.failures.size(), 1);
}
END_TEST

}  // namespace fabric::test

int main() {
  using namespace fabric::test;
  return run_suite("path_rings",
                   {who_talks_more_takes_the_ring_over, a_ring_is_left_when_the_peer_wants_it_back,
                    a_peer_that_wants_its_ring_back_waits_for_a_buffer, goodbye_comes_after_what_is_in_the_ring,
                    a_link_gives_its_ring_back, offers_do_not_change_links, what_is_no_offer_fails_the_link,
                    what_is_no_message_in_a_ring_fails_the_link});
}
