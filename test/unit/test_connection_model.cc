// SPDX-License-Identifier: BSD-3-Clause
//
// Every order of events of two peers that connect, over the table that the product runs; and faults that must be found.
#include <cstdio>

#include "test/unit/check_main.h"
#include "test/unit/connection_model.h"

namespace fabric {
namespace {

using model::Explorer;
using model::Guards;
using model::Options;

void expect_no_fault(const char* what, const Options& options) {
  Explorer explorer(options);
  const auto fault = explorer.explore();
  std::printf("%s: %zu states\n", what, explorer.states());
  ck_assert_msg(!fault, "%s: %s", what, fault ? fault->c_str() : "");
}

void expect_fault(const char* what, const Options& options) {
  Explorer explorer(options);
  const auto fault = explorer.explore();
  std::printf("%s: found: %s\n", what, fault ? fault->c_str() : "nothing");
  ck_assert_msg(fault.has_value(), "%s was not found", what);
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

}  // namespace
}  // namespace fabric

int main() {
  using namespace fabric;
  return test::run_suite(
      "connection_model",
      {both_connect_while_retries_last, everybody_is_told, both_claim_precedence, precedence_inverted_on_one_side,
       repeated_requests_not_recognised, retries_never_made, lost_channel_not_noticed, stale_requests_adopted},
      300);
}
