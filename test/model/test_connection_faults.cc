// SPDX-License-Identifier: BSD-3-Clause
//
// Faults of the connection table that the checker must find: guards that are wrong, and actions that are left out.
#include "test/model/faults.h"
#include "test/unit/check_main.h"

namespace fabric::model {
namespace {

using cpc::Action;
using cpc::Event;
using cpc::Guards;
using cpc::State;

// ---- Guards

START_TEST(both_claim_precedence) {
  for (const bool exchange : {false, true}) {
    bend_guards([](Guards& guards) { guards.peer_has_precedence = false; });
    expect_fault_of(exchange ? "CTS: both claim precedence" : "both claim precedence",
                    exchange ? both_exchange() : both(), "claims precedence for its request");
  }
}
END_TEST

START_TEST(nobody_claims_precedence) {
  bend_guards([](Guards& guards) { guards.peer_has_precedence = true; });
  expect_fault_of("nobody claims precedence", both(), "waits for a limit");
}
END_TEST

START_TEST(repeated_requests_not_recognised) {
  bend_guards([](Guards& guards) { guards.same_ends = false; });
  expect_fault_of("repeated requests not recognised", both(1), "cannot be reached");
}
END_TEST

START_TEST(retries_never_made) {
  bend_guards([](Guards& guards) { guards.time_left = false; });
  expect_fault_of("retries never made", both(1), "cannot be reached");
}
END_TEST

START_TEST(lost_channel_not_noticed) {
  bend_guards([](Guards& guards) { guards.channel_up = true; });
  Options options = both(1);
  options.retries = 0;
  options.nothing_fails = false;
  expect_fault_of("lost channel not noticed", options, "never comes");
}
END_TEST

START_TEST(old_requests_adopted) {
  bend_guards([](Guards& guards) { guards.old_attempt = false; });
  expect_fault_of("requests of attempts that were given up are adopted", both(2), "cannot be reached");
}
END_TEST

START_TEST(passive_wish_forgotten) {
  bend_guards([](Guards& guards) { guards.wanted = false; });
  Options options = both_exchange();
  options.losses = 1;
  options.nothing_fails = false;
  expect_fault_of("the wish of a passive side forgotten", options, "never comes");
}
END_TEST

// ---- Actions

START_TEST(handshake_buffer_not_posted) {
  leave_out(Action::kPostHandshake);
  expect_fault_of("handshake buffer not posted", both_exchange(), "before the peer has posted");
}
END_TEST

START_TEST(peer_that_left_not_told) {
  leave_out(Action::kTellPeerLeft);
  expect_fault_of("peer that left not told", one_closes(both_exchange()), "never comes");
}
END_TEST

START_TEST(queue_pairs_of_a_failed_attempt_kept) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    cpc::Step step = cpc::table_step(state, event, guards);
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

/// Who has given its socket up for others closes before it is back, and nobody is told.
START_TEST(paused_opener_waited_for_without_a_limit) {
  cpc::bent_step = [](State state, Event event, const Guards& guards) {
    cpc::Step step = cpc::table_step(state, event, guards);
    if (event == Event::kPauseArrived || guards.peer_pauses) {
      std::replace(step.actions.begin(), step.actions.end(), Action::kStartHandshakeTimer, Action::kNone);
    }
    return step;
  };
  Options options = closing_between({1, 1}, 1);
  options.yields = 1;
  options.openers_go = true;
  expect_fault_of("a paused opener waited for without a limit", options, "never comes");
}
END_TEST

START_TEST(closed_connection_not_flushed) {
  leave_out(Action::kTellFlushing);
  expect_fault_of("Flushing is not said", one_closes(both()), "in state Closing");
}
END_TEST

// ---- One connection after the other

START_TEST(newer_incarnations_refused) {
  bend_guards([](Guards& guards) { guards.newer = false; });
  expect_fault_of("newer incarnations are refused", closing_between({2, 0}, 1), "cannot be reached");
}
END_TEST

START_TEST(older_incarnations_taken_for_newer) {
  bend_guards([](Guards& guards) {
    guards.newer = guards.newer || guards.older;
    guards.older = false;
  });
  expect_fault_of("older incarnations are taken for newer ones", closing_between({2, 1}, 2), "cannot be reached");
}
END_TEST

}  // namespace
}  // namespace fabric::model

int main() {
  using namespace fabric::model;
  return fabric::test::run_computations<120>(
      "connection_faults",
      {both_claim_precedence, nobody_claims_precedence, repeated_requests_not_recognised, retries_never_made,
       lost_channel_not_noticed, old_requests_adopted, passive_wish_forgotten, handshake_buffer_not_posted,
       peer_that_left_not_told, queue_pairs_of_a_failed_attempt_kept, paused_opener_waited_for_without_a_limit,
       closed_connection_not_flushed, newer_incarnations_refused, older_incarnations_taken_for_newer});
}
