// SPDX-License-Identifier: BSD-3-Clause
//
// The record that a RegionCache keeps of a memory region, and the handle to it that travels to peers.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>

#include "btl_fabric/base/opal.h"
#include "common/accounting/region_budget.h"
#include "common/rdma/access_flags.h"

namespace fabric {

/// Most devices that a region can be registered with at once, and a handle has keys of: it travels in each of ob1's messages
/// about a large one.
inline constexpr std::size_t kMostDevices = 4;

/// By what a peer reaches a region through one device. The ports of a device are next to each other in the modex.
struct DeviceKey {
  std::uint32_t rkey = 0;
  std::uint8_t first_port = 0;  ///< in the modex
  std::uint8_t ports = 0;       ///< how many, of all contexts and paths; 0: this is no key
  std::uint8_t device_atomics =
      0;  ///< 1: the device executes atomics on it, 0: the processor of the process whose it is
  std::uint8_t unused = 0;

  /// The region is reached through this port of the peer's.
  [[nodiscard]] bool is_for(std::uint16_t port) const noexcept {
    return port >= first_port && port - first_port < ports;
  }
  /// Those ports, a bit each.
  [[nodiscard]] std::uint64_t mask() const noexcept {
    const std::uint64_t low = ports < 64 ? (std::uint64_t{1} << ports) - 1 : ~std::uint64_t{0};
    return low << (first_port % 64);
  }
};

}  // namespace fabric

/// Open MPI declares the type and leaves it to the component. Peers get the bytes.
struct mca_btl_base_registration_handle_t {
  fabric::DeviceKey home;  ///< of the device that it was registered with: atomics go there, to one executor
  /// Other devices that know the region too, for large reads and writes.
  std::array<fabric::DeviceKey, fabric::kMostDevices - 1> others;

  /// The key for a port of the process whose region it is, or null.
  [[nodiscard]] const fabric::DeviceKey* key_for(std::uint16_t port) const noexcept {
    if (home.is_for(port)) {
      return &home;
    }
    for (const fabric::DeviceKey& other : others) {
      if (other.is_for(port)) {
        return &other;
      }
    }
    return nullptr;
  }
  /// A key of this handle is another device's than what messages to that port come by: what is written by it may be in memory after they
  /// are. The region can be read then, as each that several devices know.
  [[nodiscard]] bool is_aside(const fabric::DeviceKey& key, std::uint16_t port) const noexcept {
    const fabric::DeviceKey* const usual = key_for(port);
    return usual != nullptr && usual != &key;
  }
};

namespace fabric {

/// Set in a child of fork(2) of a process that uses the component. Memory regions, like all objects of a device, are the
/// parent's there: to deregister one would take it from the parent.
inline bool in_forked_child = false;

/// Set in the flags of registrations of buffers to receive into. One of those that Open MPI leaves to caches; "grdma" does not use
/// it.
inline constexpr std::uint32_t kRegistrationForReceives = MCA_RCACHE_FLAGS_MOD_RESV3;

/// Set in the flags of registrations of memory that peers write to and this process looks at: another of those.
inline constexpr std::uint32_t kRegistrationIsPolled = MCA_RCACHE_FLAGS_MOD_RESV2;

struct Registration;

/// A handle of this process knows what it belongs to.
struct OwnHandle : mca_btl_base_registration_handle_t {
  Registration* registration;
};

/// A region as one device knows it.
struct DeviceMemory {
  ibv_mr* mr;       ///< null: it does not
  unsigned access;  ///< what it was registered for
  RegionUse use;    ///< that it counts as
  OwnHandle handle;
};

struct Registration : mca_rcache_base_registration_t {
  std::array<DeviceMemory, kMostDevices>
      memory;           ///< by the device's place in the cache; that of message buffers is the first
  Registration* newer;  ///< of those that the RegionCache has: a list
  Registration* older;

  /// As the device of a protection domain knows it, or null.
  [[nodiscard]] DeviceMemory* with(const ibv_pd* pd) noexcept {
    for (DeviceMemory& one : memory) {
      if (one.mr != nullptr && one.mr->pd == pd) {
        return &one;
      }
    }
    return nullptr;
  }
  /// The same of any device by which peers can reach it.
  [[nodiscard]] DeviceMemory* with_any() noexcept {
    for (DeviceMemory& one : memory) {
      if (one.mr != nullptr && one.handle.home.ports > 0) {
        return &one;
      }
    }
    return nullptr;
  }
};

/// Stands for memory of this process's own operations that no region is left for: each of them registers it for itself, as soon as it
/// can (see MrPool). No peer can use it.
inline Registration unregistered{};
inline OwnHandle unregistered_handle{{}, &unregistered};

[[nodiscard]] inline Registration* registration_of(mca_btl_base_registration_handle_t* handle) noexcept {
  return static_cast<OwnHandle*>(handle)->registration;
}

/// The parts that memory may play whose registration was asked for with these MCA_RCACHE_ACCESS_* (the same as
/// MCA_BTL_REG_FLAG_*). It can always be sent and written from.
[[nodiscard]] constexpr MemoryRoles roles_of(std::int32_t access) noexcept {
  MemoryRoles roles = MemoryRole::kSendSource | MemoryRole::kWriteSource;
  if ((access & MCA_RCACHE_ACCESS_LOCAL_WRITE) != 0) {
    roles |= MemoryRole::kReceiveSink | MemoryRole::kReadSink;
  }
  if ((access & MCA_RCACHE_ACCESS_REMOTE_READ) != 0) {
    roles |= MemoryRole::kReadSource;
  }
  if ((access & MCA_RCACHE_ACCESS_REMOTE_WRITE) != 0) {
    roles |= MemoryRole::kWriteSink;
  }
  if ((access & MCA_RCACHE_ACCESS_REMOTE_ATOMIC) != 0) {
    roles |= MemoryRole::kAtomicTarget;
  }
  return roles;
}

}  // namespace fabric
