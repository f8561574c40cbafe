// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/robust_lock.h"

#include <sched.h>

#include "fabric/fabric.h"

namespace softhca {
namespace {

constexpr int kSpins = 100;         // then yield: the holder may not be running
constexpr int kYieldsPerLook = 64;  // then ask the kernel whether the holder lives

// Waits a little; every so often says that it is time to ask.
bool pause_or_look(int& rounds) {
  ++rounds;
  if (rounds < kSpins) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    return false;
  }
  sched_yield();
  return (rounds - kSpins) % kYieldsPerLook == kYieldsPerLook - 1;
}

bool holder_lives(RobustLock::Stamp holder) {
  Fabric* fabric = Fabric::get();
  return fabric == nullptr || fabric->alive(holder);
}

}  // namespace

void RobustLock::wait(Stamp me) {
  int rounds = 0;
  for (;;) {
    Stamp holder = holder_.load(std::memory_order_relaxed);
    if (holder == 0) {
      if (try_lock(me)) return;
      continue;
    }
    if (!pause_or_look(rounds) || holder_lives(holder)) continue;
    // Only one of those who wait wins.
    if (holder_.compare_exchange_strong(holder, me, std::memory_order_seq_cst)) return;
  }
}

void RobustLock::wait_for_release() const {
  const Stamp first = holder_.load(std::memory_order_seq_cst);
  int rounds = 0;
  while (first != 0 && holder_.load(std::memory_order_acquire) == first)
    if (pause_or_look(rounds) && !holder_lives(first)) return;
}

}  // namespace softhca
