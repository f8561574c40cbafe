// SPDX-License-Identifier: BSD-3-Clause
//
// Registered message buffers, in Open MPI's free lists.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "btl_fabric/base/fragment.h"
#include "btl_fabric/base/region_cache.h"
#include "common/base/result.h"

namespace fabric {

/// Where message buffers come from: memory, and its registration with a device.
struct BufferSource {
  mca_mpool_base_module_t* memory;
  mca_rcache_base_module_t* registrations;  ///< whose records are Registrations
  std::string device;                       ///< its name
};

/// How many buffers a pool makes, and when.
struct PoolSizes {
  int initial = 0;
  int limit = 0;  ///< 0: none; one more is made for a Spare
  int increment = 32;
};

/// Buffers for the messages of one receive queue, one direction. Thread safe when Open MPI runs with threads.
class FragmentPool {
 public:
  /// `capacity`: bytes of a message after our header. `queue`: the receive queue's index.
  [[nodiscard]] static Result<std::unique_ptr<FragmentPool>> make(const BufferSource& source, std::uint8_t queue,
                                                                  bool receives, std::uint32_t capacity,
                                                                  const PoolSizes& sizes);
  ~FragmentPool();
  FragmentPool(const FragmentPool&) = delete;
  FragmentPool& operator=(const FragmentPool&) = delete;

  /// A buffer, or null when there is no memory left or none can be registered.
  [[nodiscard]] Fragment* get() noexcept {
    void* fragment = opal_free_list_get(&list_);
    if (fragment == nullptr) [[unlikely]] {
      fragment = get_spare();
    }
    takes_over(fragment);
    return static_cast<Fragment*>(fragment);
  }
  void put(Fragment* fragment) noexcept {
    gives_away(fragment);
    if (spare_.load(std::memory_order_relaxed) == kOut && put_spare(fragment)) [[unlikely]] {
      return;
    }
    opal_free_list_return(&list_, &fragment->super);
  }

  /// All that there may be have been made, and one of them is here.
  [[nodiscard]] bool has_come_back() noexcept { return is_at_limit() && !opal_lifo_is_empty(&list_.super); }

  /// The newest of all that it has made, whether they are in use or not; Fragment::made_before leads to the others.
  [[nodiscard]] Fragment* newest() const noexcept { return newest_.load(std::memory_order_acquire); }

  /// While one of these lives, its thread can have a buffer more than the limit: the upper layer is told of the end of a message whose
  /// buffer goes back afterwards, and sends now what it could not send for want of one. It does not try again later.
  class Spare {
   public:
    explicit Spare(const FragmentPool& pool) noexcept : pool_(pool), counts_(pool.is_at_limit()) {
      if (counts_) [[unlikely]] {
        begin();
      }
    }
    Spare(const Spare&) = delete;
    Spare& operator=(const Spare&) = delete;
    ~Spare() {
      if (counts_) [[unlikely]] {
        end();
      }
    }
    /// The calling thread has one of that pool.
    [[nodiscard]] static bool is_wanted_of(const FragmentPool& pool) noexcept;

   private:
    void begin() noexcept;
    void end() noexcept;
    const FragmentPool& pool_;
    const bool counts_;
    const Spare* outer_ = nullptr;  ///< of the same thread, of this pool or another
  };

 private:
  FragmentPool(std::uint8_t queue, bool receives, std::uint32_t capacity, int limit) noexcept;
  /// All buffers have been made, whether they are in use or not.
  [[nodiscard]] bool is_at_limit() const noexcept {
    return limit_ > 0 && list_.fl_num_allocated >= static_cast<std::size_t>(limit_);
  }
  [[nodiscard]] Fragment* get_spare() noexcept;
  [[nodiscard]] Fragment* make_spare() noexcept;
  /// False if another thread has given the spare one back meanwhile.
  [[nodiscard]] bool put_spare(Fragment* fragment) noexcept {
    std::uintptr_t expected = kOut;
    return spare_.compare_exchange_strong(expected, reinterpret_cast<std::uintptr_t>(fragment));
  }
  static int init_fragment(opal_free_list_item_t* item, void* pool) noexcept;

  opal_free_list_t list_;
  std::uint8_t queue_;
  bool receives_;
  std::uint32_t capacity_;
  const int limit_;  ///< 0: none
  // These belong to whoever makes some: the list has a lock for that. Anybody may look at the buffers that there are.
  std::size_t made_ = 0;
  std::atomic<Fragment*> newest_ = nullptr;
  // The buffer beyond the limit. While it is out, the next one that comes back takes its place.
  static constexpr std::uintptr_t kUnmade = 0;
  static constexpr std::uintptr_t kOut = 1;
  std::atomic<std::uintptr_t> spare_ = kUnmade;
};

/// A send buffer goes back to where it came from, and the user's memory that it holds is held no more. For all threads.
inline void put_back(Fragment* fragment) noexcept {
  if (fragment->user_memory != nullptr) {
    let_go(fragment->user_memory);
    fragment->user_memory = nullptr;
    fragment->des_segment_count = 1;
  }
  fragment->kind = PacketKind::kMessage;
  fragment->detours = 0;
  fragment->pool->put(fragment);
}

/// "this process may lock 64 KiB of memory (ulimit -l)": what a failed registration usually comes from.
[[nodiscard]] std::string memlock_hint();

}  // namespace fabric
