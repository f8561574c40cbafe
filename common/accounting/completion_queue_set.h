// SPDX-License-Identifier: BSD-3-Clause
//
// The completion queues of a port. Queue pairs reserve room for every completion they can ever have outstanding, so
// that none overruns. A queue that is full grows (ibv_resize_cq(3)): one queue costs a look at one queue, however many peers
// there are. Where the device cannot do that, or the queue is as large as it makes them, another one is made.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "common/base/result.h"
#include "common/base/verbs_handle.h"

namespace fabric {

class CompletionQueueSet;

/// Room for some completions in one completion queue; given back when destroyed. Give it back only after the queue pair
/// is gone and its completions are polled.
class CompletionQueueRoom {
 public:
  CompletionQueueRoom() = default;
  CompletionQueueRoom(CompletionQueueSet* set, std::size_t queue, std::uint32_t entries) noexcept
      : set_(set), queue_(queue), entries_(entries) {}
  CompletionQueueRoom(CompletionQueueRoom&& other) noexcept { swap(other); }
  CompletionQueueRoom& operator=(CompletionQueueRoom&& other) noexcept {
    swap(other);
    return *this;
  }
  ~CompletionQueueRoom();

  [[nodiscard]] ibv_cq* cq() const noexcept;

 private:
  void swap(CompletionQueueRoom& other) noexcept {
    std::swap(set_, other.set_);
    std::swap(queue_, other.queue_);
    std::swap(entries_, other.entries_);
  }

  CompletionQueueSet* set_ = nullptr;
  std::size_t queue_ = 0;
  std::uint32_t entries_ = 0;
};

/// reserve() may be called from any thread; polling is the main thread's business.
class CompletionQueueSet {
 public:
  static constexpr std::size_t kMaxQueues = 64;

  /// What the process should do with, for the peers that it knows of: so many queues, the last of which is so large. If more peers
  /// come, it makes more queues, as far as the device has them.
  struct Limits {
    std::size_t queues = kMaxQueues;
    std::uint32_t last_entries = 0;  ///< 0: as the others
    bool may_resize = true;
  };

  /// A queue of `entries_per_queue` completions (lowered to what the device can), which grows by as many, or by a quarter of
  /// what there is already if that is more; the same goes for the size of another one. `shared_receives` of them are kept in
  /// every queue for the receives of the port's shared receive queues, which can complete on any.
  CompletionQueueSet(ibv_context* device, std::uint32_t entries_per_queue, std::uint32_t shared_receives) noexcept
      : CompletionQueueSet(device, entries_per_queue, shared_receives, Limits{}) {}
  CompletionQueueSet(ibv_context* device, std::uint32_t entries_per_queue, std::uint32_t shared_receives,
                     const Limits& limits) noexcept;
  ~CompletionQueueSet();
  CompletionQueueSet(const CompletionQueueSet&) = delete;
  CompletionQueueSet& operator=(const CompletionQueueSet&) = delete;

  /// Room for `entries` completions in one queue.
  [[nodiscard]] Result<CompletionQueueRoom> reserve(std::uint32_t entries);

  /// Queues to poll: `queue(0)` to `queue(count() - 1)`.
  [[nodiscard]] std::size_t count() const noexcept { return count_.load(std::memory_order_acquire); }
  [[nodiscard]] ibv_cq* queue(std::size_t index) const noexcept { return queues_[index].cq.get(); }

 private:
  friend class CompletionQueueRoom;
  void release(std::size_t queue, std::uint32_t entries) noexcept;

  struct Entry {
    CompletionQueue cq;
    std::uint32_t size = 0;
    std::uint32_t free = 0;
  };
  [[nodiscard]] std::uint32_t size_of_next() const noexcept;
  [[nodiscard]] bool grow(std::size_t queue, std::uint32_t entries) noexcept;
  [[nodiscard]] Result<CompletionQueueRoom> make_another(std::uint32_t entries);

  ibv_context* device_;
  std::uint32_t entries_per_queue_;
  std::uint32_t max_entries_ = UINT32_MAX;  ///< of a queue of the device
  std::uint32_t shared_receives_;
  Limits limits_;
  std::mutex mutex_;  ///< guards sizes and the making of queues
  std::array<Entry, kMaxQueues> queues_;
  std::atomic<std::size_t> count_ = 0;
};

}  // namespace fabric
