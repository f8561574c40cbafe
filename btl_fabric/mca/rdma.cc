// SPDX-License-Identifier: BSD-3-Clause
//
// What these functions promise is in Open MPI's opal/mca/btl/btl.h. As in btl_functions.cc, each is a few lines into C++.
#include "btl_fabric/mca/rdma.h"

#include <cstring>
#include <new>

#include "btl_fabric/base/atomic_message.h"
#include "btl_fabric/base/device_memory.h"
#include "btl_fabric/base/params.h"
#include "btl_fabric/base/registration.h"
#include "btl_fabric/mca/component.h"
#include "btl_fabric/mca/module.h"
#include "btl_fabric/mca/rdma_call.h"
#include "btl_fabric/mca/staged_transfers.h"
#include "btl_fabric/mca/striping.h"

namespace fabric {

namespace {

using Handle = mca_btl_base_registration_handle_t;

// No minimum and no maximum: osc/rdma asks for them for unsigned integers too, and does not say that they are. Told that
// they are not supported, it reads, computes and writes under a lock.
constexpr std::uint32_t kDeviceAtomics = MCA_BTL_ATOMIC_SUPPORTS_ADD | MCA_BTL_ATOMIC_SUPPORTS_CSWAP;
constexpr std::uint32_t kMessageAtomics = kDeviceAtomics | MCA_BTL_ATOMIC_SUPPORTS_AND | MCA_BTL_ATOMIC_SUPPORTS_OR |
                                          MCA_BTL_ATOMIC_SUPPORTS_XOR | MCA_BTL_ATOMIC_SUPPORTS_LAND |
                                          MCA_BTL_ATOMIC_SUPPORTS_LOR | MCA_BTL_ATOMIC_SUPPORTS_LXOR |
                                          MCA_BTL_ATOMIC_SUPPORTS_SWAP | MCA_BTL_ATOMIC_SUPPORTS_32BIT;

Module& module_of(mca_btl_base_module_t* btl) noexcept {
  return *static_cast<Module*>(btl);
}

Handle* register_mem(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* /*endpoint*/, void* base, size_t size,
                     std::uint32_t flags) noexcept {
  return module_of(btl).cache().hold_handle(base, size, static_cast<std::int32_t>(flags & MCA_BTL_REG_FLAG_ACCESS_ANY));
}

int deregister_mem(mca_btl_base_module_t* /*btl*/, Handle* handle) noexcept {
  RegistrationCache::let_go(handle);
  return OPAL_SUCCESS;
}

using Call = RdmaCall;

/// The endpoint that Open MPI knows and through which the peer's registration can be reached. That is the one Open MPI
/// gives, unless peers have several devices and put them in different orders.
Endpoint* route(Module& module, mca_btl_base_endpoint_t* endpoint, const Handle* handle) noexcept {
  auto* given = static_cast<Endpoint*>(endpoint);
  if (given == nullptr || handle == nullptr || handle->home.is_for(given->key().remote_port)) {
    return given;
  }
  const auto guard = Component::get().locks().lock(0);
  return Component::get().endpoint_to(given->key().peer, handle->home.mask(), module);
}

/// A request on its way. Without a request, `error` says why.
struct Started {
  Component::Entered entered;
  RdmaRequest* request = nullptr;
  int error = OPAL_ERR_OUT_OF_RESOURCE;
};

/// A request with what all operations have; null if there is no memory region for more. Throws std::bad_alloc.
[[gnu::always_inline]] inline RdmaRequest* get_request(Module& module, const Endpoint& endpoint, const Call& call) {
  RdmaRequest* const request = endpoint.owner().path().rdma().requests.get(module.port().address.link);
  if (request == nullptr) [[unlikely]] {
    return nullptr;
  }
  request->operation.remote_address = call.remote_address;
  request->operation.rkey = call.remote_handle != nullptr ? call.remote_handle->home.rkey : 0;
  request->callback = call.callback;
  request->local_address = call.local_address;
  request->local_handle = call.local_handle;
  request->context = call.context;
  request->data = call.data;
  return request;
}

/// Such a request, where it goes, and the lock that it takes.
Started new_request(Module& module, const Call& call, int order) noexcept try {
  Endpoint* const first = route(module, call.endpoint, call.remote_handle);
  if (first == nullptr) {
    return {.entered = {}, .request = nullptr, .error = OPAL_ERR_UNREACH};
  }
  Started started{Component::get().enter(*first, static_cast<std::uint8_t>(order))};
  if (started.entered.endpoint == nullptr) {
    return started;
  }
  started.request = get_request(module, *started.entered.endpoint, call);
  return started;
} catch (const std::bad_alloc&) {
  return {};
}

void set_local(const Endpoint& endpoint, RdmaRequest& request, void* address, std::uint64_t length,
               Handle* handle) noexcept {
  LocalMemory& piece = request.operation.local[0];
  request.operation.pieces = 1;
  piece.address = address;
  piece.length = length;
  // A registration with another device is none; the planner then sees to it.
  const DeviceMemory* memory = handle != nullptr ? registration_of(handle)->with(endpoint.owner().port().pd) : nullptr;
  if (memory != nullptr) {
    piece.mr = memory->mr;
    piece.access = memory->access;
  }
}

int submit(Endpoint& endpoint, RdmaRequest* request) noexcept {
  const int result = endpoint.submit(request);
  if (result != OPAL_SUCCESS) {
    endpoint.owner().path().rdma().requests.put(request);
  }
  return result;
}

/// True if the target is this process and its processor is to do the work. The device does it where the processor's
/// atomics and its own do not know of each other.
bool is_for_processor(Module& module, const mca_btl_base_endpoint_t* endpoint) noexcept {
  return endpoint != nullptr && !module.needs_loopback() && static_cast<const Endpoint*>(endpoint)->is_self();
}

/// What osc/rdma means to wait for by a flush has no callback.
int done(mca_btl_base_module_t* btl, const Call& call) noexcept {
  if (call.callback == nullptr) {
    return OPAL_SUCCESS;
  }
  call.callback(btl, call.endpoint, call.local_address, call.local_handle, call.context, call.data, OPAL_SUCCESS);
  return OPAL_SUCCESS;
}

int copy(mca_btl_base_module_t* btl, RdmaKind kind, size_t size, const Call& call) noexcept {
  auto* target = reinterpret_cast<void*>(call.remote_address);
  if (kind == RdmaKind::kWrite) {
    std::memmove(target, call.local_address, size);
  } else {
    std::memmove(call.local_address, target, size);
  }
  return done(btl, call);
}

/// True if the memory here is an accelerator's: of what has a handle, that tells.
bool is_staged(const Call& call) noexcept {
  return call.local_handle == nullptr ? is_on_device(call.local_address) : call.local_handle == &staged_handle;
}

/// True if it is an accelerator's, and registered: with one device, since no other way to it is known.
bool is_registered_on_device(const Call& call) noexcept {
  return staged_transfers != nullptr && call.local_handle != nullptr &&
         (registration_of(call.local_handle)->flags & kRegistrationOnAccelerator) != 0;
}

/// The request has what all operations have. For whoever holds the lock of the endpoint's context.
[[gnu::always_inline]] inline int start(Endpoint& endpoint, RdmaRequest* request, RdmaKind kind, size_t size,
                                        const Call& call) noexcept {
  const bool on_device = is_registered_on_device(call);
  if (on_device && registration_of(call.local_handle)->with(endpoint.owner().port().pd) == nullptr) [[unlikely]] {
    endpoint.owner().path().rdma().requests.put(request);
    return staged_transfers->start(endpoint.owner().upper_module(), kind == RdmaKind::kWrite, size, MCA_BTL_NO_ORDER,
                                   call);
  }
  if (is_striped(size) && call.local_handle != nullptr && call.remote_handle != nullptr && !endpoint.is_self())
      [[unlikely]] {
    const Transfer whole{
        kind, call.local_address, call.remote_address, size, *registration_of(call.local_handle), *call.remote_handle};
    if (const auto result = submit_striped(endpoint, request, whole); result) {
      return *result;
    }
  }
  request->operation.kind = kind;
  set_local(endpoint, *request, call.local_address, size, call.local_handle);
  if (endpoint.owner().path().settings().heals && call.remote_handle != nullptr && !on_device) [[unlikely]] {
    request->local = call.local_handle != nullptr ? registration_of(call.local_handle) : &unregistered;
    request->remote = *call.remote_handle;
  }
  return submit(endpoint, request);
}

/// Wherever the peer's memory is reached, and under the lock that is due.
[[gnu::noinline]] int transfer_locked(Module& module, RdmaKind kind, size_t size, int order, Call call) noexcept {
  const Started started = new_request(module, call, order);
  return started.request != nullptr ? start(*started.entered.endpoint, started.request, kind, size, call)
                                    : started.error;
}

[[gnu::always_inline]] inline int transfer(mca_btl_base_module_t* btl, RdmaKind kind, size_t size, int order,
                                           const Call& call) noexcept try {
  Module& module = module_of(btl);
  if (staged_transfers != nullptr && is_staged(call)) [[unlikely]] {
    return staged_transfers->start(btl, kind == RdmaKind::kWrite, size, order, call);
  }
  if (is_for_processor(module, call.endpoint)) {
    return copy(btl, kind, size, call);
  }
  auto* const endpoint = static_cast<Endpoint*>(call.endpoint);
  const bool is_simple = !opal_uses_threads && endpoint != nullptr && endpoint->contexts() == 1 &&
                         call.remote_handle != nullptr && call.remote_handle->home.is_for(endpoint->key().remote_port);
  if (!is_simple) [[unlikely]] {
    return transfer_locked(module, kind, size, order, call);
  }
  RdmaRequest* const request = get_request(module, *endpoint, call);
  return request != nullptr ? start(*endpoint, request, kind, size, call) : OPAL_ERR_OUT_OF_RESOURCE;
} catch (const std::bad_alloc&) {
  return OPAL_ERR_OUT_OF_RESOURCE;
}

int put(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, size_t size, int /*flags*/,
        int order, mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  return transfer(btl, RdmaKind::kWrite, size, order,
                  {endpoint, local_address, remote_address, local_handle, remote_handle, callback, context, data});
}

int get(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, size_t size, int /*flags*/,
        int order, mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  return transfer(btl, RdmaKind::kRead, size, order,
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
bool can(bool by_device, const Atomic& atomic, std::uint64_t remote_address) noexcept {
  const bool is_32_bit = (atomic.flags & MCA_BTL_ATOMIC_FLAG_32BIT) != 0;
  if ((atomic.flags & MCA_BTL_ATOMIC_FLAG_FLOAT) != 0 || remote_address % (is_32_bit ? 4 : 8) != 0) {
    return false;
  }
  if (by_device) {
    return !is_32_bit && (atomic.is_swap || atomic.op == MCA_BTL_ATOMIC_ADD);
  }
  return atomic.is_swap || (atomic.op != MCA_BTL_ATOMIC_MIN && atomic.op != MCA_BTL_ATOMIC_MAX);
}

int execute_here(mca_btl_base_module_t* btl, const Atomic& atomic, const Call& call) noexcept {
  AtomicMessage message;
  message.address = call.remote_address;
  message.rkey = call.remote_handle->home.rkey;
  message.op = atomic.is_swap ? static_cast<std::uint16_t>(AtomicOp::kCompareSwap)
                              : static_cast<std::uint16_t>(atomic.op);  // AtomicOp has Open MPI's values
  message.operand = atomic.operand;
  message.compare = atomic.compare;
  message.is_32_bit = (atomic.flags & MCA_BTL_ATOMIC_FLAG_32BIT) != 0;
  const AtomicReply reply = module_of(btl).cache().atomic_targets().execute(message);
  if (!reply.done) {
    return OPAL_ERR_NOT_AVAILABLE;
  }
  if (call.local_address != nullptr && message.is_32_bit) {
    const auto value = static_cast<std::uint32_t>(reply.value);
    std::memcpy(call.local_address, &value, sizeof value);
  } else if (call.local_address != nullptr) {
    std::memcpy(call.local_address, &reply.value, sizeof reply.value);
  }
  return done(btl, call);
}

int execute(mca_btl_base_module_t* btl, const Atomic& atomic, int order, const Call& call) noexcept {
  Module& module = module_of(btl);
  // Open MPI 4.1's osc/rdma asks for a compare and swap on its own process's memory, without a handle to it, before it
  // looks whether it could do that by itself. It can.
  if (call.endpoint == nullptr || call.remote_handle == nullptr) {
    return OPAL_ERR_NOT_SUPPORTED;
  }
  const bool by_device = call.remote_handle->home.device_atomics != 0 && module.has_atomics();  // its owner's choice
  if (!can(by_device, atomic, call.remote_address)) {
    return OPAL_ERR_NOT_SUPPORTED;
  }
  if (is_for_processor(module, call.endpoint)) {
    return execute_here(btl, atomic, call);
  }
  const Started started = new_request(module, call, order);
  RdmaRequest* const request = started.request;
  if (request == nullptr) {
    return started.error;
  }
  Endpoint* const endpoint = started.entered.endpoint;
  request->as_message = !by_device;
  request->is_32_bit = (atomic.flags & MCA_BTL_ATOMIC_FLAG_32BIT) != 0;
  request->is_swap = atomic.is_swap;
  request->op = atomic.op;
  request->operation.kind = atomic.is_swap ? RdmaKind::kCompareSwap : RdmaKind::kFetchAdd;
  request->operation.operand = atomic.operand;
  request->operation.compare = atomic.compare;
  if (call.local_address != nullptr && call.local_handle != nullptr) {
    set_local(*endpoint, *request, call.local_address, sizeof(std::uint64_t), call.local_handle);
  } else {  // nobody wants the old value, but the device puts it somewhere
    request->operation.pieces = 1;
    request->operation.local[0] = request->operation.confirm;
  }
  return submit(*endpoint, request);
}

int atomic_op(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, std::uint64_t remote_address,
              Handle* remote_handle, mca_btl_base_atomic_op_t op, std::uint64_t operand, int flags, int order,
              mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  return execute(btl, {false, op, operand, 0, flags}, order,
                 {endpoint, nullptr, remote_address, nullptr, remote_handle, callback, context, data});
}

int atomic_fop(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
               std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, mca_btl_base_atomic_op_t op,
               std::uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t callback, void* context,
               void* data) noexcept {
  return execute(btl, {false, op, operand, 0, flags}, order,
                 {endpoint, local_address, remote_address, local_handle, remote_handle, callback, context, data});
}

int atomic_cswap(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
                 std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, std::uint64_t compare,
                 std::uint64_t value, int flags, int order, mca_btl_base_rdma_completion_fn_t callback, void* context,
                 void* data) noexcept {
  return execute(btl, {true, MCA_BTL_ATOMIC_SWAP, value, compare, flags}, order,
                 {endpoint, local_address, remote_address, local_handle, remote_handle, callback, context, data});
}

/// What has been started in a context and has not ended; that a callback holds another context's lock counts as one.
std::uint32_t outstanding(const Endpoint* endpoint, unsigned context) noexcept {
  const auto guard = Component::get().locks().lock_if_allowed(context);
  return guard ? Component::get().rdma_outstanding(context, endpoint != nullptr ? &endpoint->key().peer : nullptr) : 1;
}

/// Returns when everything started before has ended, callbacks included. More than was asked for may be waited for. There
/// is progress also if nothing has been started: somebody may wait for a change of his own memory with nothing but
/// MPI_Win_flush, and the change be a message that waits for him. Modules do not matter: route() may have chosen another
/// one's endpoint for an operation.
int flush(mca_btl_base_module_t* /*btl*/, mca_btl_base_endpoint_t* endpoint) noexcept {
  opal_progress();
  while (staged_transfers != nullptr && !staged_transfers->is_idle()) {
    opal_progress();
  }
  for (unsigned context = 0; context < Component::get().locks().contexts(); ++context) {
    while (outstanding(static_cast<Endpoint*>(endpoint), context) > 0) {
      opal_progress();
    }
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
  module.btl_flags |= MCA_BTL_FLAGS_RDMA | MCA_BTL_FLAGS_ATOMIC_OPS | MCA_BTL_FLAGS_ATOMIC_FOPS |
                      MCA_BTL_FLAGS_RDMA_FLUSH | kRemoteCompletion;
  module.btl_atomic_flags = kMessageAtomics;
  module.btl_registration_handle_size = sizeof(Handle);
}

void fit_rdma(Module& module) noexcept {
  const bool reads = (module.btl_flags & MCA_BTL_FLAGS_GET) != 0;
  if (may_be_on_device && reads && params().device_memory_direct != 0) {
    module.btl_flags |= kAcceleratorGet;
  }
  // Never MCA_BTL_ATOMIC_SUPPORTS_GLOB, though the processor's atomics and ours may know of each other: of a window on
  // several hosts, osc/rdma would then keep what goes to the same host to itself, and its compare and swap there is a
  // comparison and a copy under a lock that compare and swap of other hosts does not take.
  module.btl_atomic_flags = module.atomics_by_device() ? kDeviceAtomics : kMessageAtomics;
  module.btl_get_alignment = 0;
  module.btl_put_alignment = 0;
  module.btl_get_local_registration_threshold = 0;
  module.btl_put_local_registration_threshold =
      module.port().device->max_inline;  // as far as the device copies them at once
}

}  // namespace fabric
