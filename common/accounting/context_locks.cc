// SPDX-License-Identifier: BSD-3-Clause
#include "common/accounting/context_locks.h"

#include <atomic>
#include <cassert>

namespace fabric {

thread_local ContextLocks::Held ContextLocks::held_;
thread_local unsigned ContextLocks::held_all_ = 0;

unsigned ContextLocks::own() const noexcept {
  static std::atomic<unsigned> threads_seen = 0;
  static thread_local const unsigned number = threads_seen.fetch_add(1, std::memory_order_relaxed);
  return number % contexts_;
}

ContextLocks::Guard ContextLocks::wait_for(unsigned context) noexcept {
  assert(context < contexts_ && (context <= held_.lowest || context == held_.innermost || held_all_ > 0));
  locks_[context].mutex.lock();
  return {locks_[context].mutex, context};
}

std::optional<ContextLocks::Guard> ContextLocks::take_if_free(unsigned context) noexcept {
  if (!locks_[context].mutex.try_lock()) {
    return std::nullopt;
  }
  return Guard(locks_[context].mutex, context);
}

/// From the highest down, as the rule wants it.
ContextLocks::All ContextLocks::lock_all() noexcept {
  if (!threaded_) {
    return {};
  }
  assert(!holds_some());
  for (unsigned context = contexts_; context-- > 0;) {
    locks_[context].mutex.lock();
  }
  ++held_all_;
  return All(*this);
}

ContextLocks::All::~All() {
  if (locks_ != nullptr) {
    held_ = before_;
    --held_all_;
    for (unsigned context = 0; context < locks_->contexts_; ++context) {
      locks_->locks_[context].mutex.unlock();
    }
  }
}

}  // namespace fabric
