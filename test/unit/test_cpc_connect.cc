// SPDX-License-Identifier: BSD-3-Clause
//
// Two connection managers in one process, over loopback, with fake queue pairs: connections that come about, or not,
// while the network behaves.
#include <random>

#include "test/unit/cpc_node.h"

namespace fabric {
namespace {

using test::check_connected;
using test::check_gone;
using test::check_text_has;
using test::close_both;
using test::fake_counts;
using test::Fate;
using test::Node;
using test::run_for;
using test::run_until;

void check_no_leak() {
  ck_assert_int_eq(fake_counts.made.load(), fake_counts.destroyed.load());
}

START_TEST(one_side_connects) {
  const int made_before = fake_counts.made;
  const int flushed_before = fake_counts.flushed;
  {
    Node a(1);
    Node b(2);
    a.connect(b);
    check_connected(a, b);
    ck_assert_int_eq(fake_counts.made - made_before, 2);
    ck_assert_uint_eq(a.seen(a.key_to(b)).remote_ends.size(), 2);
    ck_assert_uint_eq(b.seen(b.key_to(a)).remote_ends.size(), 2);
    close_both(a, b);
    ck_assert_int_eq(fake_counts.flushed - flushed_before, 2);
  }
  check_no_leak();
}
END_TEST

START_TEST(connected_comes_after_both_have_posted) {
  Node a(1);
  Node b(2);
  a.on_connected = [&](const cpc::ConnectionKey&) { ck_assert(b.seen(b.key_to(a)).posted); };
  b.posts = false;
  a.connect(b);
  run_for({&a, &b}, 300);
  ck_assert(a.seen(a.key_to(b)).fate == Fate::kPosted);
  ck_assert(b.seen(b.key_to(a)).fate == Fate::kAsked);
  b.posts = true;
  check_connected(a, b);
}
END_TEST

START_TEST(many_ports_at_once) {
  auto options = Node::options(1);
  options.ports = 64;
  Node a(options);
  options.settings.self.rank = 2;
  Node b(options);
  for (std::uint16_t port = 0; port < 64; ++port) {
    (port % 2 == 0 ? a : b).connect(port % 2 == 0 ? b : a, port);
  }
  for (std::uint16_t port = 0; port < 64; ++port) {
    check_connected(a, b, port);
  }
}
END_TEST

/// Both sides ask at the same time, and their main threads take various times to post.
START_TEST(simultaneous_connects) {
  constexpr int kRounds = 500;
  std::minstd_rand random(20240607);
  const int made_before = fake_counts.made;
  {
    Node a(1);
    Node b(2);
    for (int round = 0; round < kRounds; ++round) {
      a.posts = random() % 2 == 0;
      b.posts = random() % 2 == 0;
      const bool a_first = random() % 2 == 0;
      (a_first ? a : b).connect(a_first ? b : a);
      if (random() % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      }
      (a_first ? b : a).connect(a_first ? a : b);
      run_until({&a, &b}, [&] { return random() % 8 == 0; });
      a.posts = true;
      b.posts = true;
      check_connected(a, b);
      close_both(a, b);
    }
  }
  ck_assert_int_eq(fake_counts.made - made_before, 2 * kRounds);
  check_no_leak();
}
END_TEST

START_TEST(refusal_carries_its_reason) {
  Node a(1);
  Node b(2);
  b.refusal = "no memory for an endpoint";
  a.connect(b);
  const cpc::ConnectionKey key = a.key_to(b);
  check_gone({&a, &b}, a, key);
  check_text_has(a.seen(key).reason, "rank 2 of job 7: no memory for an endpoint");
  check_text_has(a.seen(key).history, "RequestSent -RefusalArrived-> Closing");
}
END_TEST

START_TEST(withdrawn_request_is_told) {
  Node a(1);
  Node b(2);
  b.posts = false;
  a.connect(b);
  const cpc::ConnectionKey at_b = b.key_to(a);
  ck_assert(run_until({&a, &b}, [&] { return b.seen(at_b).fate == Fate::kAsked; }));
  a.close(a.key_to(b), "the application aborts");
  check_gone({&a, &b}, b, at_b);
  check_text_has(b.seen(at_b).reason, "the application aborts");
}
END_TEST

START_TEST(unknown_port_is_refused) {
  auto options = Node::options(1);
  options.ports = 2;
  Node a(options);
  Node b(2);
  a.connect(b, 1);
  const cpc::ConnectionKey key = a.key_to(b, 1);
  ck_assert(run_until({&a, &b}, [&] { return a.seen(key).failed == 1; }));
  check_text_has(a.seen(key).reason, "has no port 1");
  const cpc::ConnectionKey absent{b.name(), 9, 0};
  a.connect(absent, b.target());
  ck_assert(run_until({&a, &b}, [&] { return a.seen(absent).failed == 1; }));
  check_text_has(a.seen(absent).reason, "we have no port 9");
}
END_TEST

START_TEST(other_number_of_queues_is_refused) {
  auto options = Node::options(1);
  options.receive_queues = "P,4096,64,32";
  Node a(options);
  Node b(2);
  a.connect(b);
  const cpc::ConnectionKey key = a.key_to(b);
  ck_assert(run_until({&a, &b}, [&] { return a.seen(key).failed == 1; }));
  check_text_has(a.seen(key).reason, "has 2 receive queues, you have 1");
}
END_TEST

START_TEST(verbs_failures_reach_both_sides) {
  for (const bool make_fails : {true, false}) {
    auto options = Node::options(2);
    options.make_fails = make_fails;
    options.connect_fails = !make_fails;
    Node a(1);
    Node b(options);
    a.connect(b);
    const cpc::ConnectionKey at_a = a.key_to(b);
    const cpc::ConnectionKey at_b = b.key_to(a);
    check_gone(a, b);
    const char* const why = make_fails ? "no queue pair left" : "refuses RTR";
    check_text_has(a.seen(at_a).reason, why);
    check_text_has(b.seen(at_b).reason, why);
  }
  check_no_leak();
}
END_TEST

START_TEST(errors_of_the_main_thread_are_reported) {
  Node a(1);
  Node b(2);
  const cpc::ConnectionKey key = a.key_to(b);
  a.manager().submit(cpc::ReceivesPosted{key, 1});  // there is no such connection: dropped
  const cpc::ConnectionKey other{{7, 5}, 0, 0};
  a.close(other, "never made");  // still answered
  check_gone({&a, &b}, a, other);
  a.connect(b);
  check_connected(a, b);
  a.manager().submit(cpc::ReceivesPosted{key, a.seen(key).link});
  check_gone({&a, &b}, a, key);
  check_text_has(a.seen(key).reason, "receives were posted before");
  a.connect(b);
  check_connected(a, b);
  a.manager().submit(cpc::Destroy{key, a.seen(key).link});
  check_gone({&a, &b}, a, key);
  check_text_has(a.seen(key).reason, "Destroy without Close");
}
END_TEST

START_TEST(destroyed_while_under_way) {
  std::minstd_rand random(42);
  for (int round = 0; round < 100; ++round) {
    Node a(1);
    Node b(2);
    a.posts = random() % 4 != 0;
    b.posts = random() % 4 != 0;
    a.connect(b);
    if (random() % 2 == 0) {
      b.connect(a);
    }
    const unsigned turns = static_cast<unsigned>(random() % 20);
    test::run_turns({&a, &b}, turns);
    (random() % 2 == 0 ? a : b).stop();
    test::run_turns({&a, &b}, turns);
  }
  check_no_leak();
}
END_TEST

START_TEST(a_peer_that_is_gone_is_named) {
  Node a(1, &cpc::ConnectionSettings::retry_time_ms, 200);  // the first pause, and what the first attempt takes
  Node b(2);
  const cpc::PeerTarget target = b.target();
  const cpc::ConnectionKey key = a.key_to(b);
  b.stop();
  a.connect(key, target);
  ck_assert(run_until({&a}, [&] { return a.seen(key).failed == 1; }));
  check_text_has(a.seen(key).reason, "127.0.0.1:");
  check_text_has(a.seen(key).reason, "Connection refused");
  check_text_has(a.seen(key).reason, "(attempt 2)");
}
END_TEST

START_TEST(no_address_to_reach_is_an_error) {
  Node a(1, &cpc::ConnectionSettings::retry_time_ms, 0);
  Node b(2);
  cpc::PeerTarget target = b.target();
  target.same_node = false;
  cpc::HostAddress loopback;  // which leads to ourselves
  loopback.bytes[0] = 127;
  loopback.bytes[3] = 1;
  loopback.prefix_bits = 8;
  target.offer = encode(cpc::OobOffer{1, 0, {loopback}});
  a.connect(a.key_to(b), target);
  ck_assert(run_until({&a, &b}, [&] { return a.seen(a.key_to(b)).failed == 1; }));
  check_text_has(a.seen(a.key_to(b)).reason, "no address that can be reached");
  const cpc::ConnectionKey other{{7, 3}, 0, 0};
  target.offer.resize(3);
  a.connect(other, target);
  ck_assert(run_until({&a, &b}, [&] { return a.seen(other).failed == 1; }));
  check_text_has(a.seen(other).reason, "oob offer");
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "cpc_connect",
      {one_side_connects, connected_comes_after_both_have_posted, many_ports_at_once, simultaneous_connects,
       refusal_carries_its_reason, withdrawn_request_is_told, unknown_port_is_refused,
       other_number_of_queues_is_refused, verbs_failures_reach_both_sides, errors_of_the_main_thread_are_reported,
       destroyed_while_under_way, a_peer_that_is_gone_is_named, no_address_to_reach_is_an_error},
      300);
}
