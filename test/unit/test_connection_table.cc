// SPDX-License-Identifier: BSD-3-Clause
//
// The connection table as a function: single steps, and rules that hold for all of it. That every cell has exactly one
// row is checked when the header is compiled; what two peers make of it, in test/model.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "cpc/core/connection_table.h"
#include "cpc/core/trace.h"
#include "cpc/core/transition_history.h"
#include "cpc/queue_pairs/xrc_sender_table.h"
#include "test/unit/check_main.h"
#include "test/unit/guards_of.h"

namespace fabric::cpc {
namespace {

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

void expect(State from, Event event, const Guards& guards, State to) {
  const Step result = step(from, event, guards);
  ck_assert_msg(result.outcome == Outcome::kTransition && result.next == to, "%s in %s leads to %s",
                std::string(to_string(event)).c_str(), std::string(to_string(from)).c_str(),
                std::string(to_string(result.next)).c_str());
}

START_TEST(outcomes_are_explained) {
  for_every_cell([](State state, Event, const Guards&, const Step& result) {
    if (result.outcome == Outcome::kTransition) {
      ck_assert(result.actions[0] != Action::kNone);
      return;
    }
    ck_assert(!result.why.empty());
    if (result.outcome == Outcome::kIgnored) {
      ck_assert(result.next == state && result.actions[0] == Action::kNone);
    } else {
      ck_assert(result.next == State::kClosing && result.does(Action::kTellFailed));
    }
  });
}
END_TEST

START_TEST(upcalls_match_the_states_entered) {
  for_every_cell([](State state, Event event, const Guards& guards, const Step& result) {
    const auto enters = [&](State entered) { return result.next == entered && state != entered; };
    const bool usable_before = state == State::kConfirming || state == State::kConnected;
    const bool usable_after = result.next == State::kConfirming || result.next == State::kConnected;
    ck_assert(result.does(guards.exchanges ? Action::kTellLinked : Action::kTellConnected) ==
              (usable_after && !usable_before));
    ck_assert(!result.does(guards.exchanges ? Action::kTellConnected : Action::kTellLinked));
    ck_assert(result.does(Action::kTellFlushing) ==
              (enters(State::kClosing) || result.outcome == Outcome::kProtocolError));
    ck_assert(!result.does(Action::kTellFlushing) || result.does(Action::kFlushQueuePairs) || state == State::kClosed);
    const bool makes = result.does(Action::kMakeQueuePairs);
    if (guards.exchanges) {
      // A set for every attempt, with its handshake buffer posted before the peer can know of it.
      ck_assert(result.does(Action::kDestroyQueuePairs) ==
                (enters(State::kClosed) || (makes && state != State::kClosed)));
      ck_assert(makes == result.does(Action::kPostHandshake));
      const bool never =  // of such a connection
          state == State::kPosting || state == State::kQueued || state == State::kConfirming;
      ck_assert(!result.does(Action::kOpenChannel) || makes || never);
    } else if (guards.outgoing && (enters(State::kQueued) || state == State::kPosting)) {
      // Who joins a sender asks for a turn at once, and has no other share.
      ck_assert(makes == result.does(Action::kWantSender));
      ck_assert(result.does(Action::kDestroyQueuePairs) == (state == State::kRequestSent));
      ck_assert(!result.does(Action::kOpenChannel) || state == State::kPosting);
    } else {
      ck_assert(result.does(Action::kDestroyQueuePairs) == (enters(State::kClosed) || enters(State::kQueued)));
      ck_assert(makes == ((state == State::kClosed && result.does(Action::kAskForReceives) &&
                           (!guards.outgoing || event == Event::kRequestArrived)) ||
                          result.does(Action::kWantSender)));
      ck_assert(!result.does(Action::kPostHandshake) && !result.does(Action::kTellPeerLeft));
    }
  });
}
END_TEST

/// Whatever state a connection is in, a newer request gets through, and an older one or one of an attempt that was given up
/// changes nothing.
START_TEST(newer_requests_win_and_older_ones_do_nothing) {
  for_every_cell([](State state, Event event, const Guards& guards, const Step& result) {
    if (event != Event::kRequestArrived || state == State::kQueued || state == State::kClosing) {
      return;
    }
    const bool committed = state == State::kAnswering || state == State::kReplySent || state == State::kConfirming ||
                           state == State::kConnected;
    ck_assert(result.outcome == Outcome::kTransition);
    if (committed) {
      ck_assert(result.does(Action::kHandOver) == guards.newer);
      ck_assert(!guards.newer || (result.next == State::kClosing && !result.does(Action::kSendRefusal)));
      ck_assert(result.does(Action::kRefuseOutdated) == guards.older);
      ck_assert(guards.newer || result.next == state);
    } else if (guards.newer && guards.peer_has_precedence) {
      ck_assert(result.does(Action::kAdoptChannel));
    }
    ck_assert(!guards.old_attempt || state == State::kClosed || !committed || !result.does(Action::kAdoptChannel));
  });
}
END_TEST

/// Who is wanted does not fail because the peer has given up, or does not come back: a newer connection takes its place.
START_TEST(what_is_wanted_starts_over) {
  Guards guards;
  guards.time_left = true;
  for (const State state : {State::kAnswering, State::kReplySent}) {
    guards.wanted = false;
    ck_assert(step(state, Event::kOutdatedArrived, guards).does(Action::kTellFailed));
    guards.wanted = true;
    ck_assert(step(state, Event::kOutdatedArrived, guards).does(Action::kStartOver));
    ck_assert(!step(state, Event::kOutdatedArrived, guards).does(Action::kTellFailed));
  }
  ck_assert(step(State::kReplySent, Event::kHandshakeTimer, guards).does(Action::kStartOver));
  expect(State::kRequestSent, Event::kOutdatedArrived, guards, State::kRequestSent);
  ck_assert(step(State::kRequestSent, Event::kOutdatedArrived, guards).does(Action::kRenewIncarnation));
}
END_TEST

/// Nobody is taken for dead who waits for its turn.
START_TEST(no_timer_runs_while_the_peer_pauses) {
  Guards guards;
  ck_assert(step(State::kReplySent, Event::kChannelLost, guards).does(Action::kStartHandshakeTimer));
  ck_assert(!step(State::kReplySent, Event::kPauseArrived, guards).does(Action::kStartHandshakeTimer));
  guards.peer_pauses = true;
  ck_assert(!step(State::kAnswering, Event::kReceivesPosted, guards).does(Action::kStartHandshakeTimer));
  guards.wanted = true;  // then it is not only the peer's business
  ck_assert(step(State::kAnswering, Event::kReceivesPosted, guards).does(Action::kStartHandshakeTimer));
  ck_assert(step(State::kReplySent, Event::kConnectWanted, guards).does(Action::kStartHandshakeTimer));
}
END_TEST

START_TEST(precedence_decides_crossing_requests) {
  Guards guards;
  expect(State::kRequestSent, Event::kRequestArrived, guards, State::kRequestSent);
  ck_assert(step(State::kRequestSent, Event::kRequestArrived, guards).does(Action::kRefuseCollision));
  ck_assert(step(State::kRequestSent, Event::kCollisionArrived, guards).outcome == Outcome::kProtocolError);
  guards.peer_has_precedence = true;
  expect(State::kRequestSent, Event::kRequestArrived, guards, State::kReplySent);
  expect(State::kRequestSent, Event::kCollisionArrived, guards, State::kYielded);
  expect(State::kYielded, Event::kRequestArrived, guards, State::kReplySent);
  for (const bool precedence : {false, true}) {
    guards.peer_has_precedence = precedence;
    expect(State::kPosting, Event::kRequestArrived, guards, State::kAnswering);
  }
}
END_TEST

START_TEST(repeated_requests_get_the_same_reply) {
  Guards repeated;
  repeated.same_ends = true;
  for (const State state : {State::kReplySent, State::kConnected}) {
    expect(state, Event::kRequestArrived, repeated, state);
    ck_assert(step(state, Event::kRequestArrived, repeated).does(Action::kSendReply));
    Guards old = repeated;
    old.old_attempt = true;
    ck_assert(step(state, Event::kRequestArrived, old).does(Action::kDropNewChannel));
    ck_assert(step(state, Event::kRequestArrived, Guards()).does(Action::kRefuseOther));
  }
}
END_TEST

START_TEST(nobody_is_asked_for_receives_before_an_exchange) {
  Guards guards;
  guards.exchanges = true;
  expect(State::kClosed, Event::kConnectWanted, guards, State::kRequestSent);
  expect(State::kRequestSent, Event::kReplyArrived, guards, State::kConnected);
  expect(State::kClosed, Event::kRequestArrived, guards, State::kReplySent);
  ck_assert(step(State::kClosed, Event::kRequestArrived, guards).does(Action::kSendReply));
  expect(State::kReplySent, Event::kConfirmArrived, guards, State::kConnected);
  ck_assert(step(State::kConnected, Event::kChannelLost, guards).does(Action::kTellPeerLeft));
}
END_TEST

/// A peer that gives up an attempt costs the passive side nothing, unless it wants the connection itself.
START_TEST(a_passive_side_forgets_what_it_did_not_want) {
  Guards guards;
  guards.exchanges = true;
  expect(State::kReplySent, Event::kChannelLost, guards, State::kClosed);
  guards.wanted = true;
  expect(State::kReplySent, Event::kChannelLost, guards, State::kClosing);
  guards.time_left = true;
  expect(State::kReplySent, Event::kChannelLost, guards, State::kRequestSent);
}
END_TEST

/// The active side asks for its turn, and starts anew when the target is gone; the passive side tells of the target at once.
START_TEST(one_way_connections_share_a_sender) {
  Guards guards;
  guards.outgoing = true;
  expect(State::kPosting, Event::kReceivesPosted, guards, State::kQueued);
  ck_assert(step(State::kPosting, Event::kReceivesPosted, guards).does(Action::kWantSender));
  expect(State::kQueued, Event::kSenderReady, guards, State::kRequestSent);
  expect(State::kRequestSent, Event::kTargetArrived, guards, State::kRequestSent);
  ck_assert(step(State::kRequestSent, Event::kTargetGoneArrived, guards).outcome == Outcome::kProtocolError);
  guards.names_target = true;
  expect(State::kRequestSent, Event::kTargetGoneArrived, guards, State::kClosing);
  guards.time_left = true;
  expect(State::kRequestSent, Event::kTargetGoneArrived, guards, State::kQueued);
  ck_assert(step(State::kRequestSent, Event::kTargetGoneArrived, guards).does(Action::kRetireSender));
  expect(State::kConfirming, Event::kTargetGoneArrived, guards, State::kClosing);
  Guards incoming;
  incoming.incoming = true;
  ck_assert(step(State::kClosed, Event::kRequestArrived, incoming).does(Action::kSendTarget));
  expect(State::kClosed, Event::kLateRequestArrived, incoming, State::kClosed);
  ck_assert(step(State::kClosed, Event::kConnectWanted, incoming).outcome == Outcome::kProtocolError);
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
      ck_assert((one.outcome == SenderOutcome::kImpossible) == !one.why.empty());
    }
  }
}
END_TEST

