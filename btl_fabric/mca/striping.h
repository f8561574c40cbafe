// SPDX-License-Identifier: BSD-3-Clause
//
// A large read or write over all ports to the peer at once. Upper layers give an operation to one module: ob1 reads a message
// through the one that told of it, osc/rdma knows one only.
#pragma once

#include <cstdint>
#include <optional>

#include "btl_fabric/base/params.h"
#include "btl_fabric/base/registration.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/peer/endpoint.h"

namespace fabric {

/// A read or write, of registered memory.
struct Transfer {
  RdmaKind kind;
  void* local_address;
  std::uint64_t remote_address;
  std::uint64_t size;  ///< bytes
  Registration& local;
  const mca_btl_base_registration_handle_t& remote;
};

/// Reads and writes of this size are divided.
[[nodiscard]] inline bool is_striped(std::uint64_t size) noexcept {
  return Component::get().ports() > 1 && params().stripe_size > 0 &&
         size >= static_cast<std::uint64_t>(params().stripe_size);
}

/// Divides one among the ports whose connections are up, and has the others connected. `lead` is the endpoint that the upper layer
/// has chosen, `whole` a request of its device with the callback, which comes when all pieces have ended. Nothing has happened
/// if there is no result: it has to go in one. For whoever holds the lock of the context.
[[nodiscard]] std::optional<int> submit_striped(Endpoint& lead, RdmaRequest* whole, const Transfer& transfer) noexcept;

}  // namespace fabric
