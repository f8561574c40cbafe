// SPDX-License-Identifier: BSD-3-Clause
//
// The table of an endpoint: what holds for whole groups of its cells. That no cell is missing is checked at compile time.
#include <vector>

#include "btl_fabric/peer/endpoint_table.h"
#include "test/unit/check_main.h"
#include "test/unit/guards_of.h"

namespace fabric {
namespace {

using test::guards_of;

using enum EndpointState;
using enum EndpointEvent;
using Action = EndpointAction;

struct Cell {
  EndpointState state;
  EndpointEvent event;
  EndpointGuards guards;
  EndpointStep step;
  [[nodiscard]] bool does(Action action) const { return step.does(action); }
};

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (std::size_t state = 0; state < kEndpointStates; ++state) {
    for (std::size_t event = 0; event < kEndpointEvents; ++event) {
      for (unsigned bits = 0; bits < 1U << kEndpointGuardList.size(); ++bits) {
        const auto guards = guards_of(kEndpointGuardList, bits);
        const auto from = static_cast<EndpointState>(state);
        const auto what = static_cast<EndpointEvent>(event);
        cells.push_back({from, what, guards, endpoint_step(from, what, guards)});
      }
    }
  }
  return cells;
}

EndpointStep go(EndpointState state, EndpointEvent event, EndpointGuards guards = {}) {
  return endpoint_step(state, event, guards);
}

/// A CTS that is polled after the endpoint was closed or has failed, in particular.
START_TEST(nothing_revives_an_endpoint_that_has_ended) {
  for (const Cell& cell : all_cells()) {
    if (cell.state == kClosing) {
      ck_assert(cell.step.next == kClosing && cell.step.outcome == Outcome::kIgnored);
    }
    if (cell.state == EndpointState::kFailed) {
      ck_assert(cell.step.next == EndpointState::kFailed || (cell.event == kRemoved && cell.step.next == kClosing));
    }
    if (cell.state == kLeaving) {
      ck_assert(cell.step.next == kLeaving || cell.step.next == kClosing);
    }
    if (cell.state == kAboutToLeave) {
      ck_assert(cell.step.next == kAboutToLeave || cell.step.next == kLeaving || cell.step.next == kClosing);
    }
  }
}
END_TEST

START_TEST(each_failure_is_reported_once_and_before_anybody_is_told) {
  for (const Cell& cell : all_cells()) {
    const bool fails = cell.step.next == EndpointState::kFailed && cell.state != EndpointState::kFailed;
    ck_assert_int_eq(cell.does(Action::kReport), fails);
    ck_assert_int_eq(cell.does(Action::kFailAll), fails);
    if (fails) {
      ck_assert(cell.step.actions[0] == Action::kReport && cell.step.actions[1] == Action::kFailAll);
    }
  }
}
END_TEST

START_TEST(what_is_waited_for_is_never_dropped_without_an_error) {
  for (const Cell& cell : all_cells()) {
    if (cell.does(Action::kDropAll)) {
      const bool has_no_link = cell.state == kResting || cell.state == kParting;  // that takes what waits
      ck_assert(cell.step.next == kClosing || cell.step.next == kAboutToLeave || cell.guards.receives ||
                (cell.step.next == kLeaving && has_no_link));
      ck_assert(cell.event == kRemoved || cell.state == kLeaving || cell.state == kAboutToLeave);
    }
    if (cell.does(Action::kBreakOff)) {  // what the peer may not have is kept, and a connection is made for it
      ck_assert(cell.guards.heals && cell.step.next == kConnecting && cell.does(Action::kConnectAgain));
    }
    if (cell.state == kResuming && cell.does(Action::kRetire)) {
      ck_assert(cell.guards.posted_all || !cell.guards.missed);
    }
    if (cell.does(Action::kNote)) {
      ck_assert(!cell.guards.missed || cell.guards.crossed || cell.guards.other_way || cell.guards.nothing_left ||
                cell.does(Action::kConnect));
    }
  }
}
END_TEST

START_TEST(a_link_that_has_carried_is_made_anew) {
  for (const EndpointEvent event : {kLost, EndpointEvent::kLinkFailed, kSuperseded}) {
    for (const EndpointState state : {kConnected, kResting, kResuming}) {
      const EndpointStep step = go(state, event, {.missed = true, .heals = true});
      ck_assert(step.next == kConnecting);
      ck_assert(go(state, event, {.missed = true}).next ==
                (state == kResting && event == kSuperseded ? kConnecting : EndpointState::kFailed));
    }
  }
  // Nothing is sent before both know what has arrived.
  ck_assert(go(kConnecting, kMade, {.missed = true, .healing = true}).next == kResuming);
  ck_assert(go(kCtsSent, kCtsArrived, {.missed = true, .healing = true}).next == kResuming);
  ck_assert(go(kResuming, kSendWanted).next == kResuming);
  ck_assert(go(kResuming, kResumed).actions[0] == Action::kStart);
  for (const Cell& cell : all_cells()) {
    ck_assert(!cell.does(Action::kStart) || !cell.guards.healing || cell.state == kResuming || cell.event == kRemoved ||
              (cell.event != kMade && cell.event != kCtsArrived) || cell.state == kAboutToLeave || cell.guards.is_self);
  }
}
END_TEST

START_TEST(cts_goes_both_ways_before_anything_else) {
  ck_assert(go(kIdle, kLinked).next == kCtsSent);
  ck_assert(go(kIdle, kLinked).actions[1] == Action::kSendCts);
  ck_assert(go(kCtsSent, kCtsArrived, {.missed = true}).next == kConnected);
  ck_assert(go(kCtsSent, kCtsArrived, {.missed = true}).actions[0] == Action::kStart);
  ck_assert(go(kConnecting, kLinked, {.may_speak_first = false}).next == kCtsAwaited);
  ck_assert(go(kCtsAwaited, kCtsArrived, {.missed = true}).actions[0] == Action::kSendCts);
  ck_assert(go(kCtsAwaited, kCtsArrived, {.missed = true}).actions[1] == Action::kStart);
  for (const EndpointState state : {kIdle, kConnecting, kClear, kConnected}) {
    ck_assert(go(state, kCtsArrived).outcome == Outcome::kProtocolError);
  }
}
END_TEST

START_TEST(a_link_that_carried_nothing_is_missed_by_nobody) {
  ck_assert(go(kCtsSent, kCtsArrived).next == kClear);
  ck_assert(go(kClear, kLost).next == kIdle);
  ck_assert(go(kClear, kSendWanted).next == kConnected);
  ck_assert(go(kClear, kPeerSpoke).next == kConnected);
}
END_TEST

START_TEST(a_connection_that_breaks_without_goodbye_has_failed) {
  ck_assert(go(kConnected, kLost).next == EndpointState::kFailed);
  ck_assert(go(kConnected, kGoodbyeArrived).next == kIdle);
  ck_assert(go(kConnected, kGoodbyeArrived, {.missed = true}).next == EndpointState::kFailed);
}
END_TEST

/// A link that is idle goes when both sides agree, and what is sent meanwhile waits for the next one.
START_TEST(an_idle_link_goes_by_agreement) {
  ck_assert(go(kConnected, kRestWanted, {.idle = true}).next == kResting);
  ck_assert(go(kConnected, kRestWanted).outcome == Outcome::kIgnored);
  ck_assert(go(kConnected, kRestAsked, {.idle = true}).next == kParting);
  ck_assert(go(kConnected, kRestAsked, {.idle = true}).actions[0] == Action::kSayGoodbye);
  ck_assert(go(kConnected, kRestAsked).next == kConnected);
  ck_assert(go(kConnected, kRestAsked).actions[0] == Action::kDeclineRest);
  ck_assert(go(kResting, kRestDeclined).actions[0] == Action::kResume);
  ck_assert(go(kResting, kRestAsked).next == kParting);  // both have asked
  for (const EndpointEvent event : {kGoodbyeArrived, kSuperseded}) {
    ck_assert(go(kResting, event).next == kIdle);
    ck_assert(go(kResting, event, {.missed = true}).next == kConnecting);
  }
  for (const EndpointEvent event : {kGoodbyeArrived, kGoodbyeDone, kSuperseded, kLost, kLinkFailed}) {
    ck_assert(go(kParting, event).next == kIdle);
    ck_assert(go(kParting, event, {.missed = true}).next == kConnecting);
  }
  ck_assert(go(kResting, kLost).next == EndpointState::kFailed);  // it has not agreed
  for (const EndpointState state : {kResting, kParting}) {
    ck_assert(go(state, kSendWanted).outcome == Outcome::kIgnored);
    ck_assert(go(state, kRemoved).next == kLeaving);
  }
}
END_TEST

/// A link ends, and the endpoint goes on.
START_TEST(a_newer_link_takes_the_place_of_the_last_one) {
  for (const EndpointEvent event : {kGoodbyeArrived, kSuperseded}) {
    ck_assert(go(kConnected, event).next == kIdle);
    ck_assert(go(kConnecting, event, {.missed = true}).next == kConnecting);
  }
  for (const Cell& cell : all_cells()) {
    const bool had_link = cell.state == kConnecting || cell.state == kCtsSent || cell.state == kCtsAwaited ||
                          cell.state == kClear || cell.state == kConnected;
    const bool receives = cell.event == kRemoved && cell.guards.receives;  // over the same link
    if (had_link && cell.step.next == kIdle && !receives) {
      const bool has_started = cell.event != kSenderGone || cell.state == kConnected;
      ck_assert(cell.does(!has_started                ? Action::kCloseDirection
                          : cell.event == kSenderGone ? Action::kStopSending
                                                      : Action::kRetire));
    }
    // Whatever waits is asked for again, unless a Connect is on its way.
    if ((cell.does(Action::kRetire) || cell.does(Action::kStopSending)) && cell.step.next == kConnecting) {
      ck_assert(cell.does(Action::kConnect) || cell.guards.crossed);
    }
  }
}
END_TEST

START_TEST(goodbye_comes_before_the_connection_is_given_up) {
  const EndpointStep removed = go(kConnected, kRemoved);
  ck_assert(removed.next == kLeaving && removed.does(Action::kSayGoodbye));
  // Where the peer's link may carry and ours does not yet, as soon as it does.
  for (const EndpointStep& early : {go(kCtsSent, kRemoved), go(kConnecting, kRemoved, {.heard = true})}) {
    ck_assert(early.next == kAboutToLeave && !early.does(Action::kCloseAll));
  }
  for (const EndpointEvent event : {kMade, kCtsArrived}) {
    const EndpointStep late = go(kAboutToLeave, event);
    ck_assert(late.next == kLeaving && late.does(Action::kSayGoodbye));
  }
  for (const EndpointEvent event : {kGoodbyeDone, kGoodbyeArrived, kLost, kLinkFailed}) {
    ck_assert(go(kLeaving, event).next == kClosing);
  }
}
END_TEST

/// With X queues it cannot tell the peer, which goes on to send.
START_TEST(who_only_receives_is_not_closed) {
  for (const EndpointState state : {kIdle, kConnecting}) {
    ck_assert(go(state, kRemoved).next == kClosing);
    const EndpointStep kept = go(state, kRemoved, {.receives = true});
    ck_assert(kept.next == kIdle);
    ck_assert(!kept.does(Action::kCloseAll) && !kept.does(Action::kRetire));
  }
}
END_TEST

START_TEST(what_is_ignored_is_explained) {
  for (const Cell& cell : all_cells()) {
    ck_assert_int_eq(cell.step.why.empty(), cell.step.outcome == Outcome::kTransition);
  }
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "endpoint_table",
      {a_link_that_has_carried_is_made_anew, nothing_revives_an_endpoint_that_has_ended,
       each_failure_is_reported_once_and_before_anybody_is_told, what_is_waited_for_is_never_dropped_without_an_error,
       cts_goes_both_ways_before_anything_else, a_link_that_carried_nothing_is_missed_by_nobody,
       an_idle_link_goes_by_agreement, a_connection_that_breaks_without_goodbye_has_failed,
       a_newer_link_takes_the_place_of_the_last_one, goodbye_comes_before_the_connection_is_given_up,
       who_only_receives_is_not_closed, what_is_ignored_is_explained});
}