START_TEST(attempts_end) {
  Guards guards;
  for (const State state : {State::kRequestSent, State::kYielded}) {
    const Event event = state == State::kYielded ? Event::kHandshakeTimer : Event::kChannelLost;
    guards.time_left = true;
    expect(state, event, guards, State::kRequestSent);
    guards.time_left = false;
    expect(state, event, guards, State::kClosing);
  }
  expect(State::kConfirming, Event::kChannelLost, guards, State::kConnected);
}
END_TEST

START_TEST(names_are_all_there) {
  ck_assert(to_string(State::kClosing) == "Closing");
  ck_assert(to_string(Event::kLocalError) == "LocalError");
  ck_assert(to_string(Event::kConfirmTaken) == "ConfirmTaken");
  ck_assert(to_string(Action::kTellFlushing) == "TellFlushing");
  ck_assert(to_string(Action::kPostHandshake) == "PostHandshake");
  ck_assert(to_string(Action::kTellPeerLeft) == "TellPeerLeft");
  ck_assert(to_string(Action::kStartRetryTimer) == "StartRetryTimer");
  ck_assert(to_string(State::kQueued) == "Queued");
  ck_assert(to_string(Event::kTargetGoneArrived) == "TargetGoneArrived");
  ck_assert(to_string(Event::kPauseArrived) == "PauseArrived");
  ck_assert(to_string(Event::kHandshakeTimer) == "HandshakeTimer");
  ck_assert(to_string(Action::kHandOver) == "HandOver");
  ck_assert(to_string(Action::kStopTimer) == "StopTimer");
  ck_assert(to_string(Action::kSendTarget) == "SendTarget");
  ck_assert(to_string(SenderState::kRetired) == "Retired");
  ck_assert(to_string(SenderEvent::kLastReleased) == "LastReleased");
  ck_assert(to_string(SenderAction::kFlush) == "Flush");
}
END_TEST

