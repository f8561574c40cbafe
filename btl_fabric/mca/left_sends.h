// SPDX-License-Identifier: BSD-3-Clause
//
// Messages that were directed to a context whose lock the sender could not wait for: it was in a callback, with the lock of
// another. They are left with the context, and whoever has its lock next sends them, in order.
#pragma once

#include <array>
#include <atomic>
#include <mutex>

#include "btl_fabric/base/fragment.h"
#include "common/accounting/context_locks.h"

namespace fabric {

/// For all threads. Nobody is called with its locks.
class LeftSends {
 public:
  /// `fragment` has its tag; `endpoint`: the one that Open MPI knows. Its callback is due from now on.
  void leave(unsigned context, Fragment& fragment, mca_btl_base_endpoint_t* endpoint) noexcept {
    fragment.directed_to = endpoint;
    fragment.callback_due = true;
    Context& one = contexts_[context];
    const std::lock_guard guard(one.mutex);
    one.fragments.push_back(&fragment);
    one.has_some.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool has_some(unsigned context) const noexcept {
    return contexts_[context].has_some.load(std::memory_order_acquire);
  }
  /// The oldest, or null. For whoever holds the lock of the context.
  [[nodiscard]] Fragment* take(unsigned context) noexcept {
    Context& one = contexts_[context];
    const std::lock_guard guard(one.mutex);
    Fragment* const first = one.fragments.empty() ? nullptr : one.fragments.pop_front();
    one.has_some.store(!one.fragments.empty(), std::memory_order_relaxed);
    return first;
  }

 private:
  struct alignas(64) Context {
    std::atomic<bool> has_some = false;
    std::mutex mutex;
    FragmentQueue fragments;
  };
  std::array<Context, kMostContexts> contexts_;
};

}  // namespace fabric
