// SPDX-License-Identifier: BSD-3-Clause
//
// The memory of GPUs and other accelerators, which Open MPI 5.0 knows by a framework of its own: neither may the processor touch
// it, nor is it registered here. Messages from and to it are copied by Open MPI's convertors; what reads and writes of this process's own
// have there goes through buffers (mca/staged_transfers.h).
#pragma once

#include "btl_fabric/base/opal.h"
#include "btl_fabric/base/registration.h"

namespace fabric {

/// Open MPI has found an accelerator, so that the user's memory may be one's. Set when the component starts, before any memory is
/// seen.
inline bool may_be_on_device = false;

/// True if memory is an accelerator's; of a range its first byte tells.
[[nodiscard]] inline bool is_on_device(const void* address) noexcept {
  return may_be_on_device && is_on_accelerator(address);
}

/// Stands for an accelerator's memory that this process reads into or writes from, through buffers. No peer can use it.
inline OwnHandle staged_handle{{}, &unregistered};

}  // namespace fabric