START_TEST(history_keeps_the_last_transitions) {
  TransitionHistory history;
  ck_assert(history.text().empty());
  history.add(State::kClosed, Event::kConnectWanted, State::kPosting);
  test::check_text(history.text(), "Closed -ConnectWanted-> Posting");
  for (std::size_t i = 0; i < TransitionHistory::kKept; ++i) {
    history.add(State::kRequestSent, Event::kRetryTimer, State::kRequestSent);
  }
  const std::string text = history.text();
  ck_assert(text.find("Closed") == std::string::npos);
  ck_assert_int_eq(std::count(text.begin(), text.end(), ','), static_cast<int>(TransitionHistory::kKept) - 1);
}
END_TEST

START_TEST(trace_files_are_one_for_each_process) {
  const ProcessName self{0x1234'0002, 17};
  test::check_text(trace_path("/tmp/t.%r", self), "/tmp/t.17");
  test::check_text(trace_path("%j-%r.json", self), "2-17.json");
  test::check_text(trace_path("/tmp/t", self), "/tmp/t.17");
  test::check_text(trace_path("100%", self), "100%.17");
}
END_TEST

START_TEST(a_trace_is_bounded_and_says_so) {
  const std::string path = "test_connection_table.trace." + std::to_string(getpid());
  auto trace = Trace::open(path + "%r", {1, 5});
  ck_assert(trace.has_value());
  for (std::size_t i = 0; i < Trace::kMost + 3; ++i) {
    (*trace)->add({{1, 6}, 0, 0}, State::kRequestSent, Event::kRetryTimer, State::kRequestSent);
  }
  (*trace)->add({{1, 6}, 0, 0}, "Idle", "Linked", "CtsSent");
  ck_assert((*trace)->write().has_value());
  std::ifstream file(path + "5");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::remove((path + "5").c_str());
  ck_assert(text.find("\"dropped\": 3") != std::string::npos);
  ck_assert(text.find("\"name\": \"Linked\"") != std::string::npos);
  ck_assert(!Trace::open("/nowhere/at/all", {}).has_value());
}
END_TEST

}  // namespace
}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite(
      "connection_table",
      {outcomes_are_explained, upcalls_match_the_states_entered, newer_requests_win_and_older_ones_do_nothing,
       what_is_wanted_starts_over, no_timer_runs_while_the_peer_pauses, precedence_decides_crossing_requests,
       repeated_requests_get_the_same_reply, nobody_is_asked_for_receives_before_an_exchange,
       a_passive_side_forgets_what_it_did_not_want, one_way_connections_share_a_sender,
       one_connection_has_the_target_made, attempts_end, names_are_all_there, history_keeps_the_last_transitions,
       trace_files_are_one_for_each_process, a_trace_is_bounded_and_says_so});
}
