// SPDX-License-Identifier: BSD-3-Clause
//
// Tables that are wrong, and the worlds in which that must be found. For programs that are compiled against tables with a
// hook (test/model/bent).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "btl_fabric/peer/endpoint_table.h"
#include "cpc/core/connection_table.h"
#include "cpc/queue_pairs/xrc_sender_table.h"
#include "test/model/explore.h"

namespace fabric::model {

// ---- Worlds

/// Both want to send, and `losses` channels may break.
[[nodiscard]] inline Options both(std::uint8_t losses = 0) {
  Options options = with({1, 1});
  options.losses = losses;
  options.retries = losses;
  return options;
}
/// The same with an exchange of CTS: `which` of kExchanges.
[[nodiscard]] inline Options both_exchange(std::size_t which = 0) {
  return exchanging(kExchanges[which], {1, 1});
}
/// Process 0 closes `times` times, whatever that leads to.
[[nodiscard]] inline Options one_closes(Options options, std::uint8_t times = 1) {
  options.plans[0].closes[1] = times;
  options.nothing_fails = false;
  return options;
}
/// Process 0 closes between two of its messages.
[[nodiscard]] inline Options closing_between(const Sends& sends, std::uint8_t retries) {
  Options options = with(sends);
  options.plans[0].closes[1] = 1;
  options.retries = retries;
  return options;
}

/// It must find a fault whose text has `expected` in it, and none in the same worlds if nothing is bent.
inline void expect_fault_of(const std::string& what, Options options, const std::string& expected) {
  expect_fault(what, options, expected);
  cpc::bent_step = nullptr;
  bent_endpoint_step = nullptr;
  cpc::bent_sender_step = nullptr;
  options.mistake = Mistake::kNone;
  expect_no_fault(what + ", put right", options);
}

// ---- Bent tables

/// Connections go by other guards than those that hold.
inline void bend_guards(const std::function<void(cpc::Guards&)>& bend) {
  cpc::bent_step = [bend](cpc::State state, cpc::Event event, cpc::Guards guards) {
    bend(guards);
    return cpc::table_step(state, event, guards);
  };
}
/// Connections never do this.
inline void leave_out(cpc::Action action) {
  cpc::bent_step = [action](cpc::State state, cpc::Event event, const cpc::Guards& guards) {
    cpc::Step step = cpc::table_step(state, event, guards);
    std::replace(step.actions.begin(), step.actions.end(), action, cpc::Action::kNone);
    return step;
  };
}

inline void bend_endpoint_guards(const std::function<void(EndpointGuards&)>& bend) {
  bent_endpoint_step = [bend](EndpointState state, EndpointEvent event, EndpointGuards guards) {
    bend(guards);
    return table_endpoint_step(state, event, guards);
  };
}
/// Endpoints ignore this.
inline void leave_out(EndpointEvent ignored) {
  bent_endpoint_step = [ignored](EndpointState state, EndpointEvent event, const EndpointGuards& guards) {
    return event == ignored ? EndpointStep{Outcome::kIgnored, state, {}, {}}
                            : table_endpoint_step(state, event, guards);
  };
}

/// Shared senders do nothing on this.
inline void leave_out_actions(cpc::SenderEvent of) {
  cpc::bent_sender_step = [of](cpc::SenderState state, cpc::SenderEvent event, bool waiting) {
    cpc::SenderStep step = cpc::table_sender_step(state, event, waiting);
    if (event == of) {
      step.actions = {};
    }
    return step;
  };
}

}  // namespace fabric::model
