// SPDX-License-Identifier: BSD-3-Clause
//
// What these functions promise is in Open MPI's opal/mca/btl/btl.h. As in btl_functions.cc, each is a few lines into C++.
#include "btl_fabric/rdma.h"

#include <new>

#include "btl_fabric/component.h"
#include "btl_fabric/module.h"
#include "btl_fabric/registration.h"

namespace fabric {

namespace {

using Handle = mca_btl_base_registration_handle_t;

constexpr std::uint32_t kDeviceAtomics = MCA_BTL_ATOMIC_SUPPORTS_ADD | MCA_BTL_ATOMIC_SUPPORTS_CSWAP;
constexpr std::uint32_t kMessageAtomics = kDeviceAtomics | MCA_BTL_ATOMIC_SUPPORTS_AND | MCA_BTL_ATOMIC_SUPPORTS_OR |
                                          MCA_BTL_ATOMIC_SUPPORTS_XOR | MCA_BTL_ATOMIC_SUPPORTS_LAND |
                                          MCA_BTL_ATOMIC_SUPPORTS_LOR | MCA_BTL_ATOMIC_SUPPORTS_LXOR |
                                          MCA_BTL_ATOMIC_SUPPORTS_SWAP | MCA_BTL_ATOMIC_SUPPORTS_MIN |
                                          MCA_BTL_ATOMIC_SUPPORTS_MAX | MCA_BTL_ATOMIC_SUPPORTS_32BIT;

Module& module_of(mca_btl_base_module_t* btl) noexcept {
  return *static_cast<Module*>(btl);
}

Handle* register_mem(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* /*endpoint*/, void* base, size_t size,
                     std::uint32_t flags) noexcept {
  const auto guard = Component::get().lock();
  return module_of(btl).cache().hold_handle(base, size, static_cast<std::int32_t>(flags & MCA_BTL_REG_FLAG_ACCESS_ANY));
}

int deregister_mem(mca_btl_base_module_t* btl, Handle* handle) noexcept {
  const auto guard = Component::get().lock();
  module_of(btl).cache().let_go(registration_of(handle));
  return OPAL_SUCCESS;
}

/// The arguments that all operations have.
struct Call {
  mca_btl_base_endpoint_t* endpoint;
  void* local_address;
  std::uint64_t remote_address;
  Handle* local_handle;
  const Handle* remote_handle;
  mca_btl_base_rdma_completion_fn_t callback;
  void* context;
  void* data;
};

/// The endpoint through which the peer's registration can be reached. That is the one Open MPI gives, unless peers have
/// several devices and put them in different orders.
Endpoint* route(Module& module, mca_btl_base_endpoint_t* endpoint, const Handle* handle) noexcept {
  auto* given = static_cast<Endpoint*>(endpoint);
  if (given == nullptr) {
    return nullptr;
  }
  const bool fits = handle == nullptr || (handle->ports >> given->key().remote_port & 1) != 0;
  return fits ? given : Component::get().endpoint_to(given->key().peer, handle->ports, module);
}

/// A request with what all operations have; null if there is none now, or (`reachable` false) never.
RdmaRequest* new_request(Module& module, const Call& call, Endpoint*& endpoint) noexcept try {
  endpoint = route(module, call.endpoint, call.remote_handle);
  if (endpoint == nullptr) {
    return nullptr;
  }
  RdmaRequest* request = endpoint->module().rdma().requests.get(module.port().address.link);
  if (request == nullptr) {
    return nullptr;
  }
  request->operation.remote_address = call.remote_address;
  request->operation.rkey = call.remote_handle != nullptr ? call.remote_handle->rkey : 0;
  request->callback = call.callback;
  request->local_address = call.local_address;
  request->local_handle = call.local_handle;
  request->context = call.context;
  request->data = call.data;
  return request;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void set_local(const Module& module, Endpoint& endpoint, RdmaRequest& request, void* address, std::uint64_t length,
               Handle* handle) noexcept {
  LocalMemory& piece = request.operation.local[0];
  request.operation.pieces = 1;
  piece.address = address;
  piece.length = length;
  // A registration with another device is none; the planner then sees to it.
  if (handle != nullptr && &module.rdma() == &endpoint.module().rdma()) {
    const Registration* registration = registration_of(handle);
    piece.mr = registration->mr;
    piece.access = registration->access;
  }
}

int submit(Endpoint& endpoint, RdmaRequest* request) noexcept {
  const int result = endpoint.rdma().submit(request);
  if (result != OPAL_SUCCESS) {
    endpoint.module().rdma().requests.put(request);
  }
  return result;
}

int transfer(mca_btl_base_module_t* btl, RdmaKind kind, size_t size, const Call& call) noexcept {
  const auto guard = Component::get().lock();
  Module& module = module_of(btl);
  Endpoint* endpoint = nullptr;
  RdmaRequest* request = new_request(module, call, endpoint);
  if (request == nullptr) {
    return endpoint != nullptr ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_ERR_UNREACH;
  }
  request->operation.kind = kind;
  set_local(module, *endpoint, *request, call.local_address, size, call.local_handle);
  return submit(*endpoint, request);
}

int put(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, size_t size, int /*flags*/,
        int /*order*/, mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  return transfer(btl, RdmaKind::kWrite, size,
                  {endpoint, local_address, remote_address, local_handle, remote_handle, callback, context, data});
}

int get(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, size_t size, int /*flags*/,
        int /*order*/, mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  return transfer(btl, RdmaKind::kRead, size,
                  {endpoint, local_address, remote_address, local_handle, remote_handle, callback, context, data});
}

/// What an atomic does: `op`, or a compare and swap.
struct Atomic {
  bool is_swap;
  mca_btl_base_atomic_op_t op;
  std::uint64_t operand;
  std::uint64_t compare;
  int flags;
};

/// What the answer to upper layers is that ask for too much: they fall back on something else then.
bool can(const Module& module, const Atomic& atomic, std::uint64_t remote_address) noexcept {
  const bool is_32_bit = (atomic.flags & MCA_BTL_ATOMIC_FLAG_32BIT) != 0;
  if ((atomic.flags & MCA_BTL_ATOMIC_FLAG_FLOAT) != 0 || remote_address % (is_32_bit ? 4 : 8) != 0) {
    return false;
  }
  return module.atomics_by_device() ? !is_32_bit && (atomic.is_swap || atomic.op == MCA_BTL_ATOMIC_ADD) : true;
}

int execute(mca_btl_base_module_t* btl, const Atomic& atomic, const Call& call) noexcept {
  const auto guard = Component::get().lock();
  Module& module = module_of(btl);
  // Open MPI 4.1's osc/rdma asks for a compare and swap on its own process's memory, without a handle to it, before it
  // looks whether it could do that by itself. It can.
  if (call.endpoint == nullptr || call.remote_handle == nullptr || !can(module, atomic, call.remote_address)) {
    return OPAL_ERR_NOT_SUPPORTED;
  }
  Endpoint* endpoint = nullptr;
  RdmaRequest* request = new_request(module, call, endpoint);
  if (request == nullptr) {
    return endpoint != nullptr ? OPAL_ERR_OUT_OF_RESOURCE : OPAL_ERR_UNREACH;
  }
  request->as_message = !module.atomics_by_device();
  request->is_32_bit = (atomic.flags & MCA_BTL_ATOMIC_FLAG_32BIT) != 0;
  request->is_swap = atomic.is_swap;
  request->op = atomic.op;
  request->operation.kind = atomic.is_swap ? RdmaKind::kCompareSwap : RdmaKind::kFetchAdd;
  request->operation.operand = atomic.operand;
  request->operation.compare = atomic.compare;
  if (call.local_address != nullptr && call.local_handle != nullptr) {
    set_local(module, *endpoint, *request, call.local_address, sizeof(std::uint64_t), call.local_handle);
  } else {  // nobody wants the old value, but the device puts it somewhere
    request->operation.pieces = 1;
    request->operation.local[0] = request->operation.confirm;
  }
  return submit(*endpoint, request);
}

int atomic_op(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, std::uint64_t remote_address,
              Handle* remote_handle, mca_btl_base_atomic_op_t op, std::uint64_t operand, int flags, int /*order*/,
              mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  return execute(btl, {false, op, operand, 0, flags},
                 {endpoint, nullptr, remote_address, nullptr, remote_handle, callback, context, data});
}

int atomic_fop(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
               std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, mca_btl_base_atomic_op_t op,
               std::uint64_t operand, int flags, int /*order*/, mca_btl_base_rdma_completion_fn_t callback,
               void* context, void* data) noexcept {
  return execute(btl, {false, op, operand, 0, flags},
                 {endpoint, local_address, remote_address, local_handle, remote_handle, callback, context, data});
}

int atomic_cswap(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
                 std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, std::uint64_t compare,
                 std::uint64_t value, int flags, int /*order*/, mca_btl_base_rdma_completion_fn_t callback,
                 void* context, void* data) noexcept {
  return execute(btl, {true, MCA_BTL_ATOMIC_SWAP, value, compare, flags},
                 {endpoint, local_address, remote_address, local_handle, remote_handle, callback, context, data});
}

/// Returns when everything started before has ended, callbacks included. More than was asked for may be waited for.
int flush(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint) noexcept {
  const auto outstanding = [&] {
    const auto guard = Component::get().lock();
    return endpoint != nullptr ? static_cast<Endpoint*>(endpoint)->rdma().outstanding()
                               : module_of(btl).rdma_outstanding();
  };
  while (outstanding() > 0) {
    opal_progress();
  }
  return OPAL_SUCCESS;
}

}  // namespace

void set_rdma_functions(mca_btl_base_module_t& module) noexcept {
  module.btl_put = put;
  module.btl_get = get;
  module.btl_atomic_op = atomic_op;
  module.btl_atomic_fop = atomic_fop;
  module.btl_atomic_cswap = atomic_cswap;
  module.btl_register_mem = register_mem;
  module.btl_deregister_mem = deregister_mem;
  module.btl_flush = flush;
}

void offer_rdma(mca_btl_base_module_t& module) noexcept {
  set_rdma_functions(module);
  module.btl_flags |=
      MCA_BTL_FLAGS_RDMA | MCA_BTL_FLAGS_ATOMIC_OPS | MCA_BTL_FLAGS_ATOMIC_FOPS | MCA_BTL_FLAGS_RDMA_FLUSH;
  module.btl_atomic_flags = kMessageAtomics;
  module.btl_registration_handle_size = sizeof(Handle);
}

void fit_rdma(Module& module) noexcept {
  module.btl_atomic_flags = module.atomics_by_device() ? kDeviceAtomics : kMessageAtomics;
  if (!module.needs_loopback()) {
    // Open MPI 4.1's osc/rdma looks for this among the atomic flags, and again among the flags, where nothing else has
    // its value: without the second it would want to reach its own process through us.
    module.btl_atomic_flags |= MCA_BTL_ATOMIC_SUPPORTS_GLOB;
    module.btl_flags |= MCA_BTL_ATOMIC_SUPPORTS_GLOB;
  }
  module.btl_get_limit = std::min<size_t>(module.btl_get_limit, module.max_message());
  module.btl_put_limit = std::min<size_t>(module.btl_put_limit, module.max_message());
  module.btl_get_alignment = 0;
  module.btl_put_alignment = 0;
  module.btl_get_local_registration_threshold = 0;
  module.btl_put_local_registration_threshold = module.max_inline();  // as far as the device copies them at once
}

}  // namespace fabric
