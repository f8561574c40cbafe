// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/watched_calls.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace fabric {
namespace {

using Handle = mca_btl_base_registration_handle_t;

/// Whom the calls go on to. All modules have the same functions.
mca_btl_base_module_t behind;

std::array<CallWatcher*, kMaxCallWatchers> watchers;
std::size_t watcher_count = 0;

std::span<CallWatcher* const> all_watchers() noexcept {
  return std::span(watchers).first(watcher_count);
}

const Endpoint* own(const mca_btl_base_endpoint_t* endpoint) noexcept {
  return static_cast<const Endpoint*>(endpoint);
}

/// Of a call that was accepted every watcher is told.
template <typename Tell>
int told(int status, const Tell& tell) noexcept {
  if (status >= 0) {
    for (CallWatcher* const watcher : all_watchers()) {
      tell(*watcher);
    }
  }
  return status;
}

/// The descriptor may be gone when the call is over.
int send(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, mca_btl_base_descriptor_t* descriptor,
         mca_btl_base_tag_t tag) noexcept {
  std::size_t size = 0;
  for (const auto& segment : std::span(descriptor->des_segments, descriptor->des_segment_count)) {
    size += segment.seg_len;
  }
  const int status = behind.btl_send(btl, endpoint, descriptor, tag);
  return told(status, [&](CallWatcher& watcher) { watcher.sent(own(endpoint), size); });
}

/// What is not sent at once comes again, by send().
int sendi(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, opal_convertor_t* convertor, void* header,
          size_t header_size, size_t payload_size, std::uint8_t order, std::uint32_t flags, mca_btl_base_tag_t tag,
          mca_btl_base_descriptor_t** descriptor) noexcept {
  const int status =
      behind.btl_sendi(btl, endpoint, convertor, header, header_size, payload_size, order, flags, tag, descriptor);
  return told(status, [&](CallWatcher& watcher) { watcher.sent(own(endpoint), header_size + payload_size); });
}

int put(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, size_t size, int flags, int order,
        mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  const int status = behind.btl_put(btl, endpoint, local_address, remote_address, local_handle, remote_handle, size,
                                    flags, order, callback, context, data);
  return told(status, [&](CallWatcher& watcher) { watcher.put(own(endpoint), size); });
}

int get(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, size_t size, int flags, int order,
        mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  const int status = behind.btl_get(btl, endpoint, local_address, remote_address, local_handle, remote_handle, size,
                                    flags, order, callback, context, data);
  return told(status, [&](CallWatcher& watcher) { watcher.got(own(endpoint), size); });
}

int tell_atomic(const mca_btl_base_endpoint_t* endpoint, int status) noexcept {
  return told(status, [&](CallWatcher& watcher) { watcher.operated(own(endpoint)); });
}

int atomic_op(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, std::uint64_t remote_address,
              Handle* remote_handle, mca_btl_base_atomic_op_t op, std::uint64_t operand, int flags, int order,
              mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
  return tell_atomic(endpoint, behind.btl_atomic_op(btl, endpoint, remote_address, remote_handle, op, operand, flags,
                                                    order, callback, context, data));
}

int atomic_fop(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
               std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, mca_btl_base_atomic_op_t op,
               std::uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t callback, void* context,
               void* data) noexcept {
  return tell_atomic(
      endpoint, behind.btl_atomic_fop(btl, endpoint, local_address, remote_address, local_handle, remote_handle, op,
                                      operand, flags, order, callback, context, data));
}

int atomic_cswap(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
                 std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, std::uint64_t compare,
                 std::uint64_t value, int flags, int order, mca_btl_base_rdma_completion_fn_t callback, void* context,
                 void* data) noexcept {
  return tell_atomic(endpoint,
                     behind.btl_atomic_cswap(btl, endpoint, local_address, remote_address, local_handle, remote_handle,
                                             compare, value, flags, order, callback, context, data));
}

void put_before(mca_btl_base_module_t& module) noexcept {
  if (module.btl_send == send) {
    return;
  }
  behind = module;
  module.btl_send = send;
  module.btl_sendi = sendi;
  module.btl_put = put;
  module.btl_get = get;
  module.btl_atomic_op = atomic_op;
  module.btl_atomic_fop = atomic_fop;
  module.btl_atomic_cswap = atomic_cswap;
}

}  // namespace

void watch_calls(std::span<const std::unique_ptr<Module>> modules, CallWatcher& watcher) noexcept {
  const auto known = all_watchers();
  if (std::find(known.begin(), known.end(), &watcher) == known.end()) {
    assert(watcher_count < kMaxCallWatchers);
    watchers[watcher_count++] = &watcher;
  }
  for (const auto& module : modules) {
    put_before(*module);
  }
}

}  // namespace fabric
