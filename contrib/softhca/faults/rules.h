// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One rule of the file `faults`, as read. The grammar is in faults.h for people and in rules.cc as a table.
#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

#include "faults/kill_at.h"

namespace softhca::faults {

enum class Action : uint8_t { Drop, Lose, Delay, Rnr, Error, Kill, Fail, Cm };
constexpr Action kFirstCallAction = Action::Fail;  // those before are about work requests

enum OpBits : uint8_t { kOpSend = 1, kOpWrite = 2, kOpRead = 4, kOpAtomic = 8, kOpAny = 15 };

constexpr uint32_t kAny = UINT32_MAX;

struct Rule {
  Action action = Action::Drop;
  uint32_t line = 0;  // also its part of the seed
  // What it does
  uint32_t us = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  bool executed = false;  // of Error
  std::string call;
  int error = 0;
  bool silent = false;
  KillAt kill_at = KillAt::Before;
  // When
  uint8_t ops = kOpAny;
  uint32_t qpn = kAny;
  uint32_t node = kAny;
  uint32_t device = kAny;
  uint32_t port = kAny;
  uint32_t slot = kAny;
  uint64_t nth = 0;    // 0: every match
  uint64_t every = 0;  // 0: every match
  uint64_t count = 0;  // 0: without end
  double prob = 1;
  bool has_seed = false;
  uint64_t seed = 0;
  uint32_t min_bytes = 0;
  // So far
  uint64_t matches = 0;
  uint64_t struck = 0;
};

// Errors are one line each, "line N: ..."; empty when all is well.
std::string parse_rules(const std::string& text, std::vector<Rule>& rules);
// The grammar as text, for people.
std::string grammar();

}  // namespace softhca::faults
