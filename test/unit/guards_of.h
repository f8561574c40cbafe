// SPDX-License-Identifier: BSD-3-Clause
//
// The guards that bits stand for: guard_bits() of common/base/state_table.h the other way.
#pragma once

#include "common/base/state_table.h"

namespace fabric::test {

template <class Facts, std::size_t kGuards>
[[nodiscard]] Facts guards_of(const GuardList<Facts, kGuards>& list, unsigned bits) {
  Facts facts;
  for (std::size_t i = 0; i < kGuards; ++i) {
    facts.*list[i].fact = (bits >> i & 1U) != 0;
  }
  return facts;
}

}  // namespace fabric::test
