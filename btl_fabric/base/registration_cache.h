// SPDX-License-Identifier: BSD-3-Clause
//
// The memory of a device that is registered: its cache, and what else there is one of in a device.
#pragma once

#include <memory>
#include <vector>

#include "btl_fabric/base/atomic_targets.h"
#include "btl_fabric/base/fragment_pool.h"
#include "btl_fabric/base/rdma_request.h"
#include "btl_fabric/base/region_cache.h"
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
  [[nodiscard]] static Result<std::unique_ptr<RegistrationCache>> make(std::shared_ptr<OpenDevice> device,
                                                                       Transport transport);
  ~RegistrationCache() override = default;
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  /// Where message buffers come from.
  [[nodiscard]] BufferSource buffers() const;
  /// The device's handshake buffers; the progress thread's.
  [[nodiscard]] cpc::HandshakeSlab& handshakes() const noexcept { return *handshakes_; }
  /// What the RDMA operations of a transmit context share. Made when it is asked for first.
  [[nodiscard]] DeviceRdma& rdma(unsigned context);

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
  /// The memory on which peers may have atomics executed by this process's processor.
  [[nodiscard]] const AtomicTargets& atomic_targets() const noexcept { return atomic_targets_; }

  /// Holds a registration of the user's memory to send from, new or cached, and its key; null if there can be none now.
  [[nodiscard]] mca_rcache_base_registration_t* hold(void* base, std::size_t size, std::uint32_t& lkey) const noexcept;
  /// Holds a registration for MCA_RCACHE_ACCESS_* `access`; of large memory one with other devices too, if they share_large().
  /// Null if there can be none now.
  [[nodiscard]] mca_btl_base_registration_handle_t* hold_handle(void* base, std::size_t size,
                                                                std::int32_t access) const noexcept;

  /// Registers memory of at least `least` bytes that peers or large reads and writes use with all of `caches`, 2 to kMostDevices,
  /// at once. What is made must go before they do. Before the first handle is held.
  [[nodiscard]] static Result<std::unique_ptr<RegionCache>> share_large(const std::vector<RegistrationCache*>& caches,
                                                                        std::size_t least);

 private:
  RegistrationCache(std::shared_ptr<OpenDevice> device, Transport transport) noexcept
      : device_(std::move(device)), cost_(measure_registration(device_->pd.get())), transport_(transport) {}
  [[nodiscard]] bool register_region(DeviceMemory& memory, void* base, std::size_t size,
                                     MemoryRoles roles) noexcept override;
  [[nodiscard]] bool deregister_region(DeviceMemory& memory) noexcept override;

  std::shared_ptr<OpenDevice> device_;
  const RegistrationCost cost_;
  std::unique_ptr<cpc::HandshakeSlab> handshakes_;
  std::vector<std::unique_ptr<DeviceRdma>> rdma_;  ///< one for each transmit context
  std::uint8_t first_port_ = 0;
  std::uint8_t ports_ = 0;
  const Transport transport_;  ///< of all ports of the device: on iWARP memory needs more access than elsewhere
  bool atomics_by_device_ = false;
  AtomicTargets atomic_targets_;
  std::unique_ptr<RegionCache> own_;
  const RegionCache* shared_ = nullptr;  ///< of large memory; null: there is none
  std::size_t shared_least_ = 0;         ///< bytes that are large
};

}  // namespace fabric
