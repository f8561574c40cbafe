// SPDX-License-Identifier: BSD-3-Clause
//
// Connections that end and are made again, in every order of close and connect, with fake queue pairs.
#include <random>
#include <string>

#include "test/unit/cpc_relay.h"
#include "test/unit/xrc_node.h"

namespace fabric {
namespace {

using test::check_connected;
using test::check_gone;
using test::fake_counts;
using test::Fate;
using test::Node;
using test::Relay;
using test::run_until;
using Flow = Relay::Flow;

bool both_connected(Node& a, Node& b) {
  return a.seen(a.key_to(b)).fate == Fate::kConnected && b.seen(b.key_from(a)).fate == Fate::kConnected;
}

/// They are connected to each other, not to what the other had before.
void check_linked(Node& a, Node& b) {
  const auto& ends_of_b = a.seen(a.key_to(b)).remote_ends;
  const auto& ends_of_a = b.seen(b.key_to(a)).remote_ends;
  ck_assert(test::linked_to(ends_of_a[0]) == ends_of_b && test::linked_to(ends_of_b[0]) == ends_of_a);
}

/// One side closes and connects again; the other still has the old connection.
START_TEST(closed_on_one_side) {
  {
    Node a(1);
    Node b(2);
    a.connect(b);
    check_connected(a, b);
    const cpc::LinkNumber before = b.seen(b.key_to(a)).link;
    a.close(a.key_to(b), "the application is done");
    check_gone({&a, &b}, a, a.key_to(b));
    a.connect(b);
    check_connected(a, b);
    check_linked(a, b);
    ck_assert_uint_gt(b.seen(b.key_to(a)).link, before);
  }
  ck_assert_int_eq(fake_counts.made.load(), fake_counts.destroyed.load());
}
END_TEST

/// What is wanted while the last connection is still open, for a goodbye is on its way over it, is another one. It is made
/// when the last one is closed.
START_TEST(wanted_while_the_last_one_is_open) {
  {
    Node a(1);
    Node b(2);
    a.connect(b);
    check_connected(a, b);
    const cpc::LinkNumber before = a.seen(a.key_to(b)).link;
    a.connect_after_this(b);
    test::run_for({&a, &b}, 50);
    ck_assert_uint_eq(a.seen(a.key_to(b)).link, before);
    ck_assert_int_eq(a.seen(a.key_to(b)).connected, 1);
    a.close(a.key_to(b), "the application is done");
    ck_assert(run_until({&a, &b}, [&] { return a.seen(a.key_to(b)).link > before && both_connected(a, b); }));
    check_linked(a, b);
  }
  ck_assert_int_eq(fake_counts.made.load(), fake_counts.destroyed.load());
}
END_TEST

/// What has been wanted, and has come about, is over with that: what the peer makes in its place, and gives up, is not made again.
START_TEST(a_wish_comes_true_once) {
  {
    Node a(1);
    Node b(2);
    a.connect(b);
    check_connected(a, b);
    b.close(b.key_to(a), "done");
    check_gone({&a, &b}, b, b.key_to(a));
    a.posts = false;
    b.connect(a);
    ck_assert(run_until({&a, &b}, [&] { return a.seen(a.key_to(b)).fate == Fate::kAsked; }));
    b.close(b.key_to(a), "changed its mind");
    check_gone({&a, &b}, a, a.key_to(b));
    a.posts = true;
    test::run_for({&a, &b}, 300);
    ck_assert(b.is_gone(b.key_to(a)) && a.is_gone(a.key_to(b)));
    ck_assert_int_eq(fake_counts.made.load(), 4);
  }
  ck_assert_int_eq(fake_counts.made.load(), fake_counts.destroyed.load());
}
END_TEST

/// Nobody waits for the old connection to be gone.
START_TEST(connected_while_the_last_one_is_taken_down) {
  Node a(1);
  Node b(2);
  for (int round = 0; round < 50; ++round) {
    Node& first = round % 2 == 0 ? a : b;
    Node& other = round % 2 == 0 ? b : a;
    first.connect(other);
    check_connected(first, other);
    check_linked(first, other);
    first.close(first.key_to(other), "done");
    first.connect(other);
    check_connected(first, other);
    check_linked(first, other);
    other.close(other.key_to(first), "done");
  }
}
END_TEST

/// The peer gives up what it is being asked for, and connects by itself at the same time.
START_TEST(close_crosses_connect) {
  std::minstd_rand random(20240911);
  for (int round = 0; round < 200; ++round) {
    Node a(1);
    Node b(2);
    a.posts = random() % 4 != 0;
    b.posts = random() % 4 != 0;
    const auto some_turns = [&] { test::run_turns({&a, &b}, static_cast<unsigned>(random() % 12)); };
    a.connect(b);
    some_turns();
    if (random() % 2 == 0) {
      b.connect(a);
      some_turns();
    }
    b.close(b.key_to(a), "changed its mind");
    some_turns();
    b.connect(a);
    if (random() % 2 == 0) {
      some_turns();
      a.close(a.key_to(b), "changed its mind too");
      some_turns();
      a.connect(b);
    }
    a.posts = b.posts = true;
    ck_assert_msg(run_until({&a, &b}, [&] { return both_connected(a, b); }), "round %d: %s %s; %s %s", round,
                  a.seen(a.key_to(b)).reason.c_str(), a.seen(a.key_to(b)).history.c_str(),
                  b.seen(b.key_to(a)).reason.c_str(), b.seen(b.key_to(a)).history.c_str());
    check_linked(a, b);
    ck_assert_int_eq(a.seen(a.key_to(b)).failed + b.seen(b.key_to(a)).failed, 0);
  }
}
END_TEST

/// A refusal that is not final costs a pause: the peer takes the connection later.
START_TEST(the_peer_takes_it_later) {
  Node a(1);
  Node b(2);
  b.posts = false;
  a.connect(b);
  ck_assert(run_until({&a, &b}, [&] { return b.seen(b.key_to(a)).fate == Fate::kAsked; }));
  b.close(b.key_to(a), "not yet");
  b.posts = true;
  check_connected(a, b);
}
END_TEST

/// What does not come to an end is given up when the time is over, not before.
START_TEST(retries_count_time) {
  Node a(1, &cpc::ConnectionSettings::retry_time_ms, 1000);  // three pauses, and the attempts
  Node b(2);
  const cpc::PeerTarget target = b.target();
  const cpc::ConnectionKey key = a.key_to(b);
  b.stop();
  const auto start = std::chrono::steady_clock::now();
  a.connect(key, target);
  ck_assert(run_until({&a}, [&] { return a.seen(key).failed == 1; }));
  ck_assert(std::chrono::steady_clock::now() - start > std::chrono::milliseconds(340));
  test::check_text_has(a.seen(key).reason, "(attempt 4)");
}
END_TEST

/// Whoever waits for its turn is not taken for dead as soon as one that has broken off.
START_TEST(a_peer_that_waits_for_its_turn_is_not_dead) {
  auto options = Node::options(1);
  options.settings.connect_limit = 1;
  options.ports = 2;
  Node a(options);
  Node b(2, &cpc::ConnectionSettings::handshake_timeout_ms, 500);
  Node silent(3);
  silent.posts = false;
  b.posts = false;
  a.connect(b);
  ck_assert(run_until({&a, &b, &silent}, [&] { return b.seen(b.key_to(a)).fate == Fate::kAsked; }));
  a.connect(silent);  // takes the only turn, when the first has had it long enough
  ck_assert(run_until({&a, &b, &silent}, [&] { return silent.seen(silent.key_to(a)).fate == Fate::kAsked; }));
  b.posts = true;  // the next turn comes later than its patience lasts
  ck_assert(run_until({&a, &b, &silent}, [&] { return both_connected(a, b); }));
  ck_assert_int_eq(b.seen(b.key_to(a)).failed, 0);
  ck_assert_uint_eq(b.seen(b.key_to(a)).link, 1);
}
END_TEST

/// A peer that was told to come back later closes meanwhile, and cannot tell anybody. Its connection does not wait for it without a
/// limit, and keeps no queue pairs: then this side, which did not want it, has one of its own if it needs one.
START_TEST(a_peer_that_lets_others_go_first_does_not_come_back) {
  {
    auto options = Node::options(2, &cpc::ConnectionSettings::handshake_timeout_ms, 200);
    options.settings.connect_limit = 1;
    Node b(options);
    Node a(1);
    Node other(3);
    b.posts = false;
    a.connect(b);
    ck_assert(run_until({&a, &b}, [&] { return b.seen(b.key_to(a)).fate == Fate::kAsked; }));
    other.connect(b);  // takes the only place
    ck_assert(run_until({&a, &b, &other}, [&] { return b.seen(b.key_to(other)).fate == Fate::kAsked; }));
    a.close(a.key_to(b), "the application is done");
    check_gone({&a, &b, &other}, a, a.key_to(b));
    b.posts = true;
    check_connected(other, b);
    check_gone({&a, &b, &other}, b, b.key_to(a));
    ck_assert_int_eq(b.seen(b.key_to(a)).failed, 1);
    ck_assert(run_until({&a, &b, &other}, [] { return fake_counts.made.load() - fake_counts.destroyed.load() == 2; }));
    b.connect(a);
    check_connected(b, a);
  }
  ck_assert_int_eq(fake_counts.made.load(), fake_counts.destroyed.load());
}
END_TEST

/// The peer has got our reply and is gone, as far as we can tell; we want the connection ourselves.
START_TEST(who_wants_it_does_not_wait_for_the_peer) {
  Node b(2, &cpc::ConnectionSettings::handshake_timeout_ms, 300);
  Node a(1, &cpc::ConnectionSettings::retry_time_ms, 60000);
  // Requests of a get through once, and what it says then is lost with the channel.
  Relay relay(b.target(), [](int connection, bool to_listener, std::size_t at) {
    return connection > 0 || (!to_listener && at == 60) ? Flow::kCut : Flow::kPass;
  });
  relay.open();
  a.connect(a.key_to(b), relay.target());
  ck_assert(run_until({&a, &b}, [&] { return b.seen(b.key_to(a)).fate == Fate::kPosted; }));
  b.connect(a);
  ck_assert(run_until({&a, &b}, [&] { return both_connected(a, b); }));
  check_linked(a, b);
  ck_assert_uint_gt(b.seen(b.key_to(a)).link, 1);
}
END_TEST

/// Connections of X queues are made anew by the side that sends.
START_TEST(x_queues_closed_on_one_side) {
  {
    test::XrcNode a(1, 11);
    test::XrcNode b(2, 22);
    a.connect(b);
    check_connected(a, b);
    for (int round = 0; round < 20; ++round) {
      Node& closer = round % 2 == 0 ? static_cast<Node&>(a) : b;
      const cpc::ConnectionKey key = round % 2 == 0 ? a.key_to(b) : b.key_from(a);
      closer.close(key, "done");
      check_gone({&a, &b}, closer, key);
      if (round % 2 == 1) {
        a.close(a.key_to(b), "done too");
      }
      a.connect(b);
      check_connected(a, b);
      test::check_path(a, b);
    }
  }
  test::check_no_leak();
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "cpc_again",
      {closed_on_one_side, wanted_while_the_last_one_is_open, a_wish_comes_true_once,
       connected_while_the_last_one_is_taken_down, close_crosses_connect, the_peer_takes_it_later, retries_count_time,
       a_peer_that_waits_for_its_turn_is_not_dead, a_peer_that_lets_others_go_first_does_not_come_back,
       who_wants_it_does_not_wait_for_the_peer, x_queues_closed_on_one_side},
      200);
}
