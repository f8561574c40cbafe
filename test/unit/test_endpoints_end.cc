// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints when the process ends: the upper layer is gone, and goodbyes are all that is left.
#include "cpc/oob/xoob.h"
#include "test/unit/endpoints_bench.h"

using namespace fabric;
using namespace fabric::test;

namespace {

std::vector<std::byte> packet(PacketKind kind, CreditGrant grant = {}) {
  std::vector<std::byte> bytes(PacketHeader::kSize);
  PacketHeader{kind, kind == PacketKind::kMessage ? kTag : mca_btl_base_tag_t{0}, grant}.write(bytes.data());
  return bytes;
}

PacketKind kind_of(const FakeSend& sent) {
  PacketHeader header;
  ck_assert(header.read(sent.bytes.data(), sent.bytes.size()));
  return header.kind;
}

}  // namespace

/// No credit is left, and the peer gives some: before we say goodbye (0), or when it waits for them (1).
START_TEST(goodbye_takes_credits_that_come_last) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  bench.send_and_connect();
  for (int i = 1; i < 8; ++i) {
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  }
  while (!bench.pair().sends.empty()) {
    bench.messages_arrive();
  }
  bench.endpoints.begin_to_end();
  const std::vector<std::byte> credits = packet(PacketKind::kCredits, {.credits = 4, .explicit_seen = 0});
  if (_i == 0) {
    bench.device.receive(bench.pair(), credits);
    bench.endpoints.path().poll_goodbyes();
    bench.endpoints.say_goodbye_to_all();
  } else {
    bench.endpoints.say_goodbye_to_all();
    ck_assert(bench.pair().sends.empty());
    bench.device.receive(bench.pair(), credits);
    bench.endpoints.path().poll_goodbyes();
  }
  ck_assert_uint_eq(bench.pair().sends.size(), 1);
  ck_assert(kind_of(bench.pair().sends.front()) == PacketKind::kGoodbye);
  ck_assert_uint_eq(bench.pair(1).sends.size(), 1);
  bench.device.complete_send(bench.pair());
  bench.device.complete_send(bench.pair(1));
  bench.endpoints.path().poll_goodbyes();
  ck_assert(!bench.endpoints.are_leaving());
}
END_TEST

/// The send queue is full, and its completions come before we say goodbye (0), or when it waits for them (1).
START_TEST(goodbye_takes_room_that_comes_free_last) {
  EndpointsBench bench(kSharedQueues);
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  bench.send_and_connect();
  for (int i = 1; i < 4; ++i) {
    ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  }
  bench.endpoints.begin_to_end();
  if (_i == 1) {
    bench.endpoints.say_goodbye_to_all();
  }
  for (int i = 0; i < 4; ++i) {
    bench.device.complete_send(bench.pair());
  }
  bench.endpoints.path().poll_goodbyes();
  if (_i == 0) {
    bench.endpoints.say_goodbye_to_all();
  }
  ck_assert_uint_eq(bench.pair().sends.size(), 1);
  ck_assert(kind_of(bench.pair().sends.front()) == PacketKind::kGoodbye);
  ck_assert(bench.sends_ended.empty());
}
END_TEST

/// The same of the queue pair that X queues share, and of batches of inline messages.
START_TEST(goodbye_takes_shared_room_that_comes_free_last) {
  EndpointsBench bench(kXQueues, cpc::kXoob);
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  FakeQueuePair& pair = bench.device.make_queue_pair();
  const cpc::ConnectionKey key = EndpointsBench::key(cpc::Direction::kOutgoing);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  bench.tell(cpc::PostReceives{key, 1, {}});
  bench.tell(cpc::Connected{key, 1, {{7, 7}}, {&pair.verbs, 1, {1, 2}, 1}});
  bench.device.complete_send(pair);
  bench.endpoints.progress();
  const std::array<std::byte, 8> header{};
  while (bench.endpoint().send_immediately({nullptr, header.data(), header.size(), 0, kTag})) {
  }
  const std::size_t all = pair.sends.size();
  ck_assert_uint_gt(all, 2);
  bench.endpoints.begin_to_end();
  if (_i == 1) {
    bench.endpoints.say_goodbye_to_all();
    ck_assert_uint_eq(pair.sends.size(), all);
  }
  while (!pair.sends.empty()) {
    bench.device.complete_send(pair);
  }
  bench.endpoints.path().poll_goodbyes();
  if (_i == 0) {
    bench.endpoints.say_goodbye_to_all();
  }
  ck_assert_uint_eq(pair.sends.size(), 2);
  ck_assert(pair.sends.front().bytes[0] == static_cast<std::byte>(PacketKind::kGoodbye));
}
END_TEST

