// SPDX-License-Identifier: BSD-3-Clause
//
// Faults that the checker must find: rows and guards of the tables that are wrong, actions that are left out, and main
// threads that make mistakes. Compiled against tables with a hook (test/model/bent).
#include <algorithm>
#include <string>

#include "btl_fabric/peer/endpoint_table.h"
#include "cpc/core/connection_table.h"
#include "cpc/oob/xoob.h"
#include "cpc/queue_pairs/xrc_sender_table.h"
#include "test/model/explore.h"
#include "test/unit/check_main.h"

namespace fabric {
namespace {

using cpc::Action;
using cpc::Event;
using cpc::Guards;
using cpc::SenderEvent;
using cpc::SenderState;
using cpc::SenderStep;
using cpc::State;
using cpc::Step;
using model::exchanging;
using model::Mistake;
using model::Options;
using model::with;

/// Both want to send, and `losses` channels may break.
Options both(std::uint8_t losses = 0) {
  Options options = with({1, 1});
  options.losses = losses;
  options.retries = losses;
  return options;
}
Options both_of_which_one_closes() {
  Options options = both();
  options.plans[0].closes[1] = 1;
  options.nothing_fails = false;
  return options;
}
Options both_exchange(std::size_t which = 0) {
  return exchanging(model::kExchanges[which], {1, 1});
}

/// It must find a fault whose text has `expected` in it, and none in the same worlds if nothing is bent.
void expect_fault_of(const std::string& what, Options options, const std::string& expected) {
  model::expect_fault(what, options, expected);
  cpc::bent_step = nullptr;
  bent_endpoint_step = nullptr;
  cpc::bent_sender_step = nullptr;
  options.mistake = Mistake::kNone;
  model::expect_no_fault(what + ", put right", options);
}

/// The table without an action.
Step without(Action action, State state, Event event, const Guards& guards) {
  Step step = cpc::table_step(state, event, guards);
  std::replace(step.actions.begin(), step.actions.end(), action, Action::kNone);
  return step;
}

// ---- Guards

START_TEST(both_claim_precedence) {
  for (const bool exchange : {false, true}) {
    cpc::bent_step = [](State state, Event event, const Guards& guards) {
      Guards bent = guards;
      bent.peer_has_precedence = false;
      return cpc::table_step(state, event, bent);
    };
    expect_fault_of(exchange ? "CTS: both claim precedence" : "both claim precedence",
                    exchange ? both_exchange() : both(), "claims precedence for its request");
  }
}
END_TEST

START_TEST(nobody_claims_precedence) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    Guards bent = guards;
    bent.peer_has_precedence = true;
    return cpc::table_step(state, event, bent);
  };
  expect_fault_of("nobody claims precedence", both(), "cannot be reached");
}
END_TEST

START_TEST(repeated_requests_not_recognised) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    Guards bent = guards;
    bent.same_ends = false;
    return cpc::table_step(state, event, bent);
  };
  expect_fault_of("repeated requests not recognised", both(1), "cannot be reached");
}
END_TEST

START_TEST(retries_never_made) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    Guards bent = guards;
    bent.time_left = false;
    return cpc::table_step(state, event, bent);
  };
  expect_fault_of("retries never made", both(1), "cannot be reached");
}
END_TEST

START_TEST(lost_channel_not_noticed) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    Guards bent = guards;
    bent.channel_up = true;
    return cpc::table_step(state, event, bent);
  };
  Options options = both(1);
  options.retries = 0;
  options.nothing_fails = false;
  expect_fault_of("lost channel not noticed", options, "never comes");
}
END_TEST

START_TEST(old_requests_adopted) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    Guards bent = guards;
    bent.old_attempt = false;
    return cpc::table_step(state, event, bent);
  };
  expect_fault_of("requests of attempts that were given up are adopted", both(2), "cannot be reached");
}
END_TEST

START_TEST(passive_wish_forgotten) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    Guards bent = guards;
    bent.wanted = false;
    return cpc::table_step(state, event, bent);
  };
  Options options = both_exchange();
  options.losses = 1;
  options.nothing_fails = false;
  expect_fault_of("the wish of a passive side forgotten", options, "never comes");
}
END_TEST

// ---- Actions

