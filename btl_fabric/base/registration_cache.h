// SPDX-License-Identifier: BSD-3-Clause
//
// The memory of a device that is registered: its cache, and what else there is one of in a device.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "btl_fabric/base/atomic_targets.h"
#include "btl_fabric/base/fragment_pool.h"
#include "btl_fabric/base/rdma_request.h"
#include "btl_fabric/base/region_cache.h"
#include "common/accounting/contexts.h"
#include "common/accounting/region_budget.h"
#include "common/base/result.h"
#include "common/ports/port_scan.h"
#include "common/ports/process_info.h"
#include "common/ports/registration_cost.h"
#include "cpc/queue_pairs/handshake_slab.h"

namespace fabric {

/// A device's registration cache. Every message buffer of the device is registered through it. Thread safe once the
/// modules are made, as Open MPI's cache is.
class RegistrationCache final : private MemoryDevice {
 public:
  /// `regions`: memory regions of the device that are this process's; 0: that is not known, and no limit.
  [[nodiscard]] static Result<std::unique_ptr<RegistrationCache>> make(std::shared_ptr<OpenDevice> device,
                                                                       Transport transport, const Grant& regions,
                                                                       const AccessWishes& wishes);
  ~RegistrationCache() override = default;
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  /// The device is gone. What is registered with it is forgotten. Message buffers and memory to send from need no region from now on,
  /// since they go by another device, and what else is asked for is registered with those that are there. True the first time. For all
  /// threads.
  bool lose_device() noexcept;
  [[nodiscard]] bool is_lost() const noexcept { return is_lost_.load(std::memory_order_relaxed); }

  /// Where message buffers come from.
  [[nodiscard]] BufferSource buffers() const;
  /// The device's handshake buffers; the progress thread's.
  [[nodiscard]] cpc::HandshakeSlab& handshakes() const noexcept { return *handshakes_; }
  /// What the RDMA operations of a transmit context share. Made when it is asked for first, with those hints.
  [[nodiscard]] DeviceRdma& rdma(unsigned context, const MrPoolHints& hints);

  /// Module `index` of the process is of a port of the device, so that peers may reach the device's memory through it.
  /// Those of a device are added one after the other.
  void add_port(std::size_t index) noexcept {
    first_port_ = ports_ == 0 ? static_cast<std::uint8_t>(index) : first_port_;
    ++ports_;
  }
  /// Who executes atomics on this process's memory: one executor, as the device's and the processor's may not know of each
  /// other. Peers learn it with the handle.
  void set_atomics_by_device(bool by_device) noexcept { atomics_by_device_ = by_device; }
  /// What registrations cost, found by making some.
  [[nodiscard]] const RegistrationCost& cost() const noexcept { return cost_; }
  /// Memory that is only read into needs no remote write access on iWARP: windows are bound for the reads.
  void set_reads_by_windows(bool by_windows) noexcept { reads_by_windows_ = by_windows; }
  /// The memory on which peers may have atomics executed by this process's processor.
  [[nodiscard]] const AtomicTargets& atomic_targets() const noexcept { return atomic_targets_; }

  /// Holds a registration of the user's memory to send from, new or cached, and its key; null if there can be none now.
  [[nodiscard]] mca_rcache_base_registration_t* hold(void* base, std::size_t size, std::uint32_t& lkey) const noexcept;
  /// Holds a registration for MCA_RCACHE_ACCESS_* `access`; of large memory one with other devices too, if they share_large().
  /// Where only this process uses the memory: that of `unregistered` if no region is left, `staged_handle` if the memory is an
  /// accelerator's and btl_fabric_device_memory_direct is not wanted, or cannot be. Null if there can be none now.
  [[nodiscard]] mca_btl_base_registration_handle_t* hold_handle(void* base, std::size_t size,
                                                                std::int32_t access) const noexcept;
  /// Ends what hold_handle() has begun.
  static void let_go(mca_btl_base_registration_handle_t* handle) noexcept;

  /// So many that each region may be registered with other devices too.
  [[nodiscard]] bool has_many_regions() const noexcept {
    constexpr std::int64_t kMany = 1024;
    return budget_.granted() <= 0 || budget_.granted() >= kMany;
  }
  /// Registers memory of at least `least` bytes that peers or large reads and writes use with all of `caches`, 2 to kMostDevices,
  /// at once. What is made must go before they do. Before the first handle is held.
  [[nodiscard]] static Result<std::unique_ptr<RegionCache>> share_large(const std::vector<RegistrationCache*>& caches,
                                                                        std::size_t least);

 private:
  RegistrationCache(std::shared_ptr<OpenDevice> device, Transport transport, const Grant& regions,
                    const AccessWishes& wishes)
      : device_(std::move(device)),
        cost_(measure_registration(device_->pd.get())),
        budget_(regions.count, regions.why, [this] { return evict(); }),
        transport_(transport),
        wishes_(wishes) {}
  [[nodiscard]] mca_btl_base_registration_handle_t* hold_with_all(void* base, std::size_t size,
                                                                  std::int32_t access) const noexcept;
  [[nodiscard]] bool is_gone() const noexcept;
  [[nodiscard]] mca_btl_base_registration_handle_t* hold_on_device(void* base, std::size_t size,
                                                                   std::int32_t access) const noexcept;
  [[nodiscard]] ibv_mr* register_on_device(void* base, std::size_t size, unsigned access) noexcept;
  [[nodiscard]] bool evict() noexcept;
  [[nodiscard]] bool register_region(DeviceMemory& memory, void* base, std::size_t size, MemoryRoles roles,
                                     RegionUse use) noexcept override;
  [[nodiscard]] bool deregister_region(DeviceMemory& memory) noexcept override;
  [[nodiscard]] bool becomes_sink(DeviceMemory& memory) noexcept override;

  std::shared_ptr<OpenDevice> device_;
  const RegistrationCost cost_;
  RegionBudget budget_;  ///< what the rest takes regions from
  std::unique_ptr<cpc::HandshakeSlab> handshakes_;
  std::vector<std::unique_ptr<DeviceRdma>> rdma_;  ///< one for each transmit context
  std::uint8_t first_port_ = 0;
  std::uint8_t ports_ = 0;
  const Transport transport_;  ///< of all ports of the device: on iWARP memory needs more access than elsewhere
  const AccessWishes wishes_;
  bool atomics_by_device_ = false;
  bool reads_by_windows_ = false;
  AtomicTargets atomic_targets_;
  std::unique_ptr<RegionCache> own_;
  std::atomic<bool> is_lost_ = false;
  std::atomic<bool> has_dmabuf_ = true;  ///< as far as it is known
  ibv_mr no_region_{};                   ///< of what needs none, when the device is gone
  const RegionCache* shared_ = nullptr;  ///< of large memory; null: there is none
  std::size_t shared_least_ = 0;         ///< bytes that are large
};

}  // namespace fabric
