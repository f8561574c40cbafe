// SPDX-License-Identifier: BSD-3-Clause
#include "common/accounting/context_locks.h"

#include <atomic>
#include <cassert>

namespace fabric {

constinit thread_local ContextLocks::Thread ContextLocks::thread_;

[[gnu::cold]] const ContextLocks::Thread& ContextLocks::choose() const noexcept {
  static std::atomic<unsigned> threads_seen = 0;
  if (thread_.number == kNone) {
    thread_.number = threads_seen.fetch_add(1, std::memory_order_relaxed);
  }
  thread_.transmit = thread_.number % roles_.transmit;
  thread_.receive = thread_.number % roles_.receive;
  return thread_;
}

/// From the highest down, as the rule wants it.
ContextLocks::All ContextLocks::lock_all() noexcept {
  if (!threaded_) {
    return {};
  }
  assert(!holds_some());
  All all(*this);
  if (thread_.held.contexts == 0) {
    for (unsigned context = contexts_; context-- > 0;) {
      locks_[context].mutex.lock();
    }
  }
  thread_.held = {every(), 0};
  return all;
}

ContextLocks::All::~All() {
  if (locks_ == nullptr) {
    return;
  }
  thread_.held = before_;
  for (unsigned context = 0; before_.contexts == 0 && context < locks_->contexts_; ++context) {
    locks_->locks_[context].mutex.unlock();
  }
}

}  // namespace fabric
