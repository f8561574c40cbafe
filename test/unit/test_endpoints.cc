// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints as they connect, fail and leave.
#include <thread>

#include "test/unit/endpoints_bench.h"

using namespace fabric;
using namespace fabric::test;

START_TEST(messages_wait_for_their_connection) {
  EndpointsBench bench;
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  ck_assert_uint_eq(bench.said<cpc::Connect>(), 1);
  bench.post_receives();
  ck_assert_uint_eq(bench.said<cpc::ReceivesPosted>(), 1);
  ck_assert(bench.pair().sends.empty());
  bench.connected();
  ck_assert_uint_eq(bench.pair().sends.size(), 2);
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  ck_assert_uint_eq(bench.pair().sends.size(), 3);
  take_away(bench);
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// It is the last message, and the queue pairs are given up when it has arrived.
START_TEST(goodbye_comes_first) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  bench.send_and_connect();
  bench.messages_arrive();
  bench.endpoints.remove(&bench.endpoint());
  ck_assert_uint_eq(bench.pair().sends.size(), 1);
  ck_assert(bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 0);
  bench.messages_arrive();
  // What is under way on the other queue does not wait for what is on this one.
  ck_assert_uint_eq(bench.pair(1).sends.size(), 1);
  ck_assert(bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 0);
  bench.device.complete_send(bench.pair(1));
  bench.endpoints.progress();
  ck_assert(!bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
}
END_TEST

/// The peer has spoken, so its link carries: it would miss that. We hear that ours does when we have been told to leave.
START_TEST(goodbye_waits_until_it_can_be_said) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  (void)bench.endpoint();
  bench.post_receives();  // the peer asks
  bench.message_arrives();
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::PeerSpoke>(), 1);
  bench.endpoints.remove(&bench.endpoint());
  ck_assert(bench.endpoints.are_leaving());
  ck_assert(bench.pair().sends.empty());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 0);
  bench.connected();
  ck_assert_uint_eq(bench.pair().sends.size(), 1);
  ck_assert_uint_eq(bench.pair(1).sends.size(), 1);
  bench.device.complete_send(bench.pair(1));
  bench.messages_arrive();
  ck_assert(!bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
}
END_TEST

/// What was under way over the link before comes back with an error only now, and the goodbye goes over the one that carries.
START_TEST(an_older_link_does_not_end_a_goodbye) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  bench.send_and_connect();
  std::vector<ibv_qp*> older = bench.handles;
  bench.goodbye_arrives(0);
  bench.goodbye_arrives(1);
  bench.endpoints.progress();
  bench.tell(cpc::Flushing{EndpointsBench::key(), bench.link});
  ++bench.link;
  bench.post_receives();
  bench.connected();
  ck_assert_int_eq(bench.send(), OPAL_SUCCESS);
  bench.messages_arrive();
  bench.endpoints.remove(&bench.endpoint());
  const std::size_t closes = bench.said<cpc::Close>();
  bench.handles.swap(older);
  bench.flush();
  bench.endpoints.progress();
  ck_assert(bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.said<cpc::Close>(), closes);
}
END_TEST

/// A port that is connected because another is: nothing has gone over it, so nobody misses it.
START_TEST(a_connection_that_carried_nothing_may_fail) {
  EndpointsBench bench;
  (void)bench.endpoint();
  bench.endpoints.connect({1, 7});
  bench.post_receives();
  bench.connected();
  bench.tell(cpc::Failed{EndpointsBench::key(), bench.link, "the peer has closed", {}, true});
  ck_assert_uint_eq(bench.reports, 0);
  ck_assert_uint_eq(bench.upper_layer_told, 0);
  ++bench.link;
  bench.send_and_connect();
  ck_assert_uint_eq(bench.pair().sends.size(), 1);
}
END_TEST

/// Messages may hold all their buffers: what the component itself has to say has others.
START_TEST(goodbye_needs_no_buffer_of_messages) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  bench.send_and_connect();
  bench.messages_arrive();
  std::vector<Fragment*> taken;
  while (Fragment* const one = bench.endpoints.path().get_send(0)) {
    taken.push_back(one);
  }
  bench.endpoints.remove(&bench.endpoint());
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.pair().sends.size(), 1);
  ck_assert_uint_eq(bench.pair(1).sends.size(), 1);
  for (Fragment* const one : taken) {
    put_back(one);
  }
}
END_TEST

