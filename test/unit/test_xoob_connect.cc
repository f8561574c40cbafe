// SPDX-License-Identifier: BSD-3-Clause
//
// Connections of X queues between several connection managers in one process, with fake queue pairs: what processes of one
// node share, what becomes of it when one of them fails, and a network that breaks.
#include <algorithm>
#include <memory>

#include "cpc/oob/xoob_offer.h"
#include "test/unit/cpc_relay.h"
#include "test/unit/xrc_node.h"

namespace fabric {
namespace {

using test::check_connected;
using test::check_gone;
using test::check_no_leak;
using test::check_path;
using test::check_text_has;
using test::close_both;
using test::fake_senders;
using test::fake_targets;
using test::Fate;
using test::is_connected;
using test::Node;
using test::Nodes;
using test::Relay;
using test::run_for;
using test::run_until;
using test::xrc_options;
using test::XrcNode;
using Flow = Relay::Flow;

START_TEST(each_way_is_connected_by_itself) {
  {
    XrcNode a(1, 11);
    XrcNode b(2, 22);
    a.connect(b);
    check_connected(a, b);
    check_path(a, b);
    run_for({&a, &b}, 50);
    ck_assert(b.seen(b.key_to(a)).fate == Fate::kUnknown);
    b.connect(a);
    check_connected(b, a);
    check_path(b, a);
    ck_assert_int_eq(fake_senders.connected.load(), 2);
    close_both(a, b);
    ck_assert_int_eq(fake_senders.flushed.load(), 1);
    close_both(b, a);
    ck_assert_int_eq(fake_senders.flushed.load(), 2);
  }
  check_no_leak();
}
END_TEST

/// Whose main thread computes delays those who wait for it, and nobody else.
START_TEST(neighbours_do_not_wait_for_each_other) {
  XrcNode a(1, 11);
  XrcNode b(2, 22);
  XrcNode c(3, 22);
  b.posts = false;
  a.connect(b);
  a.connect(c);
  ck_assert(run_until({&a, &b, &c}, [&] { return is_connected(a, c); }));
  ck_assert(a.seen(a.key_to(b)).fate == Fate::kPosted);
  b.posts = true;
  check_connected(a, b);
  check_path(a, b);
  check_path(a, c);
  ck_assert_int_eq(fake_targets.made(), 1);
}
END_TEST

/// The same where only so many may be under way: those who have their targets, and wait, let others go first.
START_TEST(a_peer_that_computes_holds_nobody_up) {
  {
    auto options = xrc_options(1, 11);
    options.settings.connect_limit = 2;
    Node a(options);
    Nodes busy;
    for (std::uint32_t rank = 2; rank < 5; ++rank) {
      busy.push_back(std::make_unique<XrcNode>(rank, 10 * rank));
      busy.back()->posts = false;
    }
    XrcNode idle(9, 99);
    const auto pump = [&] {
      a.pump();
      idle.pump();
      return true;
    };
    for (const auto& node : busy) {
      a.connect(*node);
    }
    const auto all_asked = [&] {
      return pump() && std::all_of(busy.begin(), busy.end(),
                                   [&](const auto& one) { return one->seen(one->key_from(a)).fate == Fate::kAsked; });
    };
    ck_assert(test::run_all(busy, all_asked));  // turns come and go
    a.connect(idle);
    ck_assert(test::run_all(busy, [&] { return pump() && is_connected(a, idle); }));
    for (const auto& node : busy) {
      node->posts = true;
    }
    for (const auto& node : busy) {
      ck_assert(test::run_all(busy, [&] { return pump() && is_connected(a, *node); }));
      check_path(a, *node);
    }
  }
  check_no_leak();
}
END_TEST

/// The first has no target made, for one reason or the other: the next one has, over the same sender.
START_TEST(the_next_takes_over) {
  enum class Why { kTargetFails, kPeerIsGone, kLocalFailure, kWithdrawn };
  for (const Why why : {Why::kTargetFails, Why::kPeerIsGone, Why::kLocalFailure, Why::kWithdrawn}) {
    const int made_before = fake_senders.made;
    {
      Node::Options options = xrc_options(1, 11);
      options.settings.retry_time_ms = 100;
      Node a(options);
      options = xrc_options(2, 22);
      options.make_fails = why == Why::kTargetFails;
      Node b(options);
      XrcNode c(3, 22);
      XrcNode d(4, 22);
      cpc::PeerTarget to_b = b.target();
      // The first hears nothing before the others wait in line.
      std::atomic<bool> all_wait = false;
      Relay slow(to_b, [&](int, bool, std::size_t) {
        while (!all_wait && why != Why::kWithdrawn) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return why == Why::kWithdrawn ? Flow::kSwallow : Flow::kPass;
      });
      if (why == Why::kPeerIsGone) {
        b.stop();
      } else {
        slow.open();
        to_b = slow.target();
      }
      fake_senders.to_fail = why == Why::kLocalFailure ? 1 : 0;
      const cpc::ConnectionKey key{{7, 2}, 0, 0, cpc::Direction::kOutgoing};
      a.connect(key, to_b);
      a.connect(c);
      a.connect(d);
      if (why != Why::kPeerIsGone) {
        run_for({&a, &b, &c, &d}, 100);
        ck_assert(a.seen(a.key_to(c)).fate == Fate::kPosted);  // it waits in line
        ck_assert(a.seen(a.key_to(d)).fate == Fate::kPosted);
        all_wait = true;
      }
      if (why == Why::kWithdrawn) {
        a.close(key, "the application has changed its mind");
      }
      ck_assert(
          run_until({&a, &b, &c, &d}, [&] { return a.is_gone(key) && is_connected(a, c) && is_connected(a, d); }));
      ck_assert_int_eq(a.seen(key).failed, why == Why::kWithdrawn ? 0 : 1);
      check_path(a, c);
      check_path(a, d);
      ck_assert_uint_eq(a.seen(a.key_to(c)).xrc.sender, a.seen(a.key_to(d)).xrc.sender);
      ck_assert_msg(fake_senders.made - made_before == 1, "%d made, reason %d", fake_senders.made - made_before,
                    static_cast<int>(why));
    }
    check_no_leak();
  }
}
END_TEST

/// All who wait in line give up before it is their turn, or at it.
START_TEST(who_waits_may_leave) {
  {
    XrcNode a(1, 11);
    XrcNode b(2, 22);
    XrcNode c(3, 22);
    XrcNode d(4, 22);
    Relay silent(b.target(), [](int, bool, std::size_t) { return Flow::kSwallow; });
    silent.open();
    const cpc::ConnectionKey to_b = a.key_to(b);
    a.connect(to_b, silent.target());
    a.connect(c);
    a.connect(d);
    run_for({&a, &b, &c, &d}, 100);
    a.close(a.key_to(c), "not needed");
    check_gone({&a}, a, a.key_to(c));
    a.close(to_b, "nor this");
    a.close(a.key_to(d), "nor that, whose turn it is now");
    check_gone({&a}, a, to_b);
    check_gone({&a}, a, a.key_to(d));
    a.connect(c);
    check_connected(a, c);
  }
  check_no_leak();
}
END_TEST

/// The listener's places are all taken by those who wait for its main thread: they have their targets, and come back.
START_TEST(who_waits_leaves_its_place) {
  {
    constexpr std::uint32_t kNodes = 6;
    auto options = xrc_options(1, 1);
    options.settings.connect_limit = 2;
    Node b(options);
    b.posts = false;
    Nodes others;
    for (std::uint32_t i = 0; i < kNodes; ++i) {
      others.push_back(std::make_unique<XrcNode>(10 + i, 10 + i));
      others.back()->connect(b);
    }
    const auto all = [&](Fate fate) {
      b.pump();
      return std::all_of(others.begin(), others.end(),
                         [&](const auto& one) { return b.seen(b.key_from(*one)).fate == fate; });
    };
    ck_assert(test::run_all(others, [&] { return all(Fate::kAsked); }));
    b.posts = true;
    ck_assert(test::run_all(others, [&] { return all(Fate::kConnected); }));
    for (auto& one : others) {
      check_connected(*one, b);
      check_path(*one, b);
    }
  }
  check_no_leak();
}
END_TEST

/// The process that had made the target, and was the only one to have it, lets it go: the next connection gets a new
/// sender, and the old one goes with its last user.
START_TEST(a_target_that_is_gone_is_made_anew) {
  {
    XrcNode a(1, 11);
    XrcNode b(2, 22);
    XrcNode c(3, 22);
    XrcNode d(4, 22);
    a.connect(b);
    check_connected(a, b);
    b.close(b.key_from(a), "finished");
    check_gone({&a, &b}, b, b.key_from(a));
    run_for({&a, &b}, 20);
    a.connect(c);
    a.connect(d);  // hears of it too, or comes to the new one
    ck_assert(run_until({&a, &b, &c, &d}, [&] { return is_connected(a, c) && is_connected(a, d); }));
    check_path(a, c);
    check_path(a, d);
    ck_assert_uint_ne(a.seen(a.key_to(b)).xrc.sender, a.seen(a.key_to(c)).xrc.sender);
    ck_assert_uint_eq(a.seen(a.key_to(d)).xrc.sender, a.seen(a.key_to(c)).xrc.sender);
    ck_assert_int_eq(fake_senders.flushed.load(), 0);
    a.close(a.key_to(b), "finished");
    check_gone({&a}, a, a.key_to(b));
    ck_assert_int_eq(fake_senders.flushed.load(), 1);
    close_both(a, c);
    ck_assert_int_eq(fake_senders.flushed.load(), 1);
    close_both(a, d);
    ck_assert_int_eq(fake_senders.flushed.load(), 2);
  }
  check_no_leak();
}
END_TEST

START_TEST(a_broken_sender_is_not_joined) {
  XrcNode a(1, 11);
  XrcNode b(2, 22);
  XrcNode c(3, 22);
  a.connect(b);
  check_connected(a, b);
  fake_senders.broken = true;
  a.connect(c);
  check_connected(a, c);
  ck_assert_uint_ne(a.seen(a.key_to(b)).xrc.sender, a.seen(a.key_to(c)).xrc.sender);
  check_path(a, c);
  ck_assert_int_eq(fake_targets.made(), 2);
}
END_TEST

/// The first channel to either peer breaks before byte `at` of a direction; what is sent again is answered as before.
START_TEST(channels_break_anywhere) {
  constexpr std::size_t kMostBytes = 2 * 115;  // REQUEST and CONFIRM, or TARGET and REPLY
  for (const bool to_listener : {true, false}) {
    for (std::size_t at = 0; at < kMostBytes; at += 23) {
      {
        XrcNode a(1, 11);
        XrcNode b(2, 22);
        XrcNode c(3, 22);
        const auto rule = [=](int connection, bool to, std::size_t byte) {
          return connection == 0 && to == to_listener && byte == at ? Flow::kCut : Flow::kPass;
        };
        Relay relay_b(b.target(), rule);
        Relay relay_c(c.target(), rule);
        relay_b.open();
        relay_c.open();
        a.connect(a.key_to(b), relay_b.target());
        a.connect(a.key_to(c), relay_c.target());
        const bool done = run_until({&a, &b, &c}, [&] { return is_connected(a, b) && is_connected(a, c); });
        ck_assert_msg(done, "cut before byte %zu: %s; %s", at, a.seen(a.key_to(b)).reason.c_str(),
                      a.seen(a.key_to(c)).reason.c_str());
        check_path(a, b);
        check_path(a, c);
      }
      check_no_leak();
    }
  }
}
END_TEST

START_TEST(lists_must_fit) {
  XrcNode a(1, 11);
  Node::Options options = xrc_options(2, 22);
  options.receive_queues = "X,4096,64,32";
  Node b(options);
  a.connect(b);
  check_gone({&a, &b}, a, a.key_to(b));
  check_text_has(a.seen(a.key_to(b)).reason, "the peer has 1 receive queues, we have 2");
  check_text_has(a.seen(a.key_to(b)).reason, "outgoing connection to rank 2");

  cpc::PeerTarget target = b.target();
  const cpc::ConnectionKey other{b.name(), 0, 5, cpc::Direction::kOutgoing};
  a.connect(other, target);
  check_gone({&a, &b}, a, other);
  check_text_has(a.seen(other).reason, "no XRC domain for the peer's port 5");
}
END_TEST

START_TEST(who_serves_x_queues) {
  const auto reasons = [](Node& node) {
    std::string all;
    for (const CpcOffer& offer : node.manager().refusals()) {
      all += std::string(cpc::cpc_name(offer.kind)) + ": " +
             std::string(reinterpret_cast<const char*>(offer.blob.data()), offer.blob.size()) + "\n";
    }
    return all;
  };
  XrcNode with(1, 11);
  ck_assert(with.target().cpc == cpc::kXoob);
  check_text_has(reasons(with), "oob: port 0: it makes no XRC queue pairs, and btl_fabric_receive_queues has X queues");
  Node without(2);
  ck_assert(without.target().cpc == cpc::kOob);
  check_text_has(reasons(without), "xoob: port 0: it is for X queues, and btl_fabric_receive_queues has none");
  XrcNode no_domain(3, 0);
  check_text_has(reasons(no_domain), "xoob: port 0: the device has no XRC domain");
}
END_TEST

START_TEST(what_is_published_comes_back) {
  cpc::XoobOffer offer;
  offer.listener = {std::byte{1}, std::byte{2}};
  offer.ports = {{0, {0x0102030405060708, 7, {}}}, {63, {9, 0, {}}}};
  offer.ports[1].domain.gid.raw[15] = 4;
  const std::vector<std::byte> blob = encode(offer);
  ck_assert(*cpc::decode_xoob_offer(blob) == offer);
  ck_assert(*cpc::domain_of(blob, 63) == offer.ports[1].domain);
  ck_assert(!cpc::domain_of(blob, 1));
  for (std::size_t size = 0; size < blob.size(); ++size) {
    ck_assert(!cpc::decode_xoob_offer(std::span(blob).first(size)));
  }
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("xoob_connect",
                         {each_way_is_connected_by_itself, neighbours_do_not_wait_for_each_other,
                          a_peer_that_computes_holds_nobody_up, the_next_takes_over, who_waits_may_leave,
                          who_waits_leaves_its_place, a_target_that_is_gone_is_made_anew, a_broken_sender_is_not_joined,
                          channels_break_anywhere, lists_must_fit, who_serves_x_queues, what_is_published_comes_back},
                         300);
}
