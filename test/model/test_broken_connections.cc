// SPDX-License-Identifier: BSD-3-Clause
//
// Queue pairs that break, in every order of events of two processes: connections are made anew, and everything arrives once.
#include <array>
#include <string>
#include <utility>

#include "test/model/explore.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

using model::closing;
using model::Exchange;
using model::exchanging;
using model::expect_no_fault;
using model::expect_no_fault_at_random;
using model::expect_no_fault_of;
using model::is_small;
using model::Options;
using model::Sends;
using model::text_of;
using model::to_several;
using model::with;

/// Queue pairs break at any time, with what is under way having arrived or not, while messages go, while the break is found out, and
/// while the next connection is made. Nobody is told, and nothing is lost.
Options breaking(Options options, std::uint8_t breaks) {
  options.breaks = breaks;
  options.retries = breaks;
  options.heals = true;
  return options;
}
constexpr std::array kBreakingSends{Sends{1, 0}, Sends{2, 0}, Sends{1, 1}, Sends{2, 2}};

/// One of them each: Check cannot tell of a test that takes longer than 35 minutes.
START_TEST(connections_that_break_are_made_anew) {
  const Sends& sends = kBreakingSends[static_cast<std::size_t>(_i)];
  const std::string what = text_of(sends) + ", queue pairs break";
  is_small(sends) ? expect_no_fault(what + " once", breaking(with(sends), 1))
                  : expect_no_fault_of(what + " once", breaking(with(sends), 1));
  expect_no_fault_at_random(what + " three times", breaking(with(sends), 3));
  if (sends == Sends{2, 2}) {
    return;  // of that with two breaks there are more worlds than can be seen in an hour
  }
  expect_no_fault_of(what + " twice", breaking(with(sends), 2));
  for (const Exchange& exchange : model::kExchanges) {
    expect_no_fault_of(what + " twice, " + exchange.name, breaking(exchanging(exchange, sends), 2));
  }
}
END_TEST

START_TEST(two_queues_that_break_are_made_anew) {
  Options two = breaking(with({2, 2}), 2);
  two.queues = 2;
  expect_no_fault_at_random("two queues break twice", two);
}
END_TEST

/// The same while links are given up, applications close, and channels break.
START_TEST(connections_that_break_end_in_order) {
  Options resting = breaking(with({2, 1}), 1);
  resting.plans[0].rests[1] = 1;
  resting.plans[1].rests[0] = 1;
  expect_no_fault_of("queue pairs break while links rest", resting);
  // Not all of these worlds: an application that closes while its connection is made anew says goodbye over the new one, to the
  // endpoint that the peer has made since, and whose messages are told to be lost where they cross that.
  model::expect_no_fault_on(model::kMostWanders, "queue pairs break while applications close",
                            breaking(closing(with({2, 1})), 1));
  Options losing = breaking(with({2, 1}), 1);
  losing.losses = 1;
  losing.retries = 2;
  expect_no_fault_of("queue pairs and channels break", losing);
  Options leaving = breaking(with({1, 1}), 1);
  leaving.plans[0].leaves = leaving.plans[1].leaves = 1;
  // Not all of these either: nobody leaves MPI_Finalize before everybody's messages have ended, and here some do.
  model::expect_no_fault_on(model::kMostWanders, "queue pairs break while processes end", leaving);
}
END_TEST

/// The same where another port of both carries meanwhile: whatever the sides have told each other over it when the next connection
/// comes up, or breaks too.
START_TEST(another_port_carries_what_a_break_leaves) {
  for (const auto& sends : {Sends{1, 0}, Sends{2, 0}, Sends{1, 1}, Sends{2, 2}}) {
    for (const std::uint8_t breaks : {std::uint8_t{1}, std::uint8_t{2}}) {
      const std::string what = text_of(sends) + ", another port, " + std::to_string(breaks) + " breaks";
      const auto by_another_port = [breaks](Options options) {
        Options both = breaking(std::move(options), breaks);
        both.other_way = true;
        return both;
      };
      expect_no_fault_at_random(what, by_another_port(with(sends)));
      for (const Exchange& exchange : model::kExchanges) {
        expect_no_fault_at_random(what + ", " + exchange.name, by_another_port(exchanging(exchange, sends)));
      }
    }
  }
}
END_TEST

/// The same while channels break and links are given up.
START_TEST(another_port_carries_while_links_go) {
  const auto by_another_port = [](Options options) {
    options.other_way = true;
    return options;
  };
  Options losing = by_another_port(breaking(with({2, 1}), 1));
  losing.losses = 1;
  losing.retries = 2;
  expect_no_fault_at_random("another port, queue pairs and channels break", losing);
  Options resting = by_another_port(breaking(with({2, 1}), 1));
  resting.plans[0].rests[1] = 1;
  resting.plans[1].rests[0] = 1;
  expect_no_fault_at_random("another port, queue pairs break while links rest", resting);
}
END_TEST

/// With X queues each way breaks by itself, and what goes one way breaks for all processes of the peer's node. Who is asked what has
/// arrived, and sends nothing itself, connects to answer.
Options breaking_x(Options options, std::uint8_t breaks) {
  options.cpc = cpc::kXoob;
  return breaking(options, breaks);
}
START_TEST(x_queues_that_break_are_made_anew) {
  for (const auto& sends : {Sends{1, 0}, Sends{1, 1}, Sends{2, 1}}) {
    const std::string what = "X queues, " + text_of(sends) + ", queue pairs break";
    is_small(sends) ? expect_no_fault(what + " once", breaking_x(with(sends), 1))
                    : expect_no_fault_of(what + " once", breaking_x(with(sends), 1));
    if (model::is_deep() && is_small(sends)) {
      expect_no_fault(what + " twice", breaking_x(with(sends), 2));
    }
    expect_no_fault_at_random(what + " twice", breaking_x(with(sends), 2));
  }
  Options two = breaking_x(with({2, 2}), 3);
  two.queues = 2;
  expect_no_fault_at_random("X queues, two queues, queue pairs break three times", two);
  expect_no_fault_of("X queues, several peers, queue pairs break twice", breaking(to_several({2, 1, 0}), 2));
}
END_TEST

/// The same while channels break, applications close and processes end.
START_TEST(x_queues_that_break_end_in_order) {
  Options losing = breaking_x(with({2, 1}), 1);
  losing.losses = 1;
  losing.retries = 2;
  expect_no_fault_at_random("X queues, queue pairs and channels break", losing);
  model::expect_no_fault_on(model::kMostWanders, "X queues, queue pairs break while applications close",
                            breaking_x(closing(with({2, 1})), 1));
  Options leaving = breaking_x(with({1, 1}), 1);
  leaving.plans[0].leaves = leaving.plans[1].leaves = 1;
  model::expect_no_fault_on(model::kMostWanders, "X queues, queue pairs break while processes end", leaving);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  const auto run = model::is_deep() ? test::run_computations<3600> : test::run_computations<300>;
  return run("broken_connections", {{connections_that_break_are_made_anew, 0, static_cast<int>(kBreakingSends.size())},
                                    two_queues_that_break_are_made_anew,
                                    connections_that_break_end_in_order,
                                    another_port_carries_what_a_break_leaves,
                                    another_port_carries_while_links_go,
                                    x_queues_that_break_are_made_anew,
                                    x_queues_that_break_end_in_order});
}
