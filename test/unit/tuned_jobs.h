// SPDX-License-Identifier: BSD-3-Clause
//
// Reports of jobs, for the tests of fabric_tune.
#pragma once

#include <cstdint>
#include <string>

#include "contrib/fabric_tune/proposals.h"

namespace fabric::tune {

inline constexpr const char* kStarved = "P,512,2,1,2,2,2";

inline ReceiveQueues queues(const std::string& text) {
  return ReceiveQueues::parse(text).value();
}

/// A job of 8 that sends small messages, over the queues that the component chooses, and waits for nothing.
inline Recorded job() {
  Recorded made;
  made.processes = 8;
  made.hosts = made.ports = 1;
  made.operations = 100000;
  made.queues = queues("P,128,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,512,448,64");
  made.limits = {{kEagerLimit, 12288}, {kInlineSize, 256}, {kInPlaceSize, 16384}};
  made.messages = {{64, 100000}};
  made.most_peers = 7;
  return made;
}

inline Recorded starved_job(std::uint64_t waits = 5000) {
  Recorded made = job();
  made.queues = queues("P,512,2:S,65536,512");
  made.settings = {{kReceiveQueues, "P,512,2:S,65536,512", "file", "/etc/mca.conf"}};
  made.waits = {{"waits_for_credit", kStarved, waits, true}};
  made.totals = {{"waits_for_credit", waits}};
  return made;
}

}  // namespace fabric::tune