/// All buffers are in use, or all but one, and there is no memory for others: that is no reason to leave without a goodbye.
START_TEST(goodbye_waits_for_a_buffer) {
  EndpointsBench bench;
  bench.endpoints.set_observers(nullptr, std::chrono::hours(1));
  bench.send_and_connect();
  bench.messages_arrive();
  bench.device.registers = false;
  std::vector<Fragment*> taken;
  while (Fragment* const one = bench.endpoints.path().get_send(0)) {
    taken.push_back(one);
  }
  const auto put_one_back = [&] {
    put_back(taken.back());
    taken.pop_back();
  };
  if (_i == 1) {
    put_one_back();
  }
  bench.endpoints.remove(&bench.endpoint());
  bench.endpoints.progress();
  ck_assert(bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 0);
  ck_assert_uint_eq(bench.pair().sends.size(), _i == 1 ? 1 : 0);
  ck_assert(bench.pair(1).sends.empty());
  while (!taken.empty()) {
    put_one_back();
  }
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.pair().sends.size(), 1);
  ck_assert_uint_eq(bench.pair(1).sends.size(), 1);
  ck_assert(bench.endpoints.are_leaving());
  bench.device.complete_send(bench.pair(1));
  bench.messages_arrive();
  ck_assert(!bench.endpoints.are_leaving());
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
}
END_TEST

/// The progress thread hears of the end of a connection that it is still confirming, and the goodbye has come and is not polled.
START_TEST(a_goodbye_is_heard_before_a_failure) {
  EndpointsBench bench;
  bench.send_and_connect();
  bench.messages_arrive();
  bench.goodbye_arrives(0);
  bench.goodbye_arrives(1);
  bench.tell(cpc::Failed{EndpointsBench::key(), bench.link, "the peer has closed", {}, true});
  ck_assert_uint_eq(bench.reports, 0);
  ck_assert_uint_eq(bench.upper_layer_told, 0);
  ck_assert(bench.endpoint().carrier() == nullptr);
}
END_TEST

/// Over every queue: only then has all come that the peer has sent.
START_TEST(a_goodbye_has_come_when_it_has_over_every_queue) {
  EndpointsBench bench;
  bench.send_and_connect();
  bench.messages_arrive();
  bench.goodbye_arrives(_i);
  bench.endpoints.progress();
  ck_assert(bench.endpoint().carrier() != nullptr);
  bench.message_arrives(1 - _i);
  bench.goodbye_arrives(1 - _i);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.counters.messages_received, 1);
  ck_assert(bench.endpoint().carrier() == nullptr);
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// A peer that has said goodbye takes nothing more: we do not wait for it to take ours.
START_TEST(goodbyes_cross) {
  EndpointsBench bench;
  bench.send_and_connect();
  bench.messages_arrive();
  bench.endpoints.remove(&bench.endpoint());
  bench.goodbye_arrives(0);
  bench.goodbye_arrives(1);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Close>(), 1);
  ck_assert_uint_eq(bench.reports, 0);
}
END_TEST

/// The ports of a peer are connected together: a message for one that is not waits until both processes are inside MPI.
START_TEST(all_ports_are_connected) {
  EndpointsBench sender;
  ck_assert_int_eq(sender.send(), OPAL_SUCCESS);
  ck_assert_uint_eq(sender.other_ports_wanted, 1);
  ck_assert_uint_eq(sender.commands.size(), 1);
  ck_assert(std::holds_alternative<cpc::Connect>(sender.commands[0]));

  EndpointsBench other;
  (void)other.endpoint();
  other.endpoints.connect({1, 8});
  ck_assert_msg(other.commands.empty(), "nothing is known of that peer");
  other.endpoints.connect({1, 7});
  other.endpoints.connect({1, 7});
  ck_assert_uint_eq(other.commands.size(), 1);
  ck_assert(std::holds_alternative<cpc::Connect>(other.commands[0]));
  // Nobody here misses it if that fails.
  other.tell(cpc::Upcall{cpc::Failed{EndpointsBench::key(), other.link, "refused", "", true}});
  ck_assert_uint_eq(other.reports, 0);
  ck_assert_uint_eq(other.upper_layer_told, 0);
}
END_TEST

/// A peer goes while a callback of its own runs, and progress is called within. Its link is still in use outside.
START_TEST(nothing_is_freed_within_a_callback) {
  EndpointsBench bench;
  bench.send_and_connect();
  bench.on_sent = [&] {
    bench.on_sent = nullptr;
    take_away(bench);
    ck_assert_uint_eq(bench.said<cpc::Destroy>(), 0);
  };
  bench.messages_arrive();
  ck_assert_uint_eq(bench.sends_ended.size(), 1);
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.said<cpc::Destroy>(), 1);
}
END_TEST

