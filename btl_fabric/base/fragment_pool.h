// SPDX-License-Identifier: BSD-3-Clause
//
// Registered message buffers, from Open MPI's free lists and registration cache.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "btl_fabric/base/atomic_targets.h"
#include "btl_fabric/base/fragment.h"
#include "btl_fabric/base/rdma_request.h"
#include "btl_fabric/base/registration.h"
#include "common/base/result.h"
#include "common/ports/port_scan.h"
#include "common/ports/process_info.h"
#include "cpc/queue_pairs/handshake_slab.h"

namespace fabric {

/// A device's registration cache. Every message buffer of the device is registered through it. Thread safe once the
/// modules are made, as Open MPI's cache is.
class RegistrationCache {
 public:
  [[nodiscard]] static Result<std::unique_ptr<RegistrationCache>> make(std::shared_ptr<OpenDevice> device,
                                                                       Transport transport);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  [[nodiscard]] mca_rcache_base_module_t* rcache() const noexcept { return rcache_; }
  [[nodiscard]] const OpenDevice& device() const noexcept { return *device_; }
  /// The device's handshake buffers; the progress thread's.
  [[nodiscard]] cpc::HandshakeSlab& handshakes() const noexcept { return *handshakes_; }
  /// What the RDMA operations of a transmit context share. Made when it is asked for first.
  [[nodiscard]] DeviceRdma& rdma(unsigned context);

  /// Module `index` of the process is of a port of the device, so that peers may reach the device's memory through it.
  void add_port(std::size_t index) noexcept { ports_ |= std::uint64_t{1} << (index % kMaxPorts); }
  /// Who executes atomics on this process's memory: one executor, as the device's and the processor's may not know of each
  /// other. Peers learn it with the handle.
  void set_atomics_by_device(bool by_device) noexcept { atomics_by_device_ = by_device; }
  /// The memory on which peers may have atomics executed by this process's processor.
  [[nodiscard]] const AtomicTargets& atomic_targets() const noexcept { return atomic_targets_; }

  /// Holds a registration of the user's memory to send from, new or cached, and its key; null if there can be none now.
  [[nodiscard]] mca_rcache_base_registration_t* hold(void* base, std::size_t size, std::uint32_t& lkey) const noexcept;
  /// Holds a registration for MCA_RCACHE_ACCESS_* `access`. Null if there can be none now.
  [[nodiscard]] mca_btl_base_registration_handle_t* hold_handle(void* base, std::size_t size,
                                                                std::int32_t access) const noexcept;

 private:
  RegistrationCache(std::shared_ptr<OpenDevice> device, Transport transport) noexcept
      : device_(std::move(device)), transport_(transport) {}
  static int register_region(void* cache, void* base, size_t size,
                             mca_rcache_base_registration_t* registration) noexcept;
  static int deregister_region(void* cache, mca_rcache_base_registration_t* registration) noexcept;
  void list(Registration& registration) noexcept;
  void unlist(const Registration& registration) noexcept;

  std::shared_ptr<OpenDevice> device_;
  mca_rcache_base_module_t* rcache_ = nullptr;
  std::unique_ptr<cpc::HandshakeSlab> handshakes_;
  std::vector<std::unique_ptr<DeviceRdma>> rdma_;  ///< one for each transmit context
  std::uint64_t ports_ = 0;
  const Transport transport_;  ///< of all ports of the device: on iWARP memory needs more access than elsewhere
  bool atomics_by_device_ = false;
  AtomicTargets atomic_targets_;
  std::mutex list_mutex_;
  Registration* newest_ = nullptr;  ///< of all that there are
};

/// Ends what RegistrationCache::hold() and hold_handle() have begun.
inline void let_go(mca_rcache_base_registration_t* registration) noexcept {
  registration->rcache->rcache_deregister(registration->rcache, registration);
}

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
