// SPDX-License-Identifier: BSD-3-Clause
//
// What Open MPI asks for with a read, a write or an atomic.
#pragma once

#include <cstdint>

#include "btl_fabric/base/opal.h"

namespace fabric {

/// The arguments that all operations have.
struct RdmaCall {
  mca_btl_base_endpoint_t* endpoint;
  void* local_address;
  std::uint64_t remote_address;
  mca_btl_base_registration_handle_t* local_handle;
  const mca_btl_base_registration_handle_t* remote_handle;
  mca_btl_base_rdma_completion_fn_t callback;  ///< null: nobody waits for it
  void* context;
  void* data;
};

}  // namespace fabric
