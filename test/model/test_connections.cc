// SPDX-License-Identifier: BSD-3-Clause
//
// Every order of events of two processes that connect, over the product's own connections.
#include <string>

#include "cpc/oob/xoob.h"
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

[[nodiscard]] std::uint8_t most_losses(const Sends& sends) {
  return model::is_deep() ? 3 : is_small(sends) ? 2 : 1;
}
/// As many channels break as there are retries: both always end up connected, to each other.
START_TEST(both_connect_while_retries_last) {
  for (const auto& sends : model::kWhoSends) {
    for (std::uint8_t losses = 0; losses <= most_losses(sends); ++losses) {
      Options options = with(sends);
      options.losses = losses;
      options.retries = losses;
      expect_no_fault(text_of(sends) + ", " + std::to_string(losses) + " losses", options);
    }
  }
}
END_TEST

/// Requests that take their time to leave, for there is no turn for them or TCP does not get through, and sockets that
/// are given up for others in between. It costs no attempt.
START_TEST(requests_wait_for_their_turn) {
  for (const auto& sends : model::kWhoSends) {
    for (std::uint8_t losses = 0; losses <= (is_small(sends) || model::is_deep() ? 1 : 0); ++losses) {
      Options options = with(sends);
      options.losses = losses;
      options.retries = losses;
      options.dials = true;
      options.yields = losses == 0 || model::is_deep() ? 2 : 1;
      expect_no_fault(text_of(sends) + ", turns, " + std::to_string(losses) + " losses", options);
    }
  }
}
END_TEST

/// Who has given up its socket for others may end its connection, or itself, before it is back: its peer, which is not told, does
/// not wait for it for ever, and what both send after that arrives.
START_TEST(who_lets_others_go_first_does_not_come_back) {
  for (const auto& sends : model::kWhoSends) {
    for (const std::size_t who : {0U, 1U}) {
      Options options = with(sends);
      options.yields = 1;
      options.retries = 1;
      options.plans[who].closes[1 - who] = 1;
      options.openers_go = true;
      expect_no_fault(text_of(sends) + ", " + std::to_string(who) + " gives way, or the other, and it closes", options);
      options.plans[who] = with(sends).plans[who];
      options.plans[who].dies = 1;
      options.nothing_fails = false;
      expect_no_fault(text_of(sends) + ", " + std::to_string(who) + " gives way, or the other, and it dies", options);
    }
  }
}
END_TEST

/// Worse: channels break more often than there are retries, timers are over early, verbs calls fail, and the
/// applications close.
Options harsh(Options options) {
  const bool both_send = options.plans[0].sends[1] + options.plans[1].sends[0] > 1;
  options.losses = 1;
  options.retries = model::is_deep() ? 1 : 0;
  options.failures = !both_send || model::is_deep() ? 1 : 0;
  options.hasty_timers = true;
  options.plans[0].closes[1] = 1;
  options.plans[1].closes[0] = 1;
  options.nothing_fails = false;
  return options;
}

/// Everybody is told how it ended, and nothing is left over.
START_TEST(everybody_is_told) {
  for (const auto& sends : model::kWhoSends) {
    expect_no_fault(text_of(sends) + ", harsh", harsh(with(sends)));
    Options goes_on = harsh(with(sends));
    goes_on.goes_on = true;
    expect_no_fault_of(text_of(sends) + ", harsh, without the peer", goes_on);
  }
}
END_TEST

/// Whenever the application of one side closes and sends again, what it sends then arrives, whatever the other side knows
/// of it; and so does what the other side sends, unless it was under way when the first one closed.
START_TEST(one_side_closes_and_connects_again) {
  for (const std::size_t closer : {0U, 1U}) {
    Options options = with(model::is_deep() ? Sends{2, 2} : closer == 0 ? Sends{2, 1} : Sends{1, 2});
    options.plans[closer].closes[1 - closer] = 1;
    options.retries = 4;
    expect_no_fault(std::to_string(closer) + " closes", options);
    options = with(closer == 0 ? Sends{0, 2} : Sends{2, 0});
    options.plans[closer].closes[1 - closer] = 1;
    options.retries = 1;
    options.commands_wait = true;
    expect_no_fault(std::to_string(closer) + " closes, commands wait", options);
  }
}
END_TEST

