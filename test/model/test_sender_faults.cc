// SPDX-License-Identifier: BSD-3-Clause
//
// Faults of the table of shared senders, and of what connections tell them, that the checker must find.
#include "cpc/oob/xoob.h"
#include "test/model/faults.h"
#include "test/unit/check_main.h"

namespace fabric::model {
namespace {

using cpc::SenderEvent;
using cpc::SenderState;
using cpc::SenderStep;

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
  bend_endpoint_guards([](EndpointGuards& guards) { guards.receives = false; });
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

/// On this a sender goes to this state, and does nothing else.
void bend_to(SenderEvent of, SenderState (*next)(SenderState)) {
  cpc::bent_sender_step = [of, next](SenderState state, SenderEvent event, bool waiting) {
    return event == of ? SenderStep{Outcome::kTransition, next(state), {}, {}}
                       : cpc::table_sender_step(state, event, waiting);
  };
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
  bend_to(SenderEvent::kTargetGone, [](SenderState state) { return state; });
  expect_fault_of("a sender without a target is not retired", to_two_of_which_one_closes(), "cannot be reached");
}
END_TEST

START_TEST(sender_not_told_of_its_target) {
  leave_out(cpc::Action::kRetireSender);
  expect_fault_of("a sender is not told that its target is gone", to_two_of_which_one_closes(), "cannot be reached");
}
END_TEST

START_TEST(nobody_takes_over) {
  bend_to(SenderEvent::kOwnerFailed, [](SenderState) { return SenderState::kUnconnected; });
  expect_fault_of("nobody takes over", to_two_of_which_we_close_one(), "never comes");
}
END_TEST

START_TEST(who_waits_is_not_woken) {
  leave_out_actions(SenderEvent::kOwnerConnected);
  expect_fault_of("who waits is not woken", to_two(), "never comes");
}
END_TEST

START_TEST(who_left_goes_on_to_wait) {
  leave_out_actions(SenderEvent::kReleased);
  expect_fault_of("who left goes on to wait", to_two_of_which_we_close_one(), "aborts when all processes end");
}
END_TEST

START_TEST(a_dead_sender_is_joined) {
  leave_out_actions(SenderEvent::kLastReleased);
  expect_fault_of("a dead sender is joined", to_two_of_which_we_close_one(), "aborts");
}
END_TEST

}  // namespace
}  // namespace fabric::model

int main() {
  using namespace fabric::model;
  return fabric::test::run_computations<120>(
      "sender_faults", {nobody_waits_in_line, sender_without_a_target_not_retired, sender_not_told_of_its_target,
                        nobody_takes_over, who_waits_is_not_woken, who_left_goes_on_to_wait, a_dead_sender_is_joined});
}
