// SPDX-License-Identifier: BSD-3-Clause
//
// Connections for which there are no queue pairs wait until others have gone. Each has two here.
#include "cpc/manager/waiting_room.h"
#include "cpc/oob/oob.h"
#include "test/unit/cpc_node.h"

namespace fabric {
namespace {

using test::check_connected;
using test::check_gone;
using test::close_both;
using test::fake_counts;
using test::Fate;
using test::Node;
using test::run_for;
using test::run_until;

/// One with room for so many connections, on a device that has no more.
Node::Options with_room_for(std::uint32_t rank, int connections) {
  Node::Options options = Node::options(rank);
  options.queue_pairs = options.device_has = std::int64_t{2} * connections;
  return options;
}

/// One that may have more than its device has.
Node::Options on_device_with(std::int64_t queue_pairs) {
  Node::Options options = with_room_for(1, 100);
  options.device_has = queue_pairs;
  return options;
}

/// `a` has room for two connections, and has them: both peers have asked for theirs.
void fill(Node& a, Node& one, Node& other) {
  for (Node* const peer : {&one, &other}) {
    peer->connect(a);
    check_connected(*peer, a);
  }
}

START_TEST(a_budget_keeps_a_part_for_peers) {
  cpc::QueuePairBudget budget(10, 2);
  ck_assert(budget.has_limit());
  ck_assert(budget.has(8, false) && !budget.has(9, false));
  ck_assert(budget.has(10, true) && !budget.has(11, true));
  budget.take(8);
  ck_assert(!budget.has(1, false) && budget.has(2, true));
  budget.give_back(8);
  const cpc::QueuePairBudget enough(10, 2, 10);  // nobody waits for ever
  ck_assert(enough.has(10, false) && !enough.has(11, true));
  const cpc::QueuePairBudget more(100, 2, 95);
  ck_assert(more.has(95, false) && !more.has(96, false) && more.has(100, true));
  ck_assert(!cpc::QueuePairBudget(3, 2).has_limit());  // too few for two connections
  ck_assert(!cpc::QueuePairBudget().has_limit());
}
END_TEST

START_TEST(a_refusal_holds_for_a_while) {
  using std::chrono::milliseconds;
  const auto start = cpc::QueuePairBudget::Clock::now();
  cpc::QueuePairBudget budget(20, 2);
  budget.take(8);
  ck_assert(budget.has(12, true, start));
  ck_assert(budget.shrink(start));  // the device has no more
  ck_assert(!budget.has(1, true, start));
  budget.give_back(6);
  ck_assert(budget.has(4, false, start) && budget.has(6, true, start) && !budget.has(7, true, start));
  ck_assert(!budget.shrink(start));  // that would leave nothing to live with
  ck_assert(!budget.has(7, true, start + milliseconds(999)));
  ck_assert(budget.has(18, true, start + milliseconds(1000)) && !budget.has(19, true, start + milliseconds(1000)));
  ck_assert(!budget.has(5, false, start + milliseconds(29'999)));  // a part is kept for peers of what there is
  ck_assert(budget.has(16, false, start + milliseconds(30'000)) &&
            !budget.has(17, false, start + milliseconds(30'000)));

  budget.take(6);
  ck_assert(budget.shrink(start) && !budget.has(1, true, start));
  budget.take(2);  // which the device refuses once more
  budget.give_back(2);
  ck_assert(!budget.has(1, true, start));
  budget.take(2);  // by somebody who has waited for long
  budget.made();
  ck_assert(budget.has(8, false, start) && budget.has(10, true, start) && !budget.has(11, true, start));
  budget.give_back(10);
}
END_TEST

/// That of a peer, which comes and goes.
class PeerChannel final : public cpc::Channel {
 public:
  void pause() {
    cpc::Message message;
    message.header.type = cpc::MessageType::kPause;
    handler_->on_message(*this, std::move(message));
  }
  void lose() { handler_->on_lost(*this, "it has gone", false); }

 private:
  const cpc::CpcTraits& cpc() const noexcept override { return cpc::kOob; }
  bool opened_by_us() const noexcept override { return false; }
  void send(cpc::Message /*message*/) override {}
  Status connect(cpc::QueuePairs& /*queue_pairs*/, const cpc::Message& /*from_peer*/) override { return {}; }
};

/// A peer asks.
PeerChannel& ask(cpc::WaitingRoom& room, const cpc::ConnectionKey& key) {
  auto channel = std::make_unique<PeerChannel>();
  PeerChannel& made = *channel;
  cpc::WaitingConnection& waiting = room.at(key);
  waiting.ask(std::move(channel), {});
  room.place(waiting, {2, true});
  return made;
}

START_TEST(who_is_put_off_keeps_its_turn) {
  constexpr std::chrono::milliseconds kWhile{5};
  const cpc::ConnectionKey first{{7, 1}, 0, 0, cpc::Direction::kBoth};
  const cpc::ConnectionKey second{{7, 2}, 0, 0, cpc::Direction::kBoth};
  cpc::WaitingRoom room;
  PeerChannel& channel = ask(room, first);
  std::this_thread::sleep_for(kWhile);
  channel.pause();
  ck_assert(room.take_changed() == std::vector{first});
  room.give_up(*room.find(first));
  ck_assert(room.empty() && room.oldest({}) == nullptr);
  ask(room, second);
  PeerChannel& again = ask(room, first);
  ck_assert(room.find(first)->waited() >= kWhile && room.oldest({}) == room.find(first));
  again.lose();  // it has its own reason
  room.give_up(*room.find(first));
  ask(room, first);
  ck_assert_ptr_eq(room.oldest({}), room.find(second));
  ck_assert_uint_eq(room.count(), 2);
}
END_TEST

START_TEST(who_finds_no_room_waits) {
  const int made_before = fake_counts.made;
  {
    Node a(with_room_for(1, 2));
    Node b(2);
    Node c(3);
    Node d(4);
    a.connect(b);
    check_connected(a, b);
    d.connect(a);
    check_connected(d, a);
    a.connect(c);
    run_for({&a, &b, &c, &d}, 700);
    ck_assert(a.seen(a.key_to(c)).fate == Fate::kUnknown);
    ck_assert_uint_eq(a.room_wanted, 1);
    close_both(a, b);
    check_connected(a, c);
    ck_assert_uint_eq(a.room_wanted, 0);
    ck_assert_int_eq(fake_counts.made - made_before, 6);
  }
  ck_assert_int_eq(fake_counts.made.load(), fake_counts.destroyed.load());
}
END_TEST

/// More than its part of the device, where that has more, if nobody makes room.
START_TEST(who_has_waited_for_long_takes_more) {
  Node::Options options = with_room_for(1, 2);
  options.device_has = 100;
  Node a(options);
  Node b(2);
  Node c(3);
  a.connect(b);
  check_connected(a, b);
  a.connect(c);  // the rest is kept for peers
  run_until({&a, &b, &c}, [&] { return a.room_wanted == 1; });
  check_connected(a, c);
}
END_TEST

/// A peer whose request waits is neither answered nor refused, however long it takes; if it gives up, nobody waits.
START_TEST(a_request_waits_too) {
  Node a(with_room_for(1, 2));
  Node b(2);
  Node c(3);
  Node d(4);
  fill(a, b, c);
  d.connect(a);
  run_until({&a, &b, &c, &d}, [&] { return a.room_wanted == 1; });
  run_for({&a, &b, &c, &d}, 2000);
  ck_assert(d.seen(d.key_to(a)).fate == Fate::kPosted);
  ck_assert_int_eq(d.seen(d.key_to(a)).failed, 0);
  close_both(a, b);
  check_connected(d, a);
  ck_assert_uint_eq(a.room_wanted, 0);

  b.connect(a);
  run_until({&a, &b, &c, &d}, [&] { return a.room_wanted == 1; });
  b.close(b.key_to(a), "it has changed its mind");
  run_for({&a, &b, &c, &d}, 300);
  close_both(a, c);
  run_until({&a, &b, &c, &d}, [&] { return a.room_wanted == 0; });
  ck_assert(a.seen(a.key_to(b)).fate != Fate::kConnected);
}
END_TEST

/// Both want each other, and neither has room: when both have, they are connected.
START_TEST(two_that_wait_for_each_other) {
  Node a(with_room_for(1, 2));
  Node b(with_room_for(2, 2));
  Node c(3);
  Node d(4);
  const std::initializer_list<Node*> all = {&a, &b, &c, &d};
  fill(a, c, d);
  fill(b, c, d);
  a.connect(b);
  b.connect(a);
  run_until(all, [&] { return a.room_wanted == 1 && b.room_wanted == 1; });
  close_both(b, d);
  run_until(all, [&] { return b.room_wanted == 0; });
  run_for(all, 300);
  ck_assert(b.seen(b.key_to(a)).fate == Fate::kPosted);
  close_both(a, c);
  check_connected(a, b);
  run_until(all, [&] { return a.room_wanted == 0; });
}
END_TEST

START_TEST(a_wish_is_taken_back) {
  Node a(with_room_for(1, 2));
  Node b(2);
  Node c(3);
  Node d(4);
  fill(a, b, d);
  a.connect(c);
  run_until({&a, &b, &c}, [&] { return a.room_wanted == 1; });
  a.close(a.key_to(c), "not any more");
  run_until({&a, &b, &c}, [&] { return a.room_wanted == 0 && a.is_gone(a.key_to(c)); });
  close_both(a, b);
  run_for({&a, &b, &c}, 200);
  ck_assert(a.seen(a.key_to(c)).fate == Fate::kDestroyed);
  a.connect(c);
  check_connected(a, c);
}
END_TEST

/// The same of one that a connection which is over has handed on: of what waits now the main thread knows nothing.
START_TEST(a_wish_that_was_handed_on_is_taken_back) {
  Node a(with_room_for(1, 2));
  Node b(2);
  Node c(3);
  a.posts = false;
  a.connect(b);
  ck_assert(run_until({&a, &b, &c}, [&] { return a.seen(a.key_to(b)).fate == Fate::kAsked; }));
  c.connect(a);
  ck_assert(run_until({&a, &b, &c}, [&] { return a.seen(a.key_to(c)).fate == Fate::kAsked; }));
  b.connect(a);  // which is wanted by both then
  ck_assert(run_until({&a, &b, &c}, [&] { return b.seen(b.key_to(a)).fate == Fate::kPosted; }));
  run_for({&a, &b, &c}, 200);
  b.close(b.key_to(a), "not yet");
  run_for({&b, &c}, 200);  // while a computes it begins anew, and waits
  a.close(a.key_to(b), "not any more");
  a.posts = true;
  check_connected(c, a);
  ck_assert(run_until({&a, &b, &c}, [&] { return a.is_gone(a.key_to(b)) && b.is_gone(b.key_to(a)); }));
  run_for({&a, &b, &c}, 500);
  ck_assert(a.is_gone(a.key_to(b)) && b.is_gone(b.key_to(a)));
  ck_assert_uint_eq(a.room_wanted, 0);
}
END_TEST

/// The device has fewer than this process's part, since others have more.
START_TEST(a_device_has_less_than_it_says) {
  Node a(on_device_with(4));
  Node b(2);
  Node c(3);
  Node d(4);
  fill(a, b, c);
  d.connect(a);
  run_until({&a, &b, &c, &d}, [&] { return a.room_wanted == 1; });
  close_both(a, c);
  check_connected(d, a);
}
END_TEST

/// Others have had the rest of the device for a moment.
START_TEST(a_device_has_more_again) {
  Node a(on_device_with(4));
  Node b(2);
  Node c(3);
  Node d(4);
  Node e(5);
  const std::initializer_list<Node*> all = {&a, &b, &c, &d, &e};
  fill(a, b, c);
  d.connect(a);
  ck_assert(run_until(all, [&] { return a.room_wanted == 1; }));
  a.device_has(100);
  check_connected(d, a);
  a.connect(e);
  check_connected(a, e);  // without waiting, and nobody has gone
  ck_assert_uint_eq(a.times_room_wanted, 2);
}
END_TEST

/// Others have all of it. They may give something back; if they do not, that is told.
START_TEST(a_full_device_is_waited_for) {
  Node a(on_device_with(0));
  Node b(2);
  a.connect(b);
  run_for({&a, &b}, 700);
  ck_assert(a.seen(a.key_to(b)).fate == Fate::kUnknown);
  ck_assert_uint_eq(a.room_wanted, 1);
  run_until({&a, &b}, [&] { return a.seen(a.key_to(b)).failed == 1; });
  test::check_text_has(a.seen(a.key_to(b)).reason, "the fake device has no queue pair left");
  ck_assert_uint_eq(a.room_wanted, 0);
}
END_TEST

/// However many wait, a full device is asked a few times only, whenever somebody goes and from time to time. They are
/// as many as they were: nobody is told again.
START_TEST(a_full_device_is_not_asked_for_all) {
  constexpr std::uint32_t kMany = 1000;
  Node a(with_room_for(1, 2));
  Node b(2);
  Node c(3);
  Node d(4);
  fill(a, b, c);
  a.connect(d);
  for (std::uint32_t i = 1; i < kMany; ++i) {
    a.connect({{7, 100 + i}, 0, 0, cpc::Direction::kBoth}, d.target());
  }
  ck_assert(run_until({&a, &b, &c, &d}, [&] { return a.room_wanted == kMany; }));
  run_for({&a, &b, &c, &d}, 300);
  const unsigned said_before = a.times_room_wanted;
  const int refused_before = fake_counts.refused;
  run_for({&a, &b, &c, &d}, 600);
  ck_assert_uint_eq(a.times_room_wanted, said_before);
  ck_assert_int_gt(fake_counts.refused - refused_before, 0);
  close_both(a, b);
  check_connected(a, d);
  ck_assert_uint_eq(a.room_wanted, kMany - 1);
  ck_assert_int_lt(fake_counts.refused - refused_before, static_cast<int>(kMany / 10));
}
END_TEST

/// The number is that of the device, whichever port's queue pairs come and go.
START_TEST(those_of_all_ports_are_counted) {
  Node::Options options = with_room_for(1, 2);
  options.ports = 2;
  Node a(options);
  std::vector<std::unique_ptr<Node>> peers;
  for (std::uint32_t rank = 2; rank < 8; ++rank) {
    Node::Options its = Node::options(rank);
    its.ports = 2;
    peers.push_back(std::make_unique<Node>(its));
  }
  const auto wanted = [&](std::size_t count) {
    std::vector<Node*> all{&a};
    for (const auto& peer : peers) {
      all.push_back(peer.get());
    }
    ck_assert(test::run_all_until(all, [&] { return a.room_wanted == count; }));
  };
  fill(a, *peers[0], *peers[1]);
  a.connect(*peers[2], 0);
  wanted(1);
  a.connect(*peers[3], 1);
  wanted(2);
  close_both(a, *peers[0]);
  wanted(1);
  close_both(a, *peers[1]);
  wanted(0);
  // Whichever of them was looked at first.
  a.connect(*peers[4], 0);
  wanted(1);
  close_both(a, *peers[2], 0);
  wanted(0);
  a.connect(*peers[5], 1);
  wanted(1);
}
END_TEST

/// It is counted no more when its channel has broken, though those before it wait on.
START_TEST(who_is_not_the_first_gives_up) {
  Node a(with_room_for(1, 2));
  Node b(2);
  Node c(3);
  Node d(4);
  Node e(5);
  const std::initializer_list<Node*> all = {&a, &b, &c, &d, &e};
  fill(a, b, c);
  d.connect(a);
  run_until(all, [&] { return a.room_wanted == 1; });
  e.connect(a);
  ck_assert(run_until(all, [&] { return a.room_wanted == 2; }));
  e.stop();
  ck_assert(run_until(all, [&] { return a.room_wanted == 1; }));
  close_both(a, b);
  check_connected(d, a);
  ck_assert_uint_eq(a.room_wanted, 0);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "cpc_room", {a_budget_keeps_a_part_for_peers, a_refusal_holds_for_a_while, who_is_put_off_keeps_its_turn,
                   who_finds_no_room_waits, who_has_waited_for_long_takes_more, a_request_waits_too,
                   two_that_wait_for_each_other, a_wish_is_taken_back, a_wish_that_was_handed_on_is_taken_back,
                   a_device_has_less_than_it_says, a_device_has_more_again, a_full_device_is_waited_for,
                   a_full_device_is_not_asked_for_all, those_of_all_ports_are_counted, who_is_not_the_first_gives_up});
}
