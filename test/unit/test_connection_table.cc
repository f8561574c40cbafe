// SPDX-License-Identifier: BSD-3-Clause
//
// The connection table as a function: single steps, and rules that hold for all of it. That every cell has exactly one
// row is checked when the header is compiled; what two peers make of it, in test/model.
#include <string>
#include <vector>

#include "cpc/core/connection_table.h"
#include "cpc/queue_pairs/xrc_sender_table.h"
#include "test/unit/check_main.h"
#include "test/unit/guards_of.h"

namespace fabric::cpc {
namespace {

using enum State;
using enum Event;
using enum Action;

/// Calls `check(state, event, guards, step)` for every possible combination.
template <class Check>
void for_every_cell(Check check) {
  for (std::size_t state = 0; state < kStates; ++state) {
    for (std::size_t event = 0; event < kEvents; ++event) {
      for (unsigned bits = 0; bits < 1U << kGuardList.size(); ++bits) {
        if (detail::possible(bits, ~0U)) {
          const auto from = static_cast<State>(state);
          const auto what = static_cast<Event>(event);
          const Guards guards = test::guards_of(kGuardList, bits);
          check(from, what, guards, step(from, what, guards));
        }
      }
    }
  }
}

/// A row as it is expected to be.
struct Expected {
  State from;
  Event event;
  Guards guards;
  State to;
  std::vector<Action> does{};      ///< all of these
  std::vector<Action> does_not{};  ///< none of these
};

std::string text_of(State state, Event event) {
  return std::string(to_string(event)).append(" in ").append(to_string(state));
}

void expect(const std::vector<Expected>& rows) {
  for (const Expected& row : rows) {
    const Step result = step(row.from, row.event, row.guards);
    const std::string what = text_of(row.from, row.event);
    ck_assert_msg(result.outcome == Outcome::kTransition && result.next == row.to, "%s leads to %s", what.c_str(),
                  std::string(to_string(result.next)).c_str());
    for (const Action action : row.does) {
      ck_assert_msg(result.does(action), "%s lacks %s", what.c_str(), std::string(to_string(action)).c_str());
    }
    for (const Action action : row.does_not) {
      ck_assert_msg(!result.does(action), "%s does %s", what.c_str(), std::string(to_string(action)).c_str());
    }
  }
}

void expect_error(State state, Event event, const Guards& guards) {
  ck_assert_msg(step(state, event, guards).outcome == Outcome::kProtocolError, "%s is no error",
                text_of(state, event).c_str());
}

START_TEST(outcomes_are_explained) {
  for_every_cell([](State state, Event, const Guards&, const Step& result) {
    if (result.outcome == Outcome::kTransition) {
      ck_assert(result.actions[0] != kNone);
      return;
    }
    ck_assert(!result.why.empty());
    if (result.outcome == Outcome::kIgnored) {
      ck_assert(result.next == state && result.actions[0] == kNone);
    } else {
      ck_assert(result.next == kClosing && result.does(kTellFailed));
    }
  });
}
END_TEST

START_TEST(upcalls_match_the_states_entered) {
  for_every_cell([](State state, Event event, const Guards& guards, const Step& result) {
    const auto enters = [&](State entered) { return result.next == entered && state != entered; };
    const bool usable_before = state == kConfirming || state == kConnected;
    const bool usable_after = result.next == kConfirming || result.next == kConnected;
    ck_assert(result.does(guards.exchanges ? kTellLinked : kTellConnected) == (usable_after && !usable_before));
    ck_assert(!result.does(guards.exchanges ? kTellConnected : kTellLinked));
    ck_assert(result.does(kTellFlushing) == (enters(kClosing) || result.outcome == Outcome::kProtocolError));
    ck_assert(!result.does(kTellFlushing) || result.does(kFlushQueuePairs) || state == kClosed);
    const bool makes = result.does(kMakeQueuePairs);
    if (guards.exchanges) {
      // A set for every attempt, with its handshake buffer posted before the peer can know of it.
      ck_assert(result.does(kDestroyQueuePairs) == (enters(kClosed) || (makes && state != kClosed)));
      ck_assert(makes == result.does(kPostHandshake));
      const bool never =  // of such a connection
          state == kPosting || state == kQueued || state == kConfirming;
      ck_assert(!result.does(kOpenChannel) || makes || never);
    } else if (guards.outgoing && (enters(kQueued) || state == kPosting)) {
      // Who joins a sender asks for a turn at once, and has no other share.
      ck_assert(makes == result.does(kWantSender));
      ck_assert(result.does(kDestroyQueuePairs) == (state == kRequestSent));
      ck_assert(!result.does(kOpenChannel) || state == kPosting);
    } else {
      ck_assert(result.does(kDestroyQueuePairs) == (enters(kClosed) || enters(kQueued)));
      ck_assert(makes ==
                ((state == kClosed && result.does(kAskForReceives) && (!guards.outgoing || event == kRequestArrived)) ||
                 result.does(kWantSender)));
      ck_assert(!result.does(kPostHandshake) && !result.does(kTellPeerLeft));
    }
  });
}
END_TEST

/// Whatever state a connection is in, a newer request gets through, and an older one or one of an attempt that was given up
/// changes nothing.
START_TEST(newer_requests_win_and_older_ones_do_nothing) {
  for_every_cell([](State state, Event event, const Guards& guards, const Step& result) {
    if (event != kRequestArrived || state == kQueued || state == kClosing) {
      return;
    }
    const bool committed = state == kAnswering || state == kReplySent || state == kConfirming || state == kConnected;
    ck_assert(result.outcome == Outcome::kTransition);
    if (committed) {
      ck_assert(result.does(kHandOver) == guards.newer);
      ck_assert(!guards.newer || (result.next == kClosing && !result.does(kSendRefusal)));
      ck_assert(result.does(kRefuseOutdated) == guards.older);
      ck_assert(guards.newer || result.next == state);
    } else if (guards.newer && guards.peer_has_precedence) {
      ck_assert(result.does(kAdoptChannel));
    }
    ck_assert(!guards.old_attempt || state == kClosed || !committed || !result.does(kAdoptChannel));
  });
}
END_TEST

/// Who is wanted does not fail because the peer has given up, or does not come back: a newer connection takes its place.
START_TEST(what_is_wanted_starts_over) {
  const Guards time{.time_left = true};
  const Guards wanted{.time_left = true, .wanted = true};
  expect({{kAnswering, kOutdatedArrived, time, kClosing, {kTellFailed}},
          {kReplySent, kOutdatedArrived, time, kClosing, {kTellFailed}},
          {kAnswering, kOutdatedArrived, wanted, kClosing, {kStartOver}, {kTellFailed}},
          {kReplySent, kOutdatedArrived, wanted, kClosing, {kStartOver}, {kTellFailed}},
          {kReplySent, kHandshakeTimer, wanted, kClosing, {kStartOver}},
          {kRequestSent, kOutdatedArrived, wanted, kRequestSent, {kRenewIncarnation}}});
}
END_TEST

/// Whoever waits for its turn may end meanwhile, which nobody is told: no channel, no waiting without a limit.
START_TEST(a_timer_runs_while_the_peer_pauses) {
  const Guards pauses{.peer_pauses = true};
  const Guards wanted{.wanted = true, .peer_pauses = true};
  expect({{kReplySent, kChannelLost, {}, kReplySent, {kStartHandshakeTimer}},
          {kReplySent, kPauseArrived, {}, kReplySent, {kStartHandshakeTimer}},
          {kAnswering, kReceivesPosted, pauses, kReplySent, {kStartHandshakeTimer}},
          {kAnswering, kReceivesPosted, wanted, kReplySent, {kStartHandshakeTimer}},
          {kReplySent, kConnectWanted, wanted, kReplySent, {kStartHandshakeTimer}}});
}
END_TEST

START_TEST(precedence_decides_crossing_requests) {
  const Guards theirs{.peer_has_precedence = true};
  expect({{kRequestSent, kRequestArrived, {}, kRequestSent, {kRefuseCollision}},
          {kRequestSent, kRequestArrived, theirs, kReplySent},
          {kRequestSent, kCollisionArrived, theirs, kYielded},
          {kYielded, kRequestArrived, theirs, kReplySent},
          {kPosting, kRequestArrived, {}, kAnswering},
          {kPosting, kRequestArrived, theirs, kAnswering}});
  expect_error(kRequestSent, kCollisionArrived, {});
}
END_TEST

START_TEST(repeated_requests_get_the_same_reply) {
  for (const State state : {kReplySent, kConnected}) {
    expect({{state, kRequestArrived, {.same_ends = true}, state, {kSendReply}},
            {state, kRequestArrived, {.old_attempt = true, .same_ends = true}, state, {kDropNewChannel}},
            {state, kRequestArrived, {}, state, {kRefuseOther}}});
  }
}
END_TEST

START_TEST(nobody_is_asked_for_receives_before_an_exchange) {
  const Guards exchanges{.exchanges = true};
  expect({{kClosed, kConnectWanted, exchanges, kRequestSent},
          {kRequestSent, kReplyArrived, exchanges, kConnected},
          {kClosed, kRequestArrived, exchanges, kReplySent, {kSendReply}},
          {kReplySent, kConfirmArrived, exchanges, kConnected},
          {kConnected, kChannelLost, exchanges, kConnected, {kTellPeerLeft}}});
}
END_TEST

/// A peer that gives up an attempt costs the passive side nothing, unless it wants the connection itself.
START_TEST(a_passive_side_forgets_what_it_did_not_want) {
  expect({{kReplySent, kChannelLost, {.exchanges = true}, kClosed},
          {kReplySent, kChannelLost, {.exchanges = true, .wanted = true}, kClosing},
          {kReplySent, kChannelLost, {.time_left = true, .exchanges = true, .wanted = true}, kRequestSent}});
}
END_TEST

/// The active side asks for its turn, and starts anew when the target is gone; the passive side tells of the target at once.
START_TEST(one_way_connections_share_a_sender) {
  const Guards outgoing{.outgoing = true};
  const Guards incoming{.incoming = true};
  const Guards named{.outgoing = true, .names_target = true};
  const Guards time{.time_left = true, .outgoing = true, .names_target = true};
  expect({{kPosting, kReceivesPosted, outgoing, kQueued, {kWantSender}},
          {kQueued, kSenderReady, outgoing, kRequestSent},
          {kRequestSent, kTargetArrived, outgoing, kRequestSent},
          {kRequestSent, kTargetGoneArrived, named, kClosing},
          {kRequestSent, kTargetGoneArrived, time, kQueued, {kRetireSender}},
          {kConfirming, kTargetGoneArrived, time, kClosing},
          {kClosed, kRequestArrived, incoming, kAnswering, {kSendTarget}},
          {kClosed, kLateRequestArrived, incoming, kClosed}});
  expect_error(kRequestSent, kTargetGoneArrived, outgoing);
  expect_error(kClosed, kConnectWanted, incoming);
}
END_TEST

START_TEST(one_connection_has_the_target_made) {
  ck_assert(sender_step(SenderState::kUnconnected, SenderEvent::kWanted, false).actions[0] == SenderAction::kMakeOwner);
  for (const bool waiting : {false, true}) {
    ck_assert(sender_step(SenderState::kConnecting, SenderEvent::kWanted, waiting).actions[0] == SenderAction::kPark);
    const SenderStep failed = sender_step(SenderState::kConnecting, SenderEvent::kOwnerFailed, waiting);
    ck_assert(failed.next == (waiting ? SenderState::kConnecting : SenderState::kUnconnected));
    ck_assert((failed.actions[0] == SenderAction::kNextOwner) == waiting);
  }
  ck_assert(sender_step(SenderState::kConnected, SenderEvent::kWanted, false).actions[0] == SenderAction::kGoOn);
  ck_assert(sender_step(SenderState::kConnected, SenderEvent::kTargetGone, false).next == SenderState::kRetired);
  for (std::size_t state = 0; state < kSenderStates; ++state) {
    for (std::size_t event = 0; event < kSenderEvents; ++event) {
      const SenderStep one = sender_step(static_cast<SenderState>(state), static_cast<SenderEvent>(event), false);
      ck_assert((one.outcome == Outcome::kProtocolError) == !one.why.empty());
    }
  }
}
END_TEST

START_TEST(attempts_end) {
  const Guards time{.time_left = true};
  expect({{kRequestSent, kChannelLost, time, kRequestSent},
          {kRequestSent, kChannelLost, {}, kClosing},
          {kYielded, kHandshakeTimer, time, kRequestSent},
          {kYielded, kHandshakeTimer, {}, kClosing},
          {kConfirming, kChannelLost, {}, kConnected}});
}
END_TEST

START_TEST(names_are_all_there) {
  ck_assert(to_string(kClosing) == "Closing");
  ck_assert(to_string(kLocalError) == "LocalError");
  ck_assert(to_string(kConfirmTaken) == "ConfirmTaken");
  ck_assert(to_string(kTellFlushing) == "TellFlushing");
  ck_assert(to_string(kPostHandshake) == "PostHandshake");
  ck_assert(to_string(kTellPeerLeft) == "TellPeerLeft");
  ck_assert(to_string(kStartRetryTimer) == "StartRetryTimer");
  ck_assert(to_string(kQueued) == "Queued");
  ck_assert(to_string(kTargetGoneArrived) == "TargetGoneArrived");
  ck_assert(to_string(kPauseArrived) == "PauseArrived");
  ck_assert(to_string(kHandshakeTimer) == "HandshakeTimer");
  ck_assert(to_string(kHandOver) == "HandOver");
  ck_assert(to_string(kStopTimer) == "StopTimer");
  ck_assert(to_string(kSendTarget) == "SendTarget");
  ck_assert(to_string(SenderState::kRetired) == "Retired");
  ck_assert(to_string(SenderEvent::kLastReleased) == "LastReleased");
  ck_assert(to_string(SenderAction::kFlush) == "Flush");
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite(
      "connection_table",
      {outcomes_are_explained, upcalls_match_the_states_entered, newer_requests_win_and_older_ones_do_nothing,
       what_is_wanted_starts_over, a_timer_runs_while_the_peer_pauses, precedence_decides_crossing_requests,
       repeated_requests_get_the_same_reply, nobody_is_asked_for_receives_before_an_exchange,
       a_passive_side_forgets_what_it_did_not_want, one_way_connections_share_a_sender,
       one_connection_has_the_target_made, attempts_end, names_are_all_there});
}
