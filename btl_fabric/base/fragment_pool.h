// SPDX-License-Identifier: BSD-3-Clause
//
// Registered message buffers, in Open MPI's free lists.
#pragma once

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
  int limit = 0;  ///< 0: none
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
    void* const fragment = opal_free_list_get(&list_);
    takes_over(fragment);
    return static_cast<Fragment*>(fragment);
  }
  void put(Fragment* fragment) noexcept {
    gives_away(fragment);
    opal_free_list_return(&list_, &fragment->super);
  }

 private:
  FragmentPool(std::uint8_t queue, bool receives, std::uint32_t capacity) noexcept;
  static int init_fragment(opal_free_list_item_t* item, void* pool) noexcept;

  opal_free_list_t list_;
  std::uint8_t queue_;
  bool receives_;
  std::uint32_t capacity_;
};

/// A send buffer goes back to where it came from, and the user's memory that it holds is held no more. For all threads.
inline void put_back(Fragment* fragment) noexcept {
  if (fragment->user_memory != nullptr) {
    let_go(fragment->user_memory);
    fragment->user_memory = nullptr;
    fragment->des_segment_count = 1;
  }
  fragment->kind = PacketKind::kMessage;
  fragment->pool->put(fragment);
}

/// "this process may lock 64 KiB of memory (ulimit -l)": what a failed registration usually comes from.
[[nodiscard]] std::string memlock_hint();

}  // namespace fabric
