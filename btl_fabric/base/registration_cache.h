// SPDX-License-Identifier: BSD-3-Clause
//
// The memory of a device that is registered: Open MPI's registration cache, and what else there is one of in a device.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "btl_fabric/base/atomic_targets.h"
#include "btl_fabric/base/fragment_pool.h"
#include "btl_fabric/base/rdma_request.h"
#include "btl_fabric/base/registration.h"
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
class RegistrationCache {
 public:
  /// `regions`: memory regions of the device that are this process's; 0: that is not known, and no limit.
  [[nodiscard]] static Result<std::unique_ptr<RegistrationCache>> make(std::shared_ptr<OpenDevice> device,
                                                                       Transport transport, const Grant& regions);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  /// Where message buffers come from.
  [[nodiscard]] BufferSource buffers() const;
  /// The device's handshake buffers; the progress thread's.
  [[nodiscard]] cpc::HandshakeSlab& handshakes() const noexcept { return *handshakes_; }
  /// What the RDMA operations of a transmit context share. Made when it is asked for first, with those hints.
  [[nodiscard]] DeviceRdma& rdma(unsigned context, const MrPoolHints& hints);

  /// Module `index` of the process is of a port of the device, so that peers may reach the device's memory through it.
  void add_port(std::size_t index) noexcept { ports_ |= std::uint64_t{1} << (index % kMaxPorts); }
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
  /// Holds a registration for MCA_RCACHE_ACCESS_* `access`. Null if there can be none now.
  [[nodiscard]] mca_btl_base_registration_handle_t* hold_handle(void* base, std::size_t size,
                                                                std::int32_t access) const noexcept;

 private:
  RegistrationCache(std::shared_ptr<OpenDevice> device, Transport transport, const Grant& regions)
      : device_(std::move(device)),
        cost_(measure_registration(device_->pd.get())),
        budget_(regions.count, regions.why, [this] { return evict(); }),
        transport_(transport) {}
  [[nodiscard]] bool evict() noexcept;
  static int register_region(void* cache, void* base, size_t size,
                             mca_rcache_base_registration_t* registration) noexcept;
  static int deregister_region(void* cache, mca_rcache_base_registration_t* registration) noexcept;
  void list(Registration& registration) noexcept;
  void unlist(const Registration& registration) noexcept;

  std::shared_ptr<OpenDevice> device_;
  const RegistrationCost cost_;
  RegionBudget budget_;  ///< what the rest takes regions from
  mca_rcache_base_module_t* rcache_ = nullptr;
  std::unique_ptr<cpc::HandshakeSlab> handshakes_;
  std::vector<std::unique_ptr<DeviceRdma>> rdma_;  ///< one for each transmit context
  std::uint64_t ports_ = 0;
  const Transport transport_;  ///< of all ports of the device: on iWARP memory needs more access than elsewhere
  bool atomics_by_device_ = false;
  bool reads_by_windows_ = false;
  AtomicTargets atomic_targets_;
  std::mutex list_mutex_;
  Registration* newest_ = nullptr;  ///< of all that there are
};

}  // namespace fabric