START_TEST(handshake_buffer_not_posted) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    return without(Action::kPostHandshake, state, event, guards);
  };
  expect_fault_of("handshake buffer not posted", both_exchange(), "before the peer has posted");
}
END_TEST

START_TEST(peer_that_left_not_told) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    return without(Action::kTellPeerLeft, state, event, guards);
  };
  Options options = both_exchange();
  options.plans[0].closes[1] = 1;
  options.nothing_fails = false;
  expect_fault_of("peer that left not told", options, "never comes");
}
END_TEST

START_TEST(queue_pairs_of_a_failed_attempt_kept) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    Step step = cpc::table_step(state, event, guards);
    if (event == Event::kRetryTimer) {
      step.actions = {Action::kOpenChannel};
    }
    return step;
  };
  Options options = both_exchange();
  options.losses = 1;
  options.retries = 1;
  options.breaks_until_reply = true;
  expect_fault_of("queue pairs of a failed attempt kept", options, "whose attempt has failed");
}
END_TEST

START_TEST(closed_connection_not_flushed) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    return without(Action::kTellFlushing, state, event, guards);
  };
  Options options = both();
  options.plans[0].closes[1] = 1;
  options.nothing_fails = false;
  expect_fault_of("Flushing is not said", options, "in state Closing");
}
END_TEST

// ---- The exchange of CTS

START_TEST(sending_without_waiting_for_cts) {
  bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    EndpointStep step = table_endpoint_step(state, event, guards);
    if (event == EndpointEvent::kLinked && step.next == EndpointState::kCtsSent) {
      step.actions[2] = EndpointAction::kStart;
    }
    return step;
  };
  expect_fault_of("sending without waiting for CTS", both_exchange(), "before the peer has posted");
}
END_TEST

START_TEST(passive_side_of_iwarp_sends_first) {
  bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    EndpointGuards bent = guards;
    bent.may_speak_first = true;
    return table_endpoint_step(state, event, bent);
  };
  expect_fault_of("the passive side of iWARP sends first", both_exchange(2), "sends first");
}
END_TEST

START_TEST(both_sides_of_iwarp_listen) {
  bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    EndpointGuards bent = guards;
    bent.may_speak_first = false;
    return table_endpoint_step(state, event, bent);
  };
  expect_fault_of("both sides of iWARP listen", both_exchange(2), "never comes");
}
END_TEST

/// The table of endpoints, where CTS lets an endpoint in this state send.
EndpointStep reviving(EndpointState revived, EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
  return state == revived && event == EndpointEvent::kCtsArrived
             ? EndpointStep{Outcome::kTransition, EndpointState::kConnected, {EndpointAction::kStart}, {}}
             : table_endpoint_step(state, event, guards);
}

/// Its Close is still on its way to the progress thread when CTS is polled.
START_TEST(cts_revives_a_closed_endpoint) {
  for (const std::size_t which : {0U, 1U}) {
    bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
      return reviving(EndpointState::kClosing, state, event, guards);
    };
    Options options = both_exchange(which);
    options.plans[0].closes[1] = 1;
    options.commands_wait = true;
    options.nothing_fails = false;
    expect_fault_of("CTS revives a closed endpoint", options, "in state Closing");
  }
}
END_TEST

START_TEST(cts_revives_a_failed_endpoint) {
  bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    return reviving(EndpointState::kFailed, state, event, guards);
  };
  Options options = both_exchange();
  options.losses = 1;
  options.commands_wait = true;
  options.nothing_fails = false;
  expect_fault_of("CTS revives a failed endpoint", options, "told twice that a peer is gone");
}
END_TEST

// ---- The end of a link

/// The table of endpoints, where this event is ignored.
EndpointStep ignoring(EndpointEvent ignored, EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
  return event == ignored ? EndpointStep{Outcome::kIgnored, state, {}, {}} : table_endpoint_step(state, event, guards);
}

START_TEST(goodbye_not_heard) {
  bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    return ignoring(EndpointEvent::kGoodbyeArrived, state, event, guards);
  };
  Options options = both_exchange();
  options.plans[0].leaves = 1;
  expect_fault_of("goodbye is not heard", options, "cannot be reached");
}
END_TEST

