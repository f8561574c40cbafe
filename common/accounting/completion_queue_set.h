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

#include "common/accounting/send_completions.h"
#include "common/base/result.h"
#include "common/base/verbs_handle.h"

namespace fabric {

class CompletionQueueSet;

/// What a queue pair can have completed at once.
struct CompletionDemand {
  std::uint32_t own = 0;     ///< kept for it
  std::uint32_t shared = 0;  ///< sends beyond those, which may take turns with others' (SendCompletions)
};

/// Room for some completions in one completion queue; given back when destroyed. Give it back only after the queue pair
/// is gone and its completions are polled.
class CompletionQueueRoom {
 public:
  CompletionQueueRoom() = default;
  CompletionQueueRoom(CompletionQueueSet* set, std::size_t queue, const CompletionDemand& demand) noexcept
      : set_(set), queue_(queue), demand_(demand) {}
  CompletionQueueRoom(CompletionQueueRoom&& other) noexcept { swap(other); }
  CompletionQueueRoom& operator=(CompletionQueueRoom&& other) noexcept {
    swap(other);
    return *this;
  }
  ~CompletionQueueRoom();

  [[nodiscard]] ibv_cq* cq() const noexcept;
  /// Gives back room for so many completions, which cannot come.
  void reduce(std::uint32_t entries) noexcept;

 private:
  friend class CompletionQueueSet;
  void swap(CompletionQueueRoom& other) noexcept {
    std::swap(set_, other.set_);
    std::swap(queue_, other.queue_);
    std::swap(demand_, other.demand_);
    std::swap(is_extension_, other.is_extension_);
  }

  CompletionQueueSet* set_ = nullptr;
  std::size_t queue_ = 0;
  CompletionDemand demand_;
  bool is_extension_ = false;  ///< by extend()
};

/// reserve() may be called from any thread; polling is the main thread's business.
class CompletionQueueSet {
 public:
  static constexpr std::size_t kMaxQueues = 64;

  /// What the process should do with, for the peers that it knows of: so many queues, the last of which is so large. If more peers
  /// come, it makes more queues, as far as the device has them.
  struct Limits {
    std::size_t queues = kMaxQueues;
    std::uint32_t last_entries = 0;     ///< 0: as the others
    std::uint64_t at_first = 0;         ///< what the queue pairs to all those peers own when they are made
    std::uint32_t shared_sends = 2048;  ///< most entries of a queue for sends that share them
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

  /// Room for a queue pair's completions in one queue. Beside its own there are as many as its sends may share, up to
  /// Limits::shared_sends, or to what the device has.
  [[nodiscard]] Result<CompletionQueueRoom> reserve(const CompletionDemand& demand);
  [[nodiscard]] Result<CompletionQueueRoom> reserve(std::uint32_t entries) {
    return reserve(CompletionDemand{entries, 0});
  }

  /// Adds room for so many completions in `queue` to `room`, which is empty or has some there. False, and nothing has happened, if
  /// there are no more beyond what peers need that are still to connect (Limits::at_first), or another thread looks for some
  /// just now.
  [[nodiscard]] bool extend(const ibv_cq* queue, std::uint32_t entries, CompletionQueueRoom& room) noexcept;

  /// Queues to poll: `queue(0)` to `queue(count() - 1)`.
  [[nodiscard]] std::size_t count() const noexcept { return count_.load(std::memory_order_acquire); }
  /// The device is gone: there is no room from now on. For all threads.
  void lose_device() noexcept { is_lost_ = true; }
  [[nodiscard]] bool is_lost() const noexcept { return is_lost_.load(std::memory_order_relaxed); }
  /// The same, and there is nothing to poll any more.
  void stop() noexcept;
  [[nodiscard]] ibv_cq* queue(std::size_t index) const noexcept { return queues_[index].cq.get(); }
  /// What the sends of queue pairs on one of them share; null if it is none of them.
  [[nodiscard]] SendCompletions* sends_of(const ibv_cq* queue) noexcept;

 private:
  friend class CompletionQueueRoom;
  void release(std::size_t queue, const CompletionDemand& demand, bool is_extension) noexcept;

  struct Entry {
    CompletionQueue cq;
    std::uint32_t size = 0;
    std::uint32_t free = 0;
    std::uint32_t shared = 0;  ///< of those that are not free: for sends that share them
    std::uint64_t wanted = 0;  ///< by all its queue pairs, to share
    SendCompletions sends;
  };
  [[nodiscard]] std::uint32_t shared_for(const Entry& entry, std::uint32_t demand) const noexcept;
  [[nodiscard]] bool take(std::size_t queue, const CompletionDemand& demand) noexcept;
  [[nodiscard]] std::uint32_t size_of_next() const noexcept;
  [[nodiscard]] bool grow(std::size_t queue, std::uint32_t entries) noexcept;
  [[nodiscard]] bool can_spare(std::uint32_t entries) const noexcept;
  [[nodiscard]] Result<CompletionQueueRoom> make_another(const CompletionDemand& demand);

  ibv_context* device_;
  std::uint32_t entries_per_queue_;
  std::uint32_t max_entries_ = UINT32_MAX;  ///< of a queue of the device
  std::uint32_t shared_receives_;
  Limits limits_;
  std::mutex mutex_;            ///< guards sizes and the making of queues
  std::uint64_t at_first_ = 0;  ///< what the queue pairs that there are have owned when they were made
  std::array<Entry, kMaxQueues> queues_;
  std::size_t made_ = 0;  ///< of those
  std::atomic<bool> is_lost_ = false;
  std::atomic<std::size_t> count_ = 0;  ///< of those that are polled
};

}  // namespace fabric
