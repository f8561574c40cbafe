// SPDX-License-Identifier: BSD-3-Clause
//
// Open MPI's registration cache, of memory that is registered with a device, or with several at once.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "btl_fabric/base/registration.h"
#include "common/base/result.h"

namespace fabric {

/// What the user's memory is for that is asked for with MCA_RCACHE_ACCESS_* `access`. What peers read or write stays until they say
/// that they have. If that took all there is on both sides, neither could: so it is told apart, and from what this process reads and
/// writes by itself. For its own reads Open MPI asks for memory that peers may write to as well: iWARP wants that.
[[nodiscard]] RegionUse use_of(std::int32_t access) noexcept;

/// What registers memory with one device.
class MemoryDevice {
 public:
  virtual ~MemoryDevice() = default;
  /// Registers a region to play `roles`, and fills in all of `memory` but whose the handle is and the keys of others. False, and
  /// no mr, if that cannot be done now.
  [[nodiscard]] virtual bool register_region(DeviceMemory& memory, void* base, std::size_t size, MemoryRoles roles,
                                             RegionUse use) noexcept = 0;
  /// False if the device refuses; without an mr it does nothing.
  [[nodiscard]] virtual bool deregister_region(DeviceMemory& memory) noexcept = 0;
  /// It counts as one that peers write to, if it was of this process's operations. False if there is none left for that now.
  [[nodiscard]] virtual bool becomes_sink(DeviceMemory& memory) noexcept = 0;
};

/// For all threads: see cache_guard.h.
class RegionCache {
 public:
  /// `name`: caches of the same name share what they keep. `devices`: 1 to kMostDevices, which outlive it. A region that only
  /// some of several devices can register is theirs alone.
  [[nodiscard]] static Result<std::unique_ptr<RegionCache>> make(std::string name, std::vector<MemoryDevice*> devices);
  ~RegionCache();
  RegionCache(const RegionCache&) = delete;
  RegionCache& operator=(const RegionCache&) = delete;

  /// Open MPI's, whose records are Registrations.
  [[nodiscard]] mca_rcache_base_module_t* records() const noexcept { return rcache_; }

  /// Deregisters something that is kept only because somebody may want it again. False if there is nothing.
  [[nodiscard]] bool evict() const noexcept { return rcache_->rcache_evict(rcache_); }

  /// A region for MCA_RCACHE_ACCESS_* `access`, new or cached, until let_go(). Null if there can be none now.
  /// `flags`: MCA_RCACHE_FLAGS_*.
  [[nodiscard]] Registration* hold(void* base, std::size_t size, std::int32_t access,
                                   std::uint32_t flags = 0) const noexcept;

 private:
  explicit RegionCache(std::vector<MemoryDevice*> devices) noexcept : devices_(std::move(devices)) {}
  static int register_region(void* cache, void* base, size_t size,
                             mca_rcache_base_registration_t* registration) noexcept;
  static int deregister_region(void* cache, mca_rcache_base_registration_t* registration) noexcept;
  [[nodiscard]] bool register_with_all(Registration& registration, void* base, std::size_t size, MemoryRoles roles,
                                       RegionUse use) noexcept;
  [[nodiscard]] bool deregister(Registration& registration) noexcept;
  [[nodiscard]] bool becomes_sink(Registration& registration) const noexcept;
  void list(Registration& registration) noexcept;
  void unlist(const Registration& registration) noexcept;

  const std::vector<MemoryDevice*> devices_;
  mca_rcache_base_module_t* rcache_ = nullptr;
  std::mutex list_mutex_;
  Registration* newest_ = nullptr;  ///< of all that there are
};

/// Ends what hold() has begun.
inline void let_go(mca_rcache_base_registration_t* registration) noexcept {
  registration->rcache->rcache_deregister(registration->rcache, registration);
}

}  // namespace fabric
