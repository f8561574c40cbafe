// SPDX-License-Identifier: BSD-3-Clause
//
// Faults of main threads that the checker must find: of the table of endpoints, and mistakes in what they say and do.
#include "test/model/faults.h"
#include "test/unit/check_main.h"

namespace fabric::model {
namespace {

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
  bend_endpoint_guards([](EndpointGuards& guards) { guards.may_speak_first = true; });
  expect_fault_of("the passive side of iWARP sends first", both_exchange(2), "sends first");
}
END_TEST

START_TEST(both_sides_of_iwarp_listen) {
  bend_endpoint_guards([](EndpointGuards& guards) { guards.may_speak_first = false; });
  expect_fault_of("both sides of iWARP listen", both_exchange(2), "never comes");
}
END_TEST

/// CTS lets an endpoint in this state send.
void revive(EndpointState revived) {
  bent_endpoint_step = [revived](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    return state == revived && event == EndpointEvent::kCtsArrived
               ? EndpointStep{Outcome::kTransition, EndpointState::kConnected, {EndpointAction::kStart}, {}}
               : table_endpoint_step(state, event, guards);
  };
}

/// Its Close is still on its way to the progress thread when CTS is polled.
START_TEST(cts_revives_a_closed_endpoint) {
  revive(EndpointState::kClosing);
  Options options = one_closes(both_exchange(2));
  options.commands_wait = true;
  expect_fault_of("CTS revives a closed endpoint", options, "told twice that a peer is gone");
}
END_TEST

START_TEST(cts_revives_a_failed_endpoint) {
  revive(EndpointState::kFailed);
  Options options = both_exchange();
  options.losses = 1;
  options.commands_wait = true;
  options.nothing_fails = false;
  expect_fault_of("CTS revives a failed endpoint", options, "told twice that a peer is gone");
}
END_TEST

// ---- The end of a link

START_TEST(goodbye_not_heard) {
  leave_out(EndpointEvent::kGoodbyeArrived);
  Options options = both_exchange();
  options.plans[0].leaves = 1;
  expect_fault_of("goodbye is not heard", options, "cannot be reached");
}
END_TEST

/// Process 0 asks whether the link may go, and has something to send later; so has its peer, if it `answers`.
Options one_rests(bool answers) {
  Options options = with(answers ? Sends{1, 2} : Sends{2, 0});
  options.plans[0].rests[1] = 1;
  options.retries = 1;
  return options;
}

START_TEST(who_is_asked_to_rest_says_nothing) {
  leave_out(EndpointEvent::kRestAsked);
  expect_fault_of("nobody answers who asks to rest", one_rests(false), "never comes");
}
END_TEST

START_TEST(who_is_needed_does_not_hear_it) {
  leave_out(EndpointEvent::kRestDeclined);
  expect_fault_of("that the link is needed is not heard", one_rests(true), "never comes");
}
END_TEST

/// Two applications that agree to close: what one has sent over the second queue has arrived before its CTS over the first.
START_TEST(who_leaves_does_not_wait_for_cts) {
  for (const std::size_t which : {0U, 1U}) {  // on iWARP who is told of CTS first sends its own second
    bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
      return state == EndpointState::kCtsSent && event == EndpointEvent::kRemoved
                 ? table_endpoint_step(EndpointState::kCtsAwaited, event, guards)
                 : table_endpoint_step(state, event, guards);
    };
    Options options = exchanging(kExchanges[which], {0, 1});
    options.queues = 2;
    options.plans[0].closes[1] = 1;
    options.plans[1].closes[0] = 1;
    options.closes_agreed = true;
    options.retries = 1;
    expect_fault_of("who leaves does not wait for CTS", options, "cannot be reached");
  }
}
END_TEST

/// The same with a CPC that exchanges none: its messages have arrived before we hear that the link carries.
START_TEST(who_leaves_does_not_wait_for_its_connection) {
  bend_endpoint_guards([](EndpointGuards& guards) { guards.heard = false; });
  Options options = closing_between({2, 0}, 1);
  options.plans[1].closes[0] = 1;
  options.closes_agreed = true;
  expect_fault_of("who leaves does not wait for its connection", options, "cannot be reached");
}
END_TEST

START_TEST(end_without_goodbye_ignored) {
  leave_out(EndpointEvent::kLost);
  Options options = both_exchange();
  options.plans[0].exits = 1;
  options.nothing_fails = false;
  expect_fault_of("the end without a goodbye is ignored", options, "never comes");
}
END_TEST

// ---- One connection after the other

START_TEST(superseded_link_kept) {
  leave_out(EndpointEvent::kSuperseded);
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
  Options options = one_closes(exchanging(kExchanges[0], {2, 1}), 2);
  options.retries = 1;
  const std::string what = "what waits is forgotten with a superseded link";
  expect_fault(what, options, "never comes");
  bent_endpoint_step = nullptr;
  expect_no_fault_on(2000, what + ", put right, at random", options);
}
END_TEST

