// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A mutex of the threads of one process. It costs two atomic operations where nobody waits, and nothing that a call of a library
// would: most calls of a verbs program take one.
#include <atomic>
#include <cstdint>

#include "transport/futex.h"

namespace softhca {

class Mutex {
 public:
  void lock() {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  [[nodiscard]] bool try_lock() {
    uint32_t free = kFree;
    return state_.compare_exchange_strong(free, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kWaitedFor) [[unlikely]]
      wake();
  }

 private:
  enum : uint32_t { kFree, kHeld, kWaitedFor };

  // Who has waited holds it as one that others may wait for: that costs at most a call that wakes nobody.
  [[gnu::cold, gnu::noinline]] void wait() {
    while (state_.exchange(kWaitedFor, std::memory_order_acquire) != kFree) futex_wait(state_, kWaitedFor, nullptr);
  }
  [[gnu::cold, gnu::noinline]] void wake() { futex_wake_one(state_); }

  std::atomic<uint32_t> state_{kFree};
};

}  // namespace softhca
