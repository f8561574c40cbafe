// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A word in shared memory that says whether the process that holds it runs, without a call of the kernel: it is a robust
// futex of a thread that lasts as long as the process. The kernel marks it when that process ends or calls exec, however that
// comes about, and does so before it gives up the process's memory and, much later, its number (set_robust_list(2)). So
// whoever has just seen the word unmarked may use the number: it is not another's.
//
// Other threads of the process may still run for some microseconds when the word is marked. Who wants to take over what
// they hold has to ask for the record lock (Fabric::alive).
#include <linux/futex.h>

#include <atomic>
#include <cstdint>

namespace softhca {

enum class Life : uint8_t {
  Unknown,  // nobody holds the word (yet, or because the kernel has no robust futexes)
  Runs,
  Ended,
};

inline Life life_of(uint32_t word) {
  if ((word & FUTEX_OWNER_DIED) != 0) return Life::Ended;
  return word == 0 ? Life::Unknown : Life::Runs;
}

// The calling thread, one of softhca's own, holds the word from now on.
void hold(std::atomic<uint32_t>& word);

}  // namespace softhca
