// SPDX-License-Identifier: BSD-3-Clause
//
// Registered message buffers, from Open MPI's free lists and registration cache.
#pragma once

#include <memory>

#include "btl_fabric/fragment.h"
#include "common/port_scan.h"
#include "common/result.h"

namespace fabric {

/// A device's registration cache. Every message buffer of the device is registered through it.
class RegistrationCache {
 public:
  [[nodiscard]] static Result<std::unique_ptr<RegistrationCache>> make(std::shared_ptr<OpenDevice> device);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  [[nodiscard]] mca_rcache_base_module_t* rcache() const noexcept { return rcache_; }
  [[nodiscard]] const OpenDevice& device() const noexcept { return *device_; }

  /// Holds a registration of the user's memory to send from, new or cached, and its key; null if there can be none now.
  [[nodiscard]] mca_rcache_base_registration_t* hold(void* base, std::size_t size, std::uint32_t& lkey) const noexcept;
  void let_go(mca_rcache_base_registration_t* registration) const noexcept {
    rcache_->rcache_deregister(rcache_, registration);
  }

 private:
  explicit RegistrationCache(std::shared_ptr<OpenDevice> device) noexcept : device_(std::move(device)) {}

  std::shared_ptr<OpenDevice> device_;
  mca_rcache_base_module_t* rcache_ = nullptr;
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
  [[nodiscard]] static Result<std::unique_ptr<FragmentPool>> make(const RegistrationCache& cache, std::uint8_t queue,
                                                                  bool receives, std::uint32_t capacity,
                                                                  const PoolSizes& sizes);
  ~FragmentPool();
  FragmentPool(const FragmentPool&) = delete;
  FragmentPool& operator=(const FragmentPool&) = delete;

  /// A buffer, or null when there is no memory left or none can be registered.
  [[nodiscard]] Fragment* get() noexcept {
    return static_cast<Fragment*>(static_cast<void*>(opal_free_list_get(&list_)));
  }
  void put(Fragment* fragment) noexcept { opal_free_list_return(&list_, &fragment->super); }

 private:
  FragmentPool(std::uint8_t queue, bool receives, std::uint32_t capacity) noexcept;
  static int init_fragment(opal_free_list_item_t* item, void* pool) noexcept;

  opal_free_list_t list_;
  std::uint8_t queue_;
  bool receives_;
  std::uint32_t capacity_;
};

/// "this process may lock 64 KiB of memory (ulimit -l)": what a failed registration usually comes from.
[[nodiscard]] std::string memlock_hint();

}  // namespace fabric
