// SPDX-License-Identifier: BSD-3-Clause
//
// Lets the checker explore, and judges what it says: for the tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "cpc/loop/progress_thread.h"
#include "cpc/oob/xoob.h"
#include "cpc/rdmacm/rdmacm.h"
#include "test/model/search.h"
#include "test/unit/check_main.h"

namespace fabric::model {

/// Random ways through each set of worlds, beside the search: as many as there are worlds, and no more than these.
inline constexpr std::size_t kMostWanders = 2000;

/// FABRIC_MODEL=deep: what takes minutes is explored too.
[[nodiscard]] inline bool is_deep() {
  const char* const wanted = std::getenv("FABRIC_MODEL");
  return wanted != nullptr && std::string(wanted) == "deep";
}

/// Calls `what` on a progress thread, where connections live, with an event loop that is never run.
template <class What>
[[nodiscard]] Found on_progress_thread(What what) {
  Found found;
  cpc::ProgressDuties duties;
  duties.set_up = [&](event_base*) {
    static event_base* loop = nullptr;  // what a faulty world leaves there is never looked at again
    loop = event_base_new();
    found = what(loop);
    if (found.fault.empty()) {
      event_base_free(loop);
    }
    return Status();
  };
  duties.woken = [] {};
  duties.tear_down = [] {};
  ck_assert(cpc::ProgressThread::start(std::move(duties)).has_value());
  return found;
}

[[nodiscard]] inline Found explore(const Options& options) {
  return on_progress_thread([&](event_base* loop) {
    const Found found = search(options, loop);
    if (!found.fault.empty()) {
      return found;
    }
    Found more = wander(options, loop, 1, std::min(found.worlds, kMostWanders));
    return more.fault.empty() ? found : more;
  });
}

inline void expect_no_fault(const std::string& what, const Found& found) {
  std::printf("%s: %zu worlds, %zu steps, %zu ends\n", what.c_str(), found.worlds, found.steps, found.ends);
  if (!found.fault.empty()) {  // the way may be longer than Check's messages
    std::printf("%s: %s, after\n%s", what.c_str(), found.fault.c_str(), found.way.c_str());
  }
  std::fflush(stdout);
  ck_assert_msg(found.fault.empty(), "%s: a fault, told above", what.c_str());
}

inline void expect_no_fault(const std::string& what, const Options& options) {
  expect_no_fault(what, explore(options));
}

/// The same for what is too large to see all of it.
inline void expect_no_fault_on(std::size_t runs, const std::string& what, const Options& options) {
  expect_no_fault(what, on_progress_thread([&](event_base* loop) { return wander(options, loop, 1, runs); }));
}

/// It must find a fault whose text has `expected` in it.
inline void expect_fault(const std::string& what, const Options& options, const std::string& expected) {
  const Found found = explore(options);
  std::printf("%s: %zu worlds, %s, after\n%s", what.c_str(), found.worlds, found.fault.c_str(), found.way.c_str());
  std::fflush(stdout);
  ck_assert_msg(found.fault.find(expected) != std::string::npos, "%s: \"%s\" is found instead of \"%s\"", what.c_str(),
                found.fault.c_str(), expected.c_str());
}

/// Who sends to whom: process 0, process 1, both.
using Sends = std::array<std::uint8_t, 2>;
inline constexpr std::array kWhoSends{Sends{1, 0}, Sends{0, 1}, Sends{1, 1}};

[[nodiscard]] inline std::string text_of(const Sends& sends) {
  return "sends " + std::to_string(sends[0]) + std::to_string(sends[1]);
}
[[nodiscard]] inline Options with(const Sends& sends) {
  Options options;
  options.plans[0].sends[1] = sends[0];
  options.plans[1].sends[0] = sends[1];
  return options;
}

/// The kinds of fabric and of queue lists that make a difference to CPCs that exchange CTS.
struct Exchange {
  const char* name;
  Transport transport;
  bool first_queue_is_shared;
};
inline constexpr std::array kExchanges{Exchange{"IB, P first", Transport::kInfiniBand, false},
                                       Exchange{"IB, S first", Transport::kInfiniBand, true},
                                       Exchange{"iWARP", Transport::kIwarp, false}};

[[nodiscard]] inline Options exchanging(const Exchange& exchange, const Sends& sends) {
  Options options = with(sends);
  options.cpc = cpc::kRdmaCm;
  options.transport = exchange.transport;
  options.first_queue_is_shared = exchange.first_queue_is_shared;
  return options;
}

/// Both close once.
[[nodiscard]] inline Options closing(Options options) {
  options.plans[0].closes[1] = 1;
  options.plans[1].closes[0] = 1;
  options.closes_agreed = true;
  options.retries = 1;
  return options;
}

[[nodiscard]] inline bool is_small(const Sends& sends) {
  return sends[0] + sends[1] == 1;
}

/// Some of what can become of it, where there are millions of worlds.
inline void expect_no_fault_at_random(const std::string& what, const Options& options) {
  expect_no_fault_on(is_deep() ? 50000 : 3000, what + ", at random", options);
}
/// All that can become of it, or what fits the time.
inline void expect_no_fault_of(const std::string& what, const Options& options) {
  is_deep() ? expect_no_fault(what, options) : expect_no_fault_at_random(what, options);
}

/// X queues: one process sends to several of another node.
[[nodiscard]] inline Options to_several(std::array<std::uint8_t, 3> sends) {
  Options options;
  options.cpc = cpc::kXoob;
  options.processes = sends[2] != 0 ? 4 : 3;
  for (std::size_t i = 0; i < sends.size(); ++i) {
    options.plans[0].sends[i + 1] = sends[i];
  }
  return options;
}

}  // namespace fabric::model
