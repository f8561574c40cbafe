// SPDX-License-Identifier: BSD-3-Clause
//
// One port, in one transmit context: what Open MPI calls a BTL module. Owns the port's queues and its endpoints in this
// context. Open MPI knows the modules of the first context only.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "btl_fabric/base/counters.h"
#include "btl_fabric/base/opal.h"
#include "btl_fabric/base/registration_cache.h"
#include "btl_fabric/mca/chosen_queues.h"
#include "btl_fabric/mca/module_services.h"
#include "btl_fabric/peer/endpoints.h"
#include "common/accounting/context_locks.h"
#include "common/accounting/contexts.h"
#include "common/ports/port_scan.h"
#include "common/ports/protocol_limits.h"
#include "cpc/queue_pairs/queue_fit.h"

namespace fabric {

/// Where a module stands among those of the process.
struct ModulePlace {
  std::uint16_t index = 0;  ///< in the modex
  unsigned context = 0;
  ContextRoles contexts;  ///< of the port: the modules next to each other
};

/// Derives from Open MPI's table of functions and limits; btl_functions.cc fills in the functions. Everything here belongs
/// to whoever holds the lock of the module's context, except where noted.
class Module final : public mca_btl_base_module_t {
 public:
  /// Makes a module of `port`. `cache` outlives it.
  [[nodiscard]] static Result<std::unique_ptr<Module>> make(const UsablePort& port, RegistrationCache& cache,
                                                            const ChosenQueues& queues, const ModulePlace& place,
                                                            const mca_btl_base_module_t& table,
                                                            const LimitWishes& wishes);
  /// The connections must be gone: ConnectionManager destroyed, so that no queue pair is left.
  ~Module();

  /// Its endpoints and their packet path.
  [[nodiscard]] Endpoints& endpoints() noexcept { return endpoints_; }
  [[nodiscard]] PacketPath& path() noexcept { return endpoints_.path(); }

  // ---- What never changes, and belongs to all threads

  [[nodiscard]] const cpc::PortContext& context() const noexcept { return context_; }
  [[nodiscard]] const UsablePort& port() const noexcept { return port_; }
  [[nodiscard]] std::string name() const { return port_.name(); }
  [[nodiscard]] RegistrationCache& cache() const noexcept { return cache_; }
  /// The modules of the port, one for each context: all are there before the first is used.
  void set_family(std::span<const std::unique_ptr<Module>> family);
  [[nodiscard]] Module& in_context(unsigned number) const noexcept { return *family_[number]; }

  /// The port's limits of protocols, and why.
  [[nodiscard]] const ProtocolLimits& limits() const noexcept { return limits_; }
  /// True if so many bytes of a message that lie in one piece are to be sent from where they are.
  [[nodiscard]] bool sends_in_place(std::size_t size) const noexcept { return size >= in_place_size_; }
  /// Bytes of the longest message of the port, at most 1 GiB.
  [[nodiscard]] std::uint64_t max_message() const noexcept { return max_message_; }
  /// True if the device can execute atomics.
  [[nodiscard]] bool has_atomics() const noexcept {
    return port_.address.link != Transport::kIwarp && port_.device->attributes.atomic_cap != IBV_ATOMIC_NONE;
  }
  /// True if the device executes atomics on this process's memory; otherwise peers send messages, and its processor does.
  [[nodiscard]] bool atomics_by_device() const noexcept { return atomics_by_device_; }
  /// True if this process's own memory must be reached through the device too: its atomics and the processor's do not
  /// know of each other.
  [[nodiscard]] bool needs_loopback() const noexcept {
    return atomics_by_device_ && port_.device->attributes.atomic_cap != IBV_ATOMIC_GLOB && !cache_.is_lost();
  }
  /// The endpoint to this process itself, for one-sided operations: osc/rdma of 5.0 uses a BTL only if it reaches the
  /// process itself too, that of 4.1 does so as soon as a job has several hosts, and crashes where it cannot. Null if
  /// btl/self does not run: messages would come here then.
  [[nodiscard]] Endpoint* self_endpoint(opal_proc_t* self);

  /// Takes an asynchronous event of its device.
  /// btl_fabric_heal_timeout, or 0 where the device cannot have connections made anew.
  [[nodiscard]] std::chrono::seconds heal_timeout() const noexcept;
  void handle(const cpc::AsyncEvent& event) noexcept;
  /// Its device is gone, as another module of it may have heard too.
  void lose_device() noexcept;

  /// Where errors go, in all contexts; set by the PML on the module of the first.
  mca_btl_base_module_error_cb_fn_t error_callback = nullptr;

 private:
  Module(const UsablePort& port, RegistrationCache& cache, const ModulePlace& place, cpc::QueueFit fit,
         const mca_btl_base_module_t& table, const LimitWishes& wishes);
  [[nodiscard]] Result<PathQueues> make_queues() const;
  [[nodiscard]] EagerRdma eager_rdma() const noexcept;
  [[nodiscard]] std::unique_ptr<RingMemory> make_rings(const ReceiveQueues& queues) const;
  [[nodiscard]] Result<std::unique_ptr<SharedQueue>> make_shared_queue(const QueueSpec& spec,
                                                                       const PathQueues& queues) const;
  void learn_rdma_limits() noexcept;
  void choose_protocols(const LimitWishes& wishes);
  [[nodiscard]] MrPoolHints pool_hints() const noexcept;
  void make_path(PathQueues queues);
  void fill_context(const PathQueues& queues, const ChosenQueues& chosen);
  [[nodiscard]] bool is_of_port(const cpc::AsyncEvent& event) const noexcept;
  void check_address();

  const UsablePort port_;
  PortAddress address_ = port_.address;  ///< as it is now
  RegistrationCache& cache_;
  const ModulePlace place_;
  std::span<const std::unique_ptr<Module>> family_;
  const cpc::QueueFit fit_;
  std::optional<cpc::QueuePairBudget> budget_;
  std::optional<cpc::PathTable> path_table_;
  cpc::PortContext context_;
  std::uint64_t max_message_ = 0;
  ProtocolLimits limits_;
  std::size_t in_place_size_ = SIZE_MAX;
  bool atomics_by_device_ = false;
  bool reads_by_windows_ = false;
  ModuleServices services_;
  Endpoints endpoints_;
};

/// Processes of the job that this one was started with; 0 if that is not known.
[[nodiscard]] std::uint32_t job_size() noexcept;

/// Puts the functions into a module's table.
void set_btl_functions(mca_btl_base_module_t& module) noexcept;

}  // namespace fabric
