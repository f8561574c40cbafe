// SPDX-License-Identifier: BSD-3-Clause
//
// Every order of events of two peers that connect, over the table that the product runs; and faults that must be found.
#include <string>

#include "test/unit/check_main.h"
#include "test/unit/check_model.h"
#include "test/unit/connection_model.h"
#include "test/unit/connection_model_actions.h"
#include "test/unit/connection_model_cts.h"

namespace fabric {
namespace {

using model::Action;
using model::Explorer;
using model::Guards;
using model::Options;

void expect_no_fault(const std::string& what, const Options& options) {
  test::check_model<Explorer>(what, options, false);
}
void expect_fault(const std::string& what, const Options& options) {
  test::check_model<Explorer>(what, options, true);
}

/// As many channels break as there are retries: both always end up connected, to each other.
START_TEST(both_connect_while_retries_last) {
  for (const auto wants : {std::array<model::Byte, 2>{1, 0}, {0, 1}, {1, 1}}) {
    for (model::Byte losses = 0; losses <= 3; ++losses) {
      Options options;
      options.wants = wants;
      options.losses = losses;
      options.retries = losses;
      const std::string what =
          "wants " + std::to_string(wants[0]) + std::to_string(wants[1]) + ", " + std::to_string(losses) + " losses";
      expect_no_fault(what.c_str(), options);
    }
  }
}
END_TEST

/// Worse: channels break more often than there are retries, timers fire early, verbs calls fail, main threads give up
/// and start again. Everybody is told how it ended, and nothing is left over.
START_TEST(everybody_is_told) {
  for (const auto wants : {std::array<model::Byte, 2>{1, 0}, {0, 1}, {1, 1}}) {
    Options options;
    options.wants = wants;
    options.losses = 2;
    options.retries = 1;
    options.closes = 1;
    options.local_errors = 1;
    options.hasty_handshake_timer = true;
    options.both_must_connect = false;
    const std::string what = "harsh, wants " + std::to_string(wants[0]) + std::to_string(wants[1]);
    expect_no_fault(what.c_str(), options);
  }
}
END_TEST

/// Requests that take their time to leave, for there is no turn for them or TCP does not get through, and sockets that
/// are given up for others in between. It costs no attempt.
START_TEST(requests_wait_for_their_turn) {
  for (const auto wants : {std::array<model::Byte, 2>{1, 0}, {0, 1}, {1, 1}}) {
    for (model::Byte losses = 0; losses <= 1; ++losses) {
      Options options;
      options.wants = wants;
      options.losses = losses;
      options.retries = losses;
      options.dials = true;
      options.yields = 2;
      const std::string what = "turns, wants " + std::to_string(wants[0]) + std::to_string(wants[1]) + ", " +
                               std::to_string(losses) + " losses";
      expect_no_fault(what.c_str(), options);
    }
  }
}
END_TEST

START_TEST(both_claim_precedence) {
  Options options;
  options.bend = [](int, Guards guards) {
    guards.peer_has_precedence = false;
    return guards;
  };
  expect_fault("both claim precedence", options);
}
END_TEST

START_TEST(precedence_inverted_on_one_side) {
  Options options;
  options.bend = [](int peer, Guards guards) {
    guards.peer_has_precedence = guards.peer_has_precedence || peer == 0;  // both yield
    return guards;
  };
  expect_fault("precedence inverted on one side", options);
}
END_TEST

START_TEST(repeated_requests_not_recognised) {
  Options options;
  options.losses = 1;
  options.retries = 1;
  options.bend = [](int, Guards guards) {
    guards.repeated = false;
    guards.stale = false;
    return guards;
  };
  expect_fault("repeated requests not recognised", options);
}
END_TEST

START_TEST(retries_never_made) {
  Options options;
  options.losses = 1;
  options.retries = 1;
  options.bend = [](int, Guards guards) {
    guards.retries_left = false;
    return guards;
  };
  expect_fault("retries never made", options);
}
END_TEST

START_TEST(lost_channel_not_noticed) {
  Options options;
  options.losses = 1;
  options.retries = 0;
  options.both_must_connect = false;
  options.bend = [](int, Guards guards) {
    guards.channel_up = true;
    return guards;
  };
  expect_fault("lost channel not noticed", options);
}
END_TEST

START_TEST(stale_requests_adopted) {
  Options options;
  options.losses = 2;
  options.retries = 2;
  options.bend = [](int, Guards guards) {
    guards.stale = false;
    return guards;
  };
  expect_fault("stale requests adopted", options);
}
END_TEST

// ---- CPCs that exchange CTS

/// The kinds of fabric and of queue lists that make a difference.
struct Kind {
  const char* name;
  bool is_iwarp;
  bool first_queue_is_p;
};
constexpr std::array kKinds{Kind{"IB, P first", false, true}, Kind{"IB, S first", false, false},
                            Kind{"iWARP", true, true}};

Options exchanging(const Kind& kind) {
  Options options;
  options.exchanges = true;
  options.is_iwarp = kind.is_iwarp;
  options.first_queue_is_p = kind.first_queue_is_p;
  return options;
}

/// Attempts that fail before they are answered are made again: both become clear to send, whatever the main threads do
/// meanwhile.
START_TEST(both_become_clear_to_send) {
  for (const Kind& kind : kKinds) {
    for (const auto wants : {std::array<model::Byte, 2>{1, 0}, {0, 1}, {1, 1}}) {
      for (model::Byte losses = 0; losses <= 2; ++losses) {
        Options options = exchanging(kind);
        options.wants = wants;
        options.losses = losses;
        options.retries = losses;
        options.breaks_until_reply = true;
        const std::string what = std::string("CTS, ") + kind.name + ", wants " + std::to_string(wants[0]) +
                                 std::to_string(wants[1]) + ", " + std::to_string(losses) + " losses";
        expect_no_fault(what.c_str(), options);
      }
    }
  }
}
END_TEST

/// Connections break at any moment, the main threads give up and start again: everybody is told.
START_TEST(everybody_is_told_of_an_exchange) {
  for (const Kind& kind : kKinds) {
    for (const auto wants : {std::array<model::Byte, 2>{1, 0}, {0, 1}, {1, 1}}) {
      Options options = exchanging(kind);
      options.wants = wants;
      options.losses = wants[0] + wants[1] == 2 ? 1 : 2;  // millions of states otherwise
      options.retries = 1;
      options.closes = 1;
      options.local_errors = 1;
      options.hasty_handshake_timer = true;
      options.both_must_connect = false;
      const std::string what =
          std::string("CTS, harsh, ") + kind.name + ", wants " + std::to_string(wants[0]) + std::to_string(wants[1]);
      expect_no_fault(what.c_str(), options);
    }
  }
}
END_TEST

START_TEST(exchanges_wait_for_their_turn) {
  for (const Kind& kind : kKinds) {
    Options options = exchanging(kind);
    options.dials = true;
    options.losses = 1;
    options.retries = 1;
    options.breaks_until_reply = true;
    expect_no_fault((std::string(kind.name) + ", turns").c_str(), options);
  }
}
END_TEST

START_TEST(sending_without_waiting_for_cts) {
  Options options = exchanging(kKinds[0]);
  options.bend_cts = [](cpc::CtsState, cpc::CtsEvent event, cpc::CtsStep step) {
    if (event == cpc::CtsEvent::kLinked && step.next == cpc::CtsState::kSpoken) {
      step.actions[1] = cpc::CtsAction::kStartSending;
    }
    return step;
  };
  expect_fault("sending without waiting for CTS", options);
}
END_TEST

START_TEST(passive_side_of_iwarp_sends_first) {
  Options options = exchanging(kKinds[2]);
  options.bend_speaks_first = true;
  expect_fault("the passive side of iWARP sends first", options);
}
END_TEST

START_TEST(both_sides_of_iwarp_listen) {
  Options options = exchanging(kKinds[2]);
  options.bend_cts = [](cpc::CtsState state, cpc::CtsEvent event, cpc::CtsStep step) {
    return event == cpc::CtsEvent::kLinked ? cpc::cts_step(state, event, false) : step;
  };
  expect_fault("both sides of iWARP listen", options);
}
END_TEST

START_TEST(handshake_buffer_not_posted) {
  Options options = exchanging(kKinds[0]);
  options.skip = Action::kPostHandshake;
  expect_fault("handshake buffer not posted", options);
}
END_TEST

START_TEST(peer_that_left_not_told) {
  Options options = exchanging(kKinds[0]);
  options.losses = 1;
  options.closes = 1;
  options.both_must_connect = false;
  options.skip = Action::kTellPeerLeft;
  expect_fault("peer that left not told", options);
}
END_TEST

START_TEST(passive_wish_forgotten) {
  Options options = exchanging(kKinds[0]);
  options.losses = 1;
  options.both_must_connect = false;
  options.bend = [](int, Guards guards) {
    guards.wanted = false;
    return guards;
  };
  expect_fault("the wish of a passive side forgotten", options);
}
END_TEST

START_TEST(exchange_with_both_claiming_precedence) {
  Options options = exchanging(kKinds[0]);
  options.bend = [](int, Guards guards) {
    guards.peer_has_precedence = false;
    return guards;
  };
  expect_fault("CTS: both claim precedence", options);
}
END_TEST

START_TEST(queue_pairs_of_a_failed_attempt_kept) {
  Options options = exchanging(kKinds[0]);
  options.losses = 1;
  options.retries = 1;
  options.skip = Action::kDestroyQueuePairs;
  expect_fault("queue pairs of a failed attempt kept", options);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("connection_model",
                         {both_connect_while_retries_last,
                          everybody_is_told,
                          requests_wait_for_their_turn,
                          exchanges_wait_for_their_turn,
                          both_claim_precedence,
                          precedence_inverted_on_one_side,
                          repeated_requests_not_recognised,
                          retries_never_made,
                          lost_channel_not_noticed,
                          stale_requests_adopted,
                          both_become_clear_to_send,
                          everybody_is_told_of_an_exchange,
                          sending_without_waiting_for_cts,
                          passive_side_of_iwarp_sends_first,
                          both_sides_of_iwarp_listen,
                          handshake_buffer_not_posted,
                          peer_that_left_not_told,
                          passive_wish_forgotten,
                          exchange_with_both_claiming_precedence,
                          queue_pairs_of_a_failed_attempt_kept},
                         300);
}