/// Two applications that agree to close, and connect again at once, lose nothing: not even the goodbyes need to have
/// arrived.
START_TEST(both_close_and_connect_again) {
  const Sends most = model::is_deep() ? Sends{2, 2} : Sends{2, 1};
  for (const Sends& sends : {Sends{2, 0}, Sends{0, 2}, Sends{1, 1}, most}) {
    expect_no_fault(text_of(sends) + ", both close", closing(with(sends)));
    for (const Exchange& exchange : model::kExchanges) {
      expect_no_fault(std::string(exchange.name) + ", " + text_of(sends) + ", both close",
                      closing(exchanging(exchange, sends)));
    }
  }
}
END_TEST

/// Messages go over two queues, each of which may be late: nothing overtakes CTS, and goodbye overtakes nothing.
START_TEST(queues_of_a_link_keep_no_order_between_them) {
  for (const Sends& sends : {Sends{1, 0}, Sends{0, 1}, Sends{2, 0}, Sends{1, 1}}) {
    for (const Exchange& exchange : model::kExchanges) {
      Options options = closing(exchanging(exchange, sends));
      options.queues = 2;
      expect_no_fault(std::string(exchange.name) + ", " + text_of(sends) + ", 2 queues, both close", options);
    }
    for (const bool both : {false, true}) {
      Options options = with(sends);
      options.queues = 2;
      options.plans[0].leaves = 1;
      options.plans[1].leaves = both ? 1 : 0;
      expect_no_fault(text_of(sends) + ", 2 queues, " + (both ? "both end" : "one ends"), options);
    }
  }
}
END_TEST

/// Links are given up while they are idle, asked for by one side or by both, and whatever is sent comes, once and in order.
START_TEST(idle_links_are_given_up) {
  for (const Sends& sends : {Sends{1, 0}, Sends{2, 0}, Sends{1, 1}, Sends{2, 1}}) {
    for (const auto& [ours, theirs] : {std::pair{1, 0}, {0, 1}, {1, 1}}) {
      const auto resting = [&, ours = ours, theirs = theirs](Options options) {
        options.plans[0].rests[1] = static_cast<std::uint8_t>(ours);
        options.plans[1].rests[0] = static_cast<std::uint8_t>(theirs);
        options.retries = 1;
        return options;
      };
      const std::string what =
          text_of(sends) + ", " + std::to_string(ours) + " and " + std::to_string(theirs) + " rests";
      expect_no_fault_of(what, resting(with(sends)));
      for (const Exchange& exchange : model::kExchanges) {
        expect_no_fault_of(std::string(exchange.name) + ", " + what, resting(exchanging(exchange, sends)));
      }
      Options options = resting(with(sends));
      options.queues = 2;
      expect_no_fault_of(what + ", 2 queues", options);
      options = resting(with(sends));
      options.plans[0].leaves = options.plans[1].leaves = 1;
      expect_no_fault_of(what + ", both end", options);
    }
  }
}
END_TEST

// ---- How processes end

/// With each CPC, whoever sends.
template <class Change>
void expect_no_fault_at_the_end(const std::string& what, Change change) {
  for (const Sends& sends : model::kWhoSends) {
    Options options = with(sends);
    change(options);
    expect_no_fault(text_of(sends) + ", " + what, options);
    for (const Exchange& exchange : model::kExchanges) {
      options = exchanging(exchange, sends);
      change(options);
      expect_no_fault(std::string(exchange.name) + ", " + text_of(sends) + ", " + what, options);
    }
  }
}

/// Goodbye is said, arrives or not, and nobody is told that anything is wrong.
START_TEST(processes_end_in_order) {
  for (const bool both : {false, true}) {
    expect_no_fault_at_the_end(both ? "both end" : "one ends", [both](Options& options) {
      options.plans[0].leaves = 1;
      options.plans[1].leaves = both ? 1 : 0;
    });
  }
}
END_TEST

/// A process exits without a goodbye, or its host dies: who had a connection with it is told, as soon as anything can be
/// noticed.
START_TEST(processes_end_without_a_goodbye) {
  for (const bool dies : {false, true}) {
    expect_no_fault_at_the_end(dies ? "one dies" : "one exits", [dies](Options& options) {
      options.plans[0].dies = dies ? 1 : 0;
      options.plans[0].exits = dies ? 0 : 1;
      options.retries = 1;
      options.nothing_fails = false;
    });
  }
}
END_TEST

// ---- CPCs that exchange CTS

/// Attempts that fail before they are answered are made again: both become clear to send, whatever the main threads do
/// meanwhile.
START_TEST(both_become_clear_to_send) {
  for (const Exchange& exchange : model::kExchanges) {
    for (const auto& sends : model::kWhoSends) {
      for (std::uint8_t losses = 0; losses <= 2; ++losses) {
        Options options = exchanging(exchange, sends);
        options.losses = losses;
        options.retries = losses;
        options.breaks_until_reply = true;
        options.dials = losses < 2;
        expect_no_fault(std::string(exchange.name) + ", " + text_of(sends) + ", " + std::to_string(losses) + " losses",
                        options);
      }
    }
  }
}
END_TEST

