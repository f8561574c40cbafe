// SPDX-License-Identifier: BSD-3-Clause
//
// Eager RDMA: who is given a ring, what is written into it and read from it, and what becomes of it in the end.
#include <cstring>

#include "btl_fabric/base/ring_message.h"
#include "test/unit/check_main.h"
#include "test/unit/path_bench.h"

namespace fabric::test {
namespace {

constexpr BenchOptions kRings{.eager_rdma = EagerRdma::kOn};
constexpr std::size_t kSlot = 64;
constexpr std::size_t kSlots = 4;

/// A ring of the test's, as the peer would offer it.
struct PeerRing {
  alignas(8) std::array<std::byte, kSlots * kSlot> memory{};
  std::uint64_t lap = 1;

  [[nodiscard]] RingOffer offer() const { return {reinterpret_cast<std::uintptr_t>(memory.data()), 77, kSlots, kSlot}; }
};

std::vector<std::byte> offer_packet(const RingOffer& offer, std::uint16_t ring_slots = 0) {
  std::vector<std::byte> bytes = PathBench::packet(PacketKind::kRing, RingOffer::kSize);
  PacketHeader{PacketKind::kRing, 0, {}, ring_slots}.write(bytes.data());
  offer.write(bytes.data() + PacketHeader::kSize);
  return bytes;
}

void arrive(PathBench& bench, Link& link, const std::vector<std::byte>& packet, std::size_t queue = 0) {
  bench.device.receive(bench.pair(link, queue), packet);
  bench.path->progress();
}

/// Packets of a kind that were ever posted over the first queue.
std::vector<FakeSend> posted(PathBench& bench, Link& link, PacketKind kind) {
  std::vector<FakeSend> found;
  for (const FakeSend& send : bench.pair(link).all_sends) {
    if (send.opcode == IBV_WR_SEND && send.bytes.front() == static_cast<std::byte>(kind)) {
      found.push_back(send);
    }
  }
  return found;
}

std::vector<FakeSend> writes(PathBench& bench, Link& link) {
  std::vector<FakeSend> found;
  for (const FakeSend& send : bench.pair(link).all_sends) {
    if (send.opcode == IBV_WR_RDMA_WRITE) {
      found.push_back(send);
    }
  }
  return found;
}

RingTrailer trailer_of(const FakeSend& write) {
  RingTrailer trailer;
  const std::byte* const at = write.bytes.data() + write.bytes.size() - RingTrailer::kSize;
  ck_assert(trailer.read(at, kSlot));
  trailer.lap = static_cast<std::uint8_t>(at[RingTrailer::kLapAt]);
  return trailer;
}

/// The peer's side of a ring of ours.
class Writer {
 public:
  explicit Writer(const FakeSend& offer) {
    ck_assert(offer_.read(offer.bytes.data() + PacketHeader::kSize, offer.bytes.size() - PacketHeader::kSize));
  }
  [[nodiscard]] const RingOffer& offer() const { return offer_; }
  /// Writes a message of `size` bytes, each `value`.
  void write(std::uint8_t value, std::size_t size = 8, std::uint16_t ring_slots = 0, CreditGrant grant = {}) {
    write(
        RingTrailer{{PacketKind::kMessage, PathBench::kTag, grant, ring_slots}, static_cast<std::uint16_t>(size), lap_},
        value);
  }
  void write(const RingTrailer& trailer, std::uint8_t value) {
    auto* const end = reinterpret_cast<std::byte*>(offer_.address) + (next_ + 1) * offer_.slot_size;
    if (RingTrailer::room_for(trailer.size) + RingTrailer::kSize <= offer_.slot_size) {
      std::memset(end - RingTrailer::kSize - RingTrailer::room_for(trailer.size), value, trailer.size);
    }
    trailer.write(end - RingTrailer::kSize);
    if (++next_ == offer_.slots) {
      next_ = 0;
      lap_ = next_lap(lap_);
    }
  }

 private:
  RingOffer offer_;
  std::size_t next_ = 0;
  std::uint8_t lap_ = 1;
};

/// A peer that has sent so much that it has a ring.
Writer talk_for_ring(PathBench& bench, Link& link) {
  const std::size_t before = posted(bench, link, PacketKind::kRing).size();
  bench.receive(link);
  bench.receive(link);
  bench.path->progress();
  const std::vector<FakeSend> offers = posted(bench, link, PacketKind::kRing);
  ck_assert_uint_eq(offers.size(), before + 1);
  return Writer(offers.back());
}

/// Takes all buffers of the first queue, as messages that are under way do, until it goes.
class AllBuffers {
 public:
  explicit AllBuffers(PathBench& bench) {
    while (Fragment* const one = bench.path->get_send(0)) {
      taken_.push_back(one);
    }
  }
  ~AllBuffers() {
    for (Fragment* one : taken_) {
      put_back(one);
    }
  }

 private:
  std::vector<Fragment*> taken_;
};

/// The first bytes of the messages that come in.
std::vector<int> take(PathBench& bench) {
  std::vector<int> seen;
  bench.on_message = [&] { seen.push_back(std::to_integer<int>(bench.last_message.front())); };
  bench.path->progress();
  bench.on_message = nullptr;
  return seen;
}

}  // namespace

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
  ck_assert(!link.queue(0).waiting.empty());
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
  TxCredits& room = link.queue(0).sends->tx;
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
  bench.device.refuse_sends(EIO);
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
    ck_assert_uint_eq(header.ring_slots, expected);
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
  ck_assert(!link.queue(0).waiting.empty());
  peer.write(1, 8, 0, {.credits = 4, .explicit_seen = 0});
  bench.path->progress();
  ck_assert(link.queue(0).waiting.empty());
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
    bench.receive(link);
    bench.receive(link);
    bench.path->progress();
    ck_assert(posted(bench, link, PacketKind::kRing).empty());
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
    ck_assert_uint_eq(header.ring_slots, 0);
  };
  bench.path->progress();
  bench.on_message = nullptr;
  ck_assert_uint_eq(bench.messages, 4);
  ck_assert_uint_eq(link.queue(0).ring_slots, 2);
}
END_TEST

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
  FragmentQueue messages;
  RdmaRequestQueue requests;
  link.stop(Link::State::kFailed);
  link.take_waiting(messages, requests);
  Link& next = bench.open();
  next.start(messages, requests);
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
  return run_suite("path_eager_rdma", {small_messages_are_written_into_the_peers_ring,
                                       a_full_ring_leaves_the_queue,
                                       large_messages_and_what_waits_do_not_go_by_ring,
                                       what_the_device_does_not_copy_goes_by_no_ring,
                                       writes_take_room_and_give_it_back,
                                       a_refused_write_fails_the_link,
                                       who_talks_much_is_given_a_ring,
                                       a_ring_goes_round,
                                       slots_go_back_with_what_we_send,
                                       credits_come_through_rings_too,
                                       rings_are_for_links_that_are_up_and_for_no_x_queues,
                                       verbs_is_asked_where_no_table_knows,
                                       without_memory_or_buffers_there_is_no_ring,
                                       callbacks_make_progress,
                                       who_talks_more_takes_the_ring_over,
                                       a_ring_is_left_when_the_peer_wants_it_back,
                                       a_peer_that_wants_its_ring_back_waits_for_a_buffer,
                                       goodbye_comes_after_what_is_in_the_ring,
                                       a_link_gives_its_ring_back,
                                       offers_do_not_change_links,
                                       what_is_no_offer_fails_the_link,
                                       what_is_no_message_in_a_ring_fails_the_link});
}
