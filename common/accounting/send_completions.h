// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

namespace fabric {

/// Entries of a completion queue for sends that none of its queue pairs owns. A queue pair owns room for a few sends, and borrows
/// more from here while it sends much: so the queue grows with what can be under way, and not with the number of connections.
class SendCompletions {
 public:
  /// There are so many more. For all threads.
  void add(std::uint32_t count) noexcept { free_.fetch_add(count, std::memory_order_relaxed); }

  /// Takes up to `count`. Gives how many. For whoever holds the context's lock.
  [[nodiscard]] std::uint32_t take(std::uint32_t count) noexcept {
    std::uint32_t free = free_.load(std::memory_order_relaxed);
    while (!free_.compare_exchange_weak(free, free - (free < count ? free : count), std::memory_order_relaxed)) {
    }
    return free < count ? free : count;
  }
  /// The sends that they were taken for have ended, or were not posted.
  void give_back(std::uint32_t count) noexcept { add(count); }

  [[nodiscard]] std::uint32_t free() const noexcept { return free_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> free_ = 0;
};

}  // namespace fabric
