// SPDX-License-Identifier: BSD-3-Clause
//
// Registers an accelerator's memory with an RDMA device, which then reads and writes it by itself: the accelerator's driver exports the
// memory as a dma-buf. Open MPI has no function for that, so the driver's library is asked; it is loaded where there is such memory.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

namespace fabric {

/// A region of `size` bytes, or null: errno is EOPNOTSUPP where neither this nor other memory can be had so, another value where this
/// cannot now. `access`: IBV_ACCESS_* of ibv_reg_dmabuf_mr(3), which knows no memory on demand.
[[nodiscard]] ibv_mr* register_dmabuf(ibv_pd* pd, void* base, std::size_t size, unsigned access) noexcept;

}  // namespace fabric
