// SPDX-License-Identifier: BSD-3-Clause
//
// Every order of events of a process that connects to two or three processes of one node over a shared sender, over the tables that
// the product runs; and faults that must be found.
#include <string>

#include "test/unit/check_main.h"
#include "test/unit/check_model.h"
#include "test/unit/sender_model.h"

namespace fabric {
namespace {

using model::Action;
using model::Byte;
using model::SenderAction;
using model::SenderEvent;
using model::SenderExplorer;
using model::SenderOptions;
using model::SenderState;
using model::SenderStep;

void expect_no_fault(const std::string& what, const SenderOptions& options) {
  test::check_model<SenderExplorer>(what, options, false);
}
void expect_fault(const std::string& what, const SenderOptions& options) {
  test::check_model<SenderExplorer>(what, options, true);
}

/// As many channels break as there are retries: both connections come up, over one target.
START_TEST(all_connect_while_retries_last) {
  for (Byte losses = 0; losses <= 2; ++losses) {
    SenderOptions options;
    options.losses = losses;
    options.retries = losses;
    options.one_target = true;
    expect_no_fault(std::to_string(losses) + " losses", options);
    if (losses < 2) {
      options.wants = {1, 1, 1};
      expect_no_fault("3 peers, " + std::to_string(losses) + " losses", options);
    }
  }
}
END_TEST

/// One of the peers closes whenever it likes, and takes the target along or not: the other connection comes up.
START_TEST(a_target_goes) {
  SenderOptions options;
  options.their_closes = {1, 0, 0};
  options.must_connect = {false, true, true};
  options.retries = 1;
  expect_no_fault("a peer closes", options);
  options.wants = {1, 1, 1};
  expect_no_fault("3 peers, one closes", options);
  options.wants = {1, 1, 0};
  options.losses = 1;
  options.retries = 2;
  expect_no_fault("a peer closes, 1 loss", options);
}
END_TEST

/// Our main thread closes one connection, whatever its part, and connects again.
START_TEST(a_user_goes) {
  SenderOptions options;
  options.our_closes = {1, 0, 0};
  options.wants = {2, 1, 0};
  options.must_connect = {false, true, true};
  options.retries = 1;
  expect_no_fault("we close", options);
  options.failing_connects = 1;
  options.must_connect = {false, false, false};
  expect_no_fault("we close, and verbs fail", options);
  options.wants = {1, 1, 1};
  expect_no_fault("3 peers, we close, and verbs fail", options);
}
END_TEST

/// Worse: both ends of both connections close, channels break more often than there are retries. Everybody is told.
START_TEST(everybody_is_told) {
  SenderOptions options;
  options.our_closes = {1, 0, 0};
  options.their_closes = {0, 1, 0};
  options.must_connect = {false, false, false};
  options.losses = 1;
  options.failing_connects = 1;
  expect_no_fault("harsh", options);
}
END_TEST

START_TEST(nobody_waits_in_line) {
  SenderOptions options;
  options.bend = [](SenderState state, SenderEvent event, SenderStep step) {
    return state == SenderState::kConnecting && event == SenderEvent::kWanted
               ? cpc::sender_step(SenderState::kUnconnected, event, false)
               : step;
  };
  expect_fault("nobody waits in line", options);
}
END_TEST

SenderOptions with_a_target_that_goes() {
  SenderOptions options;
  options.their_closes = {1, 0, 0};
  options.must_connect = {false, true, true};
  options.retries = 1;
  return options;
}

START_TEST(sender_without_a_target_not_retired) {
  SenderOptions options = with_a_target_that_goes();
  options.bend = [](SenderState state, SenderEvent event, SenderStep step) {
    return event == SenderEvent::kTargetGone ? SenderStep{cpc::SenderOutcome::kTransition, state, {}, {}} : step;
  };
  expect_fault("a sender without a target is not retired", options);
}
END_TEST

START_TEST(sender_not_told_of_its_target) {
  SenderOptions options = with_a_target_that_goes();
  options.skip = Action::kRetireSender;
  expect_fault("a sender is not told that its target is gone", options);
}
END_TEST

START_TEST(nobody_takes_over) {
  SenderOptions options;
  options.our_closes = {1, 0, 0};
  options.must_connect = {false, true, true};
  options.bend = [](SenderState, SenderEvent event, SenderStep step) {
    return event == SenderEvent::kOwnerFailed
               ? SenderStep{cpc::SenderOutcome::kTransition, SenderState::kUnconnected, {}, {}}
               : step;
  };
  expect_fault("nobody takes over", options);
}
END_TEST

START_TEST(line_is_not_woken) {
  SenderOptions options;
  options.bend = [](SenderState, SenderEvent event, SenderStep step) {
    if (event == SenderEvent::kOwnerConnected) {
      step.actions = {};
    }
    return step;
  };
  expect_fault("the line is not woken", options);
}
END_TEST

START_TEST(who_left_stays_in_line) {
  SenderOptions options;
  options.our_closes = {1, 0, 0};
  options.must_connect = {false, true, true};
  options.bend = [](SenderState, SenderEvent event, SenderStep step) {
    if (event == SenderEvent::kReleased) {
      step.actions = {};
    }
    return step;
  };
  expect_fault("who left stays in line", options);
}
END_TEST

START_TEST(a_dead_sender_is_joined) {
  SenderOptions options;
  options.our_closes = {1, 0, 0};
  options.must_connect = {false, true, true};
  options.bend = [](SenderState, SenderEvent event, SenderStep step) {
    if (event == SenderEvent::kLastReleased) {
      step.actions = {};
    }
    return step;
  };
  expect_fault("a dead sender is joined", options);
}
END_TEST

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite("sender_model",
                         {all_connect_while_retries_last, a_target_goes, a_user_goes, everybody_is_told,
                          nobody_waits_in_line, sender_without_a_target_not_retired, sender_not_told_of_its_target,
                          nobody_takes_over, line_is_not_woken, who_left_stays_in_line, a_dead_sender_is_joined},
                         300);
}