/// The only buffer is under way. It is ours again when it has arrived, though nobody is called back.
START_TEST(goodbye_takes_a_buffer_that_comes_free_last) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  bench.send_and_connect();
  bench.device.registers = false;
  while (bench.endpoints.path().get_send(0) != nullptr) {  // all others are somebody else's
  }
  bench.endpoints.begin_to_end();
  bench.endpoints.say_goodbye_to_all();
  ck_assert(bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.pair().sends.size(), 1);
  bench.device.complete_send(bench.pair());
  bench.endpoints.path().poll_goodbyes();  // one message has been under way
  ck_assert_uint_eq(bench.pair().sends.size(), 1);
  ck_assert(bench.pair(1).sends.empty());
  bench.device.complete_send(bench.pair());
  bench.endpoints.path().poll_goodbyes();  // and the goodbye over the first queue
  ck_assert_uint_eq(bench.pair(1).sends.size(), 1);
  ck_assert(bench.sends_ended.empty());
}
END_TEST

/// A peer that has used up its credits, on messages that nobody reads any more, needs one for its own goodbye.
START_TEST(the_peer_gets_credits_for_its_goodbye) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  bench.send_and_connect();
  bench.messages_arrive();
  for (int i = 0; i < 8; ++i) {
    bench.device.receive(bench.pair(), packet(PacketKind::kMessage));
  }
  bench.endpoints.begin_to_end();
  bench.endpoints.say_goodbye_to_all();
  ck_assert_uint_eq(bench.pair().receives.size(), 2);
  bench.endpoints.path().poll_goodbyes();
  ck_assert_uint_eq(bench.counters.messages_received, 0);
  ck_assert_uint_gt(bench.pair().receives.size(), 2);
  ck_assert(kind_of(bench.pair().sends.back()) == PacketKind::kCredits);
}
END_TEST

/// What waits when the peer says goodbye is nobody's: a message for a credit (0), or a write for room (1), whose first ones fail.
START_TEST(a_goodbye_is_no_error_at_the_end) {
  EndpointsBench bench;
  bench.send_and_connect();
  bench.messages_arrive();
  if (_i == 0) {
    for (int i = 1; i < 9; ++i) {
      ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
      bench.device.complete_send(bench.pair());
      bench.endpoints.progress();
    }
  } else {
    for (int i = 0; i < 6; ++i) {
      ck_assert_int_eq(bench.submit(), OPAL_SUCCESS);
    }
  }
  bench.sends_ended.clear();
  bench.endpoints.begin_to_end();
  for (const std::size_t queue : {0U, 1U}) {
    bench.device.receive(bench.pair(queue), packet(PacketKind::kGoodbye));
  }
  bench.endpoints.path().poll_goodbyes();
  bench.endpoints.say_goodbye_to_all();
  bench.flush();
  bench.endpoints.path().poll_goodbyes();
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
  ck_assert(bench.sends_ended.empty());
  ck_assert_uint_eq(bench.requests_ended, 0);
  ck_assert_uint_eq(bench.reports, 0);
  ck_assert_uint_eq(bench.upper_layer_told, 0);
}
END_TEST

int main() {
  return run_suite("endpoints: the end", {{goodbye_takes_credits_that_come_last, 2},
                                          {goodbye_takes_room_that_comes_free_last, 2},
                                          {goodbye_takes_shared_room_that_comes_free_last, 2},
                                          goodbye_takes_a_buffer_that_comes_free_last,
                                          the_peer_gets_credits_for_its_goodbye,
                                          {a_goodbye_is_no_error_at_the_end, 2}});
}