START_TEST(everybody_is_told_of_an_exchange) {
  for (const Exchange& exchange : model::kExchanges) {
    for (const auto& sends : model::kWhoSends) {
      const std::string what = std::string(exchange.name) + ", " + text_of(sends) + ", harsh";
      Options options = harsh(exchanging(exchange, sends));
      is_small(sends) ? expect_no_fault(what, options) : expect_no_fault_at_random(what, options);
      options.retries = 1;  // an attempt for which there are no queue pairs is followed by another one
      is_small(sends) ? expect_no_fault(what + ", a retry", options)
                      : expect_no_fault_at_random(what + ", a retry", options);
    }
  }
}
END_TEST

// ---- X queues: one process sends to several of another node over one queue pair

/// As many channels break as there are retries: all connections come up, over one target.
START_TEST(all_connect_while_retries_last) {
  for (std::uint8_t losses = 0; losses <= (model::is_deep() ? 2 : 1); ++losses) {
    Options options = to_several({1, 1, 0});
    options.losses = losses;
    options.retries = losses;
    options.one_target = true;
    expect_no_fault("X queues, 2 peers, " + std::to_string(losses) + " losses", options);
    options.plans[0].sends[3] = 1;
    options.processes = 4;
    const std::string what = "X queues, 3 peers, " + std::to_string(losses) + " losses";
    losses == 0 ? expect_no_fault_of(what, options) : expect_no_fault_at_random(what, options);
  }
}
END_TEST

/// One of the peers closes whenever it likes, and takes the target along or not: the other connection comes up.
START_TEST(a_target_goes) {
  Options options = to_several({1, 1, 0});
  options.plans[1].closes[0] = 1;
  options.retries = 1;
  expect_no_fault("X queues, a peer closes", options);
  if (model::is_deep()) {
    options.losses = 1;
    options.retries = 2;
    expect_no_fault("X queues, a peer closes, 1 loss", options);
    options = to_several({1, 1, 1});
    options.plans[1].closes[0] = 1;
    options.retries = 1;
    expect_no_fault("X queues, 3 peers, one closes", options);
  }
}
END_TEST

/// Our main thread closes one connection, whatever its part, and connects again.
START_TEST(a_user_goes) {
  Options options = to_several({2, 1, 0});
  options.plans[0].closes[1] = 1;
  options.retries = 1;
  expect_no_fault_of("X queues, we close", options);
  options.failures = 1;
  options.nothing_fails = false;
  expect_no_fault_of("X queues, we close, and verbs fail", options);
}
END_TEST

/// Messages go both ways, each over a connection of its own, and one process closes both and connects again.
START_TEST(x_queues_both_ways) {
  for (const Sends& sends : {Sends{1, 1}, Sends{2, 1}, Sends{1, 2}}) {
    Options options = with(sends);
    options.cpc = cpc::kXoob;
    options.plans[0].closes[1] = 1;
    options.retries = 1;
    const std::string what = "X queues, " + text_of(sends) + ", we close";
    sends == Sends{1, 1} ? expect_no_fault(what, options) : expect_no_fault_of(what, options);
  }
}
END_TEST

/// Worse: both ends close, a channel breaks and there are no retries. Everybody is told.
START_TEST(everybody_is_told_of_x_queues) {
  Options options = to_several({1, 1, 0});
  options.plans[0].closes[1] = 1;
  options.plans[2].closes[0] = 1;
  options.losses = 1;
  options.failures = 1;
  options.nothing_fails = false;
  expect_no_fault_of("X queues, harsh", options);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  const auto run = model::is_deep() ? test::run_computations<3600> : test::run_computations<300>;
  return run(
      "connections",
      {both_connect_while_retries_last, requests_wait_for_their_turn, who_lets_others_go_first_does_not_come_back,
       everybody_is_told, one_side_closes_and_connects_again, both_close_and_connect_again,
       queues_of_a_link_keep_no_order_between_them, idle_links_are_given_up, processes_end_in_order,
       processes_end_without_a_goodbye, both_become_clear_to_send, everybody_is_told_of_an_exchange,
       all_connect_while_retries_last, a_target_goes, a_user_goes, x_queues_both_ways, everybody_is_told_of_x_queues});
}
