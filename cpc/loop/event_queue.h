// SPDX-License-Identifier: BSD-3-Clause
//
// One direction of the talk between the main thread and the progress thread: values go in, values come out, in order.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace fabric::cpc {

/// Any thread may push; one thread takes. Nothing waits, except for the mutex during a push or a swap.
template <class T>
class EventQueue {
 public:
  void push(T value) {
    const std::lock_guard lock(mutex_);
    values_.push_back(std::move(value));
    filled_.store(true, std::memory_order_relaxed);
  }

  /// One relaxed load, for the packet path: a value pushed just now may be seen at the next look only. The mutex of
  /// take() orders the values themselves.
  [[nodiscard]] bool filled() const noexcept { return filled_.load(std::memory_order_relaxed); }
  /// What filled() reads, for who cannot see this type.
  [[nodiscard]] const std::atomic<bool>& flag() const noexcept { return filled_; }

  /// Whoever takes is to look, though there may be nothing. For signal handlers too.
  /// What was written before is seen by who takes after that.
  void nudge() noexcept { filled_.store(true, std::memory_order_release); }

  /// Something could not be pushed, for want of memory. Any thread.
  void note_loss() noexcept {
    lost_.store(true, std::memory_order_relaxed);
    filled_.store(true, std::memory_order_relaxed);
  }
  /// True if something was lost since the last call. For the thread that takes, after take().
  [[nodiscard]] bool take_loss() noexcept { return lost_.exchange(false, std::memory_order_relaxed); }

  /// Everything pushed so far, oldest first.
  [[nodiscard]] std::vector<T> take() {
    std::vector<T> taken;
    const std::lock_guard lock(mutex_);
    taken.swap(values_);
    (void)filled_.exchange(false, std::memory_order_acquire);
    return taken;
  }

 private:
  std::mutex mutex_;
  std::vector<T> values_;
  std::atomic<bool> filled_ = false;
  std::atomic<bool> lost_ = false;
};

}  // namespace fabric::cpc
