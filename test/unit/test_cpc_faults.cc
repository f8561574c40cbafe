// SPDX-License-Identifier: BSD-3-Clause
//
// Connections over a network that breaks: channels cut at every place of the handshake, listeners that come late,
// messages that never arrive.
#include <atomic>

#include "cpc/core/message.h"
#include "test/unit/cpc_relay.h"

namespace fabric {
namespace {

using test::check_connected;
using test::check_gone;
using test::check_text_has;
using test::fake_counts;
using test::Fate;
using test::Node;
using test::Relay;
using test::run_for;
using test::run_until;
using Flow = Relay::Flow;

constexpr std::size_t kRequestBytes = 111;  ///< with two queues; a REPLY has as many
constexpr std::size_t kConfirmBytes = cpc::kMessageHeaderBytes;

START_TEST(listener_comes_late) {
  Node a(1);
  Node b(2);
  Relay relay(b.target(), [](int, bool, std::size_t) { return Flow::kPass; });
  a.connect(a.key_to(b), relay.target());
  run_for({&a, &b}, 150);
  ck_assert(a.seen(a.key_to(b)).fate == Fate::kPosted);
  relay.open();
  check_connected(a, b);
}
END_TEST

/// A connection that has broken has a time of its own to be made anew.
START_TEST(the_longer_time_counts) {
  Node a(1, &cpc::ConnectionSettings::retry_time_ms, 0);
  Node b(2);
  Relay relay(b.target(), [](int, bool, std::size_t) { return Flow::kPass; });
  cpc::PeerTarget target = relay.target();
  target.retry_time_ms = 60000;
  a.connect(a.key_to(b), target);
  run_for({&a, &b}, 150);
  ck_assert(a.seen(a.key_to(b)).fate == Fate::kPosted);
  relay.open();
  check_connected(a, b);
}
END_TEST

/// The first channel breaks just before byte `at` of a direction; the second one works.
/// True if there was such a byte. Who connects alone comes to every one.
bool connect_over_a_cut(bool to_listener, std::size_t at, bool both_connect) {
  Node a(1);
  Node b(2);
  std::atomic<bool> was_cut = false;
  std::atomic<bool> was_heard = false;
  Relay relay(b.target(), [=, &was_cut, &was_heard](int connection, bool to, std::size_t byte) {
    was_heard = true;
    const bool is_cut = connection == 0 && to == to_listener && byte == at;
    was_cut = was_cut || is_cut;
    return is_cut ? Flow::kCut : Flow::kPass;
  });
  relay.open();
  a.connect(a.key_to(b), relay.target());
  if (both_connect) {
    // Not before, or the way without a relay would always be the faster one.
    ck_assert(run_until({&a, &b}, [&] { return was_heard.load(); }));
    b.connect(a);
  }
  check_connected(a, b);
  if (!both_connect) {
    ck_assert_msg(run_until({&a, &b}, [&] { return was_cut.load(); }), "nothing was cut at byte %zu", at);
    ck_assert(run_until({&a, &b}, [&] { return relay.connections() == 2; }));
  }
  return was_cut;
}

START_TEST(channel_cut_in_the_request) {
  for (std::size_t at = 0; at < kRequestBytes; at += 17) {
    (void)connect_over_a_cut(true, at, false);
  }
}
END_TEST

START_TEST(channel_cut_in_the_hello_and_the_reply) {
  for (std::size_t at = 0; at < cpc::kHelloBytes + kRequestBytes; at += 17) {
    (void)connect_over_a_cut(false, at, false);
  }
}
END_TEST

/// The hard case: one side is connected already and has to come back for the other's sake.
START_TEST(channel_cut_in_the_confirm) {
  for (std::size_t at = 0; at < kConfirmBytes; at += 11) {
    (void)connect_over_a_cut(true, kRequestBytes + at, false);
  }
}
END_TEST

/// The active side does not hear that its CONFIRM was read.
START_TEST(channel_cut_in_the_close) {
  for (std::size_t at = 0; at < cpc::kMessageHeaderBytes + 1; at += 13) {
    (void)connect_over_a_cut(false, cpc::kHelloBytes + kRequestBytes + at, false);
  }
}
END_TEST

START_TEST(channel_cut_while_both_connect) {
  int cuts = 0;
  for (std::size_t at = 0; at < kRequestBytes + kConfirmBytes; at += 25) {
    cuts += connect_over_a_cut(true, at, true) ? 1 : 0;
    cuts += connect_over_a_cut(false, at % kRequestBytes, true) ? 1 : 0;
  }
  ck_assert_int_gt(cuts, 0);
}
END_TEST

START_TEST(channel_cut_while_the_peer_computes) {
  Node a(1);
  Node b(2);
  Relay relay(b.target(), [](int connection, bool to_listener, std::size_t at) {
    return connection == 0 && !to_listener && at >= cpc::kHelloBytes ? Flow::kCut : Flow::kPass;
  });
  relay.open();
  b.posts = false;
  a.connect(a.key_to(b), relay.target());
  run_for({&a, &b}, 200);
  ck_assert(b.seen(b.key_to(a)).fate == Fate::kAsked);
  b.posts = true;
  check_connected(a, b);
  ck_assert_int_eq(relay.connections(), 2);
}
END_TEST

/// Every attempt is cut: the active side gives up and says why; the passive one when nobody comes back.
START_TEST(retries_end) {
  Node a(1, &cpc::ConnectionSettings::retry_time_ms, 300);
  Node b(2, &cpc::ConnectionSettings::handshake_timeout_ms, 500);
  Relay relay(b.target(), [](int, bool to_listener, std::size_t at) {
    return !to_listener && at == 50 ? Flow::kCut : Flow::kPass;
  });
  relay.open();
  a.connect(a.key_to(b), relay.target());
  const cpc::ConnectionKey at_a = a.key_to(b);
  const cpc::ConnectionKey at_b = b.key_to(a);
  check_gone(a, b);
  ck_assert_int_eq(relay.connections(), 3);
  check_text_has(a.seen(at_a).reason, "(attempt 3)");
  check_text_has(b.seen(at_b).reason, "did not come back within 500 ms");
}
END_TEST

/// The CONFIRM is swallowed, but a message of the peer's arrives over the queue pairs.
START_TEST(peer_spoke_counts_as_confirm) {
  Node a(1);
  Node b(2);
  Relay relay(b.target(), [](int, bool to_listener, std::size_t at) {
    return to_listener && at >= kRequestBytes ? Flow::kSwallow : Flow::kPass;
  });
  relay.open();
  a.connect(a.key_to(b), relay.target());
  ck_assert(run_until({&a, &b}, [&] { return a.seen(a.key_to(b)).fate == Fate::kConnected; }));
  run_for({&a, &b}, 50);
  ck_assert(b.seen(b.key_to(a)).fate == Fate::kPosted);
  b.manager().submit(cpc::PeerSpoke{b.key_to(a), b.seen(b.key_to(a)).link});
  check_connected(a, b);
}
END_TEST

/// A peer that restarted does not know how often it has been connected before: it learns it, and takes the place of what
/// it was.
START_TEST(restarted_peer_is_connected_anew) {
  Node b(2);
  const cpc::PeerTarget target = b.target();
  auto first = std::make_unique<Node>(1);
  first->connect(b);
  check_connected(*first, b);
  const cpc::LinkNumber before = b.seen(b.key_to(*first)).link;
  first.reset();
  Node again(1);
  again.connect(again.key_to(b), target);
  ck_assert(run_until({&again, &b}, [&] { return again.seen(again.key_to(b)).fate == Fate::kConnected; }));
  check_connected(again, b);
  ck_assert_uint_gt(b.seen(b.key_to(again)).link, before);
}
END_TEST

START_TEST(nothing_leaks) {
  (void)connect_over_a_cut(true, kRequestBytes + 5, true);
  ck_assert_int_eq(fake_counts.made.load(), fake_counts.destroyed.load());
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("cpc_faults",
                         {listener_comes_late, the_longer_time_counts, channel_cut_in_the_request,
                          channel_cut_in_the_hello_and_the_reply, channel_cut_in_the_confirm, channel_cut_in_the_close,
                          channel_cut_while_both_connect, channel_cut_while_the_peer_computes, retries_end,
                          peer_spoke_counts_as_confirm, restarted_peer_is_connected_anew, nothing_leaks},
                         300);
}