/// The progress thread gives a connection up, and its receives are flushed before the main thread hears of that.
START_TEST(flushed_receives_are_no_failure) {
  EndpointsBench bench;
  (void)bench.endpoint();
  bench.post_receives();  // a peer asks
  ck_assert_uint_eq(bench.said<cpc::ReceivesPosted>(), 1);
  bench.flush();
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.reports, 0);
  cpc::Failed failed{EndpointsBench::key(), bench.link, "the peer has gone", {}, false};
  bench.tell(failed);
  bench.tell(cpc::Flushing{EndpointsBench::key(), bench.link});
  bench.endpoints.progress();
  ck_assert_uint_eq(bench.reports, 0);
  ck_assert_uint_eq(bench.upper_layer_told, 0);
}
END_TEST

/// Any thread may ask, without a lock, while another makes the endpoint to this process: ThreadSanitizer sees to that.
START_TEST(all_threads_know_who_is_self) {
  EndpointsBench bench;
  const Endpoint& peer = bench.endpoint();
  bool is_self = true;
  std::thread other([&] { is_self = peer.is_self(); });
  const Endpoint* const self = bench.endpoints.self_endpoint(&bench.others[0]);
  other.join();
  ck_assert(!is_self);
  ck_assert(self->is_self());
}
END_TEST

/// Open MPI asks for endpoints with a lock of its own, and without the context's: ThreadSanitizer sees to that.
START_TEST(endpoints_are_made_by_any_thread) {
  EndpointsBench bench;
  bench.send_and_connect();
  opal_uses_threads = true;
  constexpr std::size_t kMade = 500;
  std::vector<opal_proc_t> processes(kMade);
  std::vector<Endpoint*> made(kMade);
  std::thread other([&] {
    std::string why_not;
    for (std::uint32_t i = 0; i < kMade; ++i) {
      processes[i].proc_name = {1, 100 + i};
      made[i] = bench.endpoints.endpoint_for(&processes[i], bench.peer, why_not);
    }
  });
  for (std::uint32_t i = 0; i < kMade; ++i) {
    ck_assert_uint_eq(bench.endpoints.rdma_outstanding(nullptr), 0);
    Endpoint* const known = bench.endpoints.endpoint_to({1, 100 + i}, 1);
    ck_assert(known == nullptr || known->key().peer == (ProcessName{1, 100 + i}));
    bench.endpoints.queue_pair_failed(0xffffff, IBV_EVENT_QP_FATAL);
    ck_assert(!bench.endpoints.await_goodbyes());
  }
  other.join();
  opal_uses_threads = false;
  for (std::uint32_t i = 0; i < kMade; ++i) {
    ck_assert_ptr_eq(bench.endpoints.endpoint_to({1, 100 + i}, 1), made[i]);
  }
}
END_TEST

/// Which links may go is seen by looking at all endpoints, twice until one is known to be idle. Where there are
/// thousands that is not done at each call of progress().
START_TEST(many_are_looked_at_seldom) {
  using Clock = std::chrono::steady_clock;
  constexpr std::uint32_t kMany = 5000;
  EndpointsBench bench;
  std::vector<opal_proc_t> others(kMany);
  std::string why_not;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    others[i].proc_name = {1, 100 + i};
    ck_assert_ptr_nonnull(bench.endpoints.endpoint_for(&others[i], bench.peer, why_not));
  }
  bench.send_and_connect();
  bench.messages_arrive();
  bench.tell(cpc::RoomWanted{0, 1});
  const auto start = Clock::now();
  while (bench.counters.connections_rested == 0) {
    ck_assert(Clock::now() - start < std::chrono::seconds(30));
    bench.endpoints.progress();
  }
  ck_assert(Clock::now() - start >= std::chrono::microseconds(2) * kMany);
}
END_TEST

int main() {
  return run_suite("endpoints", {messages_wait_for_their_connection,
                                 goodbye_comes_first,
                                 goodbye_waits_until_it_can_be_said,
                                 an_older_link_does_not_end_a_goodbye,
                                 a_connection_that_carried_nothing_may_fail,
                                 a_goodbye_is_heard_before_a_failure,
                                 goodbye_needs_no_buffer_of_messages,
                                 {goodbye_waits_for_a_buffer, 2},
                                 {a_goodbye_has_come_when_it_has_over_every_queue, 2},
                                 goodbyes_cross,
                                 all_ports_are_connected,
                                 nothing_is_freed_within_a_callback,
                                 flushed_receives_are_no_failure,
                                 all_threads_know_who_is_self,
                                 endpoints_are_made_by_any_thread,
                                 many_are_looked_at_seldom});
}
