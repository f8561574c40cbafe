// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A spin lock in shared memory that outlives its holder: it names the process that holds it, and whoever waits takes it over
// when that process is gone. Critical sections are short or a memory copy; a waiter soon yields the processor.
#include <atomic>
#include <cstdint>

namespace softhca {

class RobustLock {
 public:
  // Who am I: never 0. The Fabric says (Fabric::stamp), and knows whether the holder of a stamp lives.
  using Stamp = uint32_t;

  void lock(Stamp me) {
    Stamp free = 0;
    if (!holder_.compare_exchange_strong(free, me, std::memory_order_seq_cst, std::memory_order_relaxed)) [[unlikely]]
      wait(me);
  }
  [[nodiscard]] bool try_lock(Stamp me) {
    Stamp free = 0;
    return holder_.compare_exchange_strong(free, me, std::memory_order_seq_cst, std::memory_order_relaxed);
  }
  void unlock() { holder_.store(0, std::memory_order_release); }

  // Returns when whoever held the lock at the time of the call has released it, or is dead.
  void wait_for_release() const;

 private:
  void wait(Stamp me);

  std::atomic<Stamp> holder_;  // 0: free
};

// Holds a lock for a scope.
class RobustGuard {
 public:
  RobustGuard(RobustLock& lock, RobustLock::Stamp me) : lock_(lock) { lock_.lock(me); }
  ~RobustGuard() { lock_.unlock(); }
  RobustGuard(const RobustGuard&) = delete;
  RobustGuard& operator=(const RobustGuard&) = delete;

 private:
  RobustLock& lock_;
};

}  // namespace softhca