START_TEST(end_without_goodbye_ignored) {
  bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    return ignoring(EndpointEvent::kLost, state, event, guards);
  };
  Options options = both_exchange();
  options.plans[0].exits = 1;
  options.nothing_fails = false;
  expect_fault_of("the end without a goodbye is ignored", options, "never comes");
}
END_TEST

// ---- One connection after the other

/// Process 0 closes between two of its messages.
Options closing_between(const model::Sends& sends, std::uint8_t retries) {
  Options options = with(sends);
  options.plans[0].closes[1] = 1;
  options.retries = retries;
  return options;
}

START_TEST(superseded_link_kept) {
  bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    return ignoring(EndpointEvent::kSuperseded, state, event, guards);
  };
  expect_fault_of("a superseded link is kept", closing_between({2, 0}, 1), "a connection is made twice");
}
END_TEST

/// What waits asks for a connection of its own: the peer may close the one that it has just begun.
START_TEST(wish_forgotten_with_a_superseded_link) {
  bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    EndpointGuards bent = guards;
    bent.missed = bent.missed && event != EndpointEvent::kSuperseded;
    return table_endpoint_step(state, event, bent);
  };
  Options options = exchanging(model::kExchanges[0], {2, 1});
  options.plans[0].closes[1] = 2;
  options.retries = 1;
  options.nothing_fails = false;
  const std::string what = "what waits is forgotten with a superseded link";
  model::expect_fault(what, options, "never comes");
  bent_endpoint_step = nullptr;
  model::expect_no_fault_on(2000, what + ", put right, at random", options);
}
END_TEST

START_TEST(newer_incarnations_refused) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    Guards bent = guards;
    bent.newer = false;
    return cpc::table_step(state, event, bent);
  };
  expect_fault_of("newer incarnations are refused", closing_between({2, 0}, 1), "cannot be reached");
}
END_TEST

START_TEST(older_incarnations_taken_for_newer) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    Guards bent = guards;
    bent.newer = bent.newer || bent.older;
    bent.older = false;
    return cpc::table_step(state, event, bent);
  };
  expect_fault_of("older incarnations are taken for newer ones", closing_between({2, 1}, 2), "cannot be reached");
}
END_TEST

START_TEST(end_of_an_older_link_ends_the_newest) {
  Options options = closing_between({2, 0}, 1);
  options.mistake = Mistake::kFlushingOfNewest;
  expect_fault_of("the end of an older link ends the newest", options, "Destroy without Close");
}
END_TEST

// ---- Senders that several connections share

Options to_two() {
  Options options;
  options.cpc = cpc::kXoob;
  options.processes = 3;
  options.plans[0].sends = {0, 1, 1};
  options.retries = 1;
  return options;
}
/// As if it had a connection of its own: one that only receives goes on to, and the target stays.
Options to_two_of_which_one_closes() {
  bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    EndpointGuards sends_too = guards;
    sends_too.receives = false;
    return table_endpoint_step(state, event, sends_too);
  };
  Options options = to_two();
  options.receivers_stay = false;
  options.plans[1].closes[0] = 1;
  return options;
}
Options to_two_of_which_we_close_one() {
  Options options = to_two();
  options.plans[0].closes[1] = 1;
  return options;
}

START_TEST(nobody_waits_in_line) {
  cpc::bent_sender_step = [](SenderState state, SenderEvent event, bool waiting) {
    const bool waits = state == SenderState::kConnecting && event == SenderEvent::kWanted;
    return cpc::table_sender_step(waits ? SenderState::kUnconnected : state, event, waiting);
  };
  expect_fault_of("nobody waits in line", to_two(), "cannot be reached");
}
END_TEST

START_TEST(sender_without_a_target_not_retired) {
  cpc::bent_sender_step = [](SenderState state, SenderEvent event, bool waiting) {
    return event == SenderEvent::kTargetGone ? SenderStep{cpc::SenderOutcome::kTransition, state, {}, {}}
                                             : cpc::table_sender_step(state, event, waiting);
  };
  expect_fault_of("a sender without a target is not retired", to_two_of_which_one_closes(), "cannot be reached");
}
END_TEST