// ---- Connections that break

Options breaking(Options options) {
  options.breaks = 1;
  options.retries = 1;
  options.heals = true;
  return options;
}

/// The next link carries what is sent from now on, before anybody knows what has arrived.
START_TEST(counts_are_not_exchanged) {
  bend_endpoint_guards([](EndpointGuards& guards) { guards.healing = false; });
  expect_fault_of("counts are not exchanged", breaking(with({1, 0})), "never comes");
}
END_TEST

START_TEST(what_has_broken_is_not_made_anew) {
  bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    EndpointStep step = table_endpoint_step(state, event, guards);
    const bool breaks =
        std::find(step.actions.begin(), step.actions.end(), EndpointAction::kBreakOff) != step.actions.end();
    if (breaks) {
      std::replace(step.actions.begin(), step.actions.end(), EndpointAction::kConnectAgain, EndpointAction::kNone);
    }
    return step;
  };
  expect_fault_of("what has broken is not made anew", breaking(with({1, 0})), "never comes");
}
END_TEST

/// What is under way is given up, as by a link that nobody misses.
START_TEST(what_is_under_way_is_not_kept) {
  bent_endpoint_step = [](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    EndpointStep step = table_endpoint_step(state, event, guards);
    std::replace(step.actions.begin(), step.actions.end(), EndpointAction::kBreakOff, EndpointAction::kRetire);
    std::replace(step.actions.begin(), step.actions.end(), EndpointAction::kConnectAgain, EndpointAction::kConnect);
    return step;
  };
  expect_fault_of("what is under way is not kept", breaking(with({1, 0})), "a message fails");
}
END_TEST

/// A message that has arrived over the last link goes by another port once more.
START_TEST(what_is_told_by_another_port_is_not_final) {
  Options options = breaking(with({2, 2}));
  options.other_way = true;
  options.mistake = Mistake::kClaimsToKnow;
  const Found found = on_progress_thread([&](event_base* loop) { return wander(options, loop, 1, 30000); });
  std::printf("what is told by another port is not final: %s, after\n%s", found.fault.c_str(), found.way.c_str());
  ck_assert_msg(!found.fault.empty(), "it is not found");
  options.mistake = Mistake::kNone;
  const Found right = on_progress_thread([&](event_base* loop) { return wander(options, loop, 1, 30000); });
  ck_assert_msg(right.fault.empty(), "put right: %s, after\n%s", right.fault.c_str(), right.way.c_str());
}
END_TEST

// ---- Mistakes

void expect_mistake(const char* what, Options options, Mistake mistake, const std::string& expected) {
  options.mistake = mistake;
  expect_fault_of(what, options, expected);
}

START_TEST(end_of_an_older_link_ends_the_newest) {
  expect_mistake("the end of an older link ends the newest", closing_between({2, 0}, 1), Mistake::kFlushingOfNewest,
                 "Destroy without Close");
}
END_TEST

START_TEST(main_threads_make_mistakes) {
  expect_mistake("CTS without receives", both_exchange(), Mistake::kReceivesNotPosted, "before the peer has posted");
  expect_mistake("ReceivesPosted without receives", both(), Mistake::kReceivesNotPosted, "before the peer has posted");
  expect_mistake("packets twice", both(), Mistake::kSentTwice, "arrived twice");
  expect_mistake("numbers of the link before", one_closes(both()), Mistake::kOldNumber, "stuck");
  expect_mistake("Destroy before Flushing", one_closes(both()), Mistake::kDestroyEarly, "the product aborts");
  expect_mistake("no Close", one_closes(both()), Mistake::kCloseLost, "stuck");
  expect_mistake("no Flushing", one_closes(both()), Mistake::kFlushingLost, "stuck");
}
END_TEST

}  // namespace
}  // namespace fabric::model

int main() {
  using namespace fabric::model;
  return fabric::test::run_computations<120>(
      "endpoint_faults",
      {sending_without_waiting_for_cts, passive_side_of_iwarp_sends_first, both_sides_of_iwarp_listen,
       cts_revives_a_closed_endpoint, cts_revives_a_failed_endpoint, goodbye_not_heard,
       who_is_asked_to_rest_says_nothing, who_is_needed_does_not_hear_it, who_leaves_does_not_wait_for_cts,
       who_leaves_does_not_wait_for_its_connection, end_without_goodbye_ignored, superseded_link_kept,
       wish_forgotten_with_a_superseded_link, counts_are_not_exchanged, what_has_broken_is_not_made_anew,
       what_is_under_way_is_not_kept, what_is_told_by_another_port_is_not_final, end_of_an_older_link_ends_the_newest,
       main_threads_make_mistakes});
}
