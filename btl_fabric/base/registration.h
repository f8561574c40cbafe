// SPDX-License-Identifier: BSD-3-Clause
//
// The registration cache's record of one memory region, and the handle to it that travels to peers.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "btl_fabric/base/opal.h"
#include "common/accounting/region_budget.h"
#include "common/rdma/access_flags.h"

/// Open MPI declares the type and leaves it to the component. Peers get the bytes.
struct mca_btl_base_registration_handle_t {
  std::uint64_t ports;  ///< which of its process's ports it is for, a bit each: those of one device
  std::uint32_t rkey;
  std::uint32_t device_atomics;  ///< 1: the device executes atomics on it, 0: the processor of the process whose it is
};

namespace fabric {

/// Set in a child of fork(2) of a process that uses the component. Memory regions, like all objects of a device, are the
/// parent's there: to deregister one would take it from the parent.
inline bool in_forked_child = false;

/// Set in the flags of registrations of buffers to receive into. One of those that Open MPI leaves to caches; "grdma" does not use
/// it.
inline constexpr std::uint32_t kRegistrationForReceives = MCA_RCACHE_FLAGS_MOD_RESV3;

struct Registration;

/// A handle of this process knows what it belongs to.
struct OwnHandle : mca_btl_base_registration_handle_t {
  Registration* registration;
};

struct Registration : mca_rcache_base_registration_t {
  ibv_mr* mr;
  unsigned access;  ///< what it was registered for
  RegionUse use;    ///< that it counts as
  OwnHandle handle;
  Registration* newer;  ///< of those that the RegistrationCache has: a list
  Registration* older;
};

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