START_TEST(sender_not_told_of_its_target) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    return without(Action::kRetireSender, state, event, guards);
  };
  expect_fault_of("a sender is not told that its target is gone", to_two_of_which_one_closes(), "cannot be reached");
}
END_TEST

START_TEST(nobody_takes_over) {
  cpc::bent_sender_step = [](SenderState state, SenderEvent event, bool waiting) {
    return event == SenderEvent::kOwnerFailed
               ? SenderStep{cpc::SenderOutcome::kTransition, SenderState::kUnconnected, {}, {}}
               : cpc::table_sender_step(state, event, waiting);
  };
  expect_fault_of("nobody takes over", to_two_of_which_we_close_one(), "never comes");
}
END_TEST

START_TEST(line_is_not_woken) {
  cpc::bent_sender_step = [](SenderState state, SenderEvent event, bool waiting) {
    SenderStep step = cpc::table_sender_step(state, event, waiting);
    if (event == SenderEvent::kOwnerConnected) {
      step.actions = {};
    }
    return step;
  };
  expect_fault_of("the line is not woken", to_two(), "never comes");
}
END_TEST

START_TEST(who_left_stays_in_line) {
  cpc::bent_sender_step = [](SenderState state, SenderEvent event, bool waiting) {
    SenderStep step = cpc::table_sender_step(state, event, waiting);
    if (event == SenderEvent::kReleased) {
      step.actions = {};
    }
    return step;
  };
  expect_fault_of("who left stays in line", to_two_of_which_we_close_one(), "aborts when all processes end");
}
END_TEST

START_TEST(a_dead_sender_is_joined) {
  cpc::bent_sender_step = [](SenderState state, SenderEvent event, bool waiting) {
    SenderStep step = cpc::table_sender_step(state, event, waiting);
    if (event == SenderEvent::kLastReleased) {
      step.actions = {};
    }
    return step;
  };
  expect_fault_of("a dead sender is joined", to_two_of_which_we_close_one(), "aborts");
}
END_TEST

// ---- Main threads

void expect_mistake(const char* what, Options options, Mistake mistake, const std::string& expected) {
  options.mistake = mistake;
  expect_fault_of(what, options, expected);
}

START_TEST(main_threads_make_mistakes) {
  expect_mistake("CTS without receives", both_exchange(), Mistake::kReceivesNotPosted, "before the peer has posted");
  expect_mistake("ReceivesPosted without receives", both(), Mistake::kReceivesNotPosted, "before the peer has posted");
  expect_mistake("packets twice", both(), Mistake::kSentTwice, "arrived twice");
  expect_mistake("numbers of the link before", both_of_which_one_closes(), Mistake::kOldNumber, "stuck");
  expect_mistake("Destroy before Flushing", both_of_which_one_closes(), Mistake::kDestroyEarly, "the product aborts");
  expect_mistake("no Close", both_of_which_one_closes(), Mistake::kCloseLost, "stuck");
  expect_mistake("no Flushing", both_of_which_one_closes(), Mistake::kFlushingLost, "stuck");
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("connection_faults",
                         {both_claim_precedence,
                          nobody_claims_precedence,
                          repeated_requests_not_recognised,
                          retries_never_made,
                          lost_channel_not_noticed,
                          old_requests_adopted,
                          passive_wish_forgotten,
                          handshake_buffer_not_posted,
                          peer_that_left_not_told,
                          queue_pairs_of_a_failed_attempt_kept,
                          closed_connection_not_flushed,
                          sending_without_waiting_for_cts,
                          passive_side_of_iwarp_sends_first,
                          both_sides_of_iwarp_listen,
                          cts_revives_a_closed_endpoint,
                          cts_revives_a_failed_endpoint,
                          goodbye_not_heard,
                          end_without_goodbye_ignored,
                          superseded_link_kept,
                          wish_forgotten_with_a_superseded_link,
                          newer_incarnations_refused,
                          older_incarnations_taken_for_newer,
                          end_of_an_older_link_ends_the_newest,
                          nobody_waits_in_line,
                          sender_without_a_target_not_retired,
                          sender_not_told_of_its_target,
                          nobody_takes_over,
                          line_is_not_woken,
                          who_left_stays_in_line,
                          a_dead_sender_is_joined,
                          main_threads_make_mistakes},
                         120);
}
