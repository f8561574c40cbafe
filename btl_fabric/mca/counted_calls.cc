// SPDX-License-Identifier: BSD-3-Clause
#include "btl_fabric/mca/counted_calls.h"

#include <span>

#include "btl_fabric/peer/endpoint.h"
#include "btl_fabric/peer/peer_traffic.h"

namespace fabric {

namespace {

using Handle = mca_btl_base_registration_handle_t;

/// Whom the calls go on to. All modules have the same functions.
mca_btl_base_module_t behind;

}  // namespace

/// Null: nobody counts what goes to the peer.
inline PeerTraffic* CountedCalls::traffic_to(mca_btl_base_endpoint_t* endpoint) noexcept {
  return endpoint != nullptr ? static_cast<Endpoint*>(endpoint)->traffic_.get() : nullptr;
}

struct CountedCalls::Send {
  static void count(mca_btl_base_endpoint_t* endpoint, std::size_t size) noexcept {
    if (PeerTraffic* const traffic = traffic_to(endpoint); traffic != nullptr) {
      traffic->messages.add(1);
      traffic->message_bytes.add(size);
    }
  }

  /// The descriptor may be gone when the call is over.
  static int send(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, mca_btl_base_descriptor_t* descriptor,
                  mca_btl_base_tag_t tag) noexcept {
    std::size_t size = 0;
    for (const auto& segment : std::span(descriptor->des_segments, descriptor->des_segment_count)) {
      size += segment.seg_len;
    }
    const int status = behind.btl_send(btl, endpoint, descriptor, tag);
    if (status >= 0) {
      count(endpoint, size);
    }
    return status;
  }

  static int sendi(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, opal_convertor_t* convertor,
                   void* header, size_t header_size, size_t payload_size, std::uint8_t order, std::uint32_t flags,
                   mca_btl_base_tag_t tag, mca_btl_base_descriptor_t** descriptor) noexcept {
    const int status =
        behind.btl_sendi(btl, endpoint, convertor, header, header_size, payload_size, order, flags, tag, descriptor);
    if (status == OPAL_SUCCESS) {
      count(endpoint, header_size + payload_size);
    }
    return status;
  }
};

struct CountedCalls::Rdma {
  static int put(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
                 std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, size_t size, int flags,
                 int order, mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
    const int status = behind.btl_put(btl, endpoint, local_address, remote_address, local_handle, remote_handle, size,
                                      flags, order, callback, context, data);
    if (PeerTraffic* const traffic = traffic_to(endpoint); traffic != nullptr && status >= 0) {
      traffic->puts.add(1);
      traffic->put_bytes.add(size);
    }
    return status;
  }

  static int get(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
                 std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, size_t size, int flags,
                 int order, mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
    const int status = behind.btl_get(btl, endpoint, local_address, remote_address, local_handle, remote_handle, size,
                                      flags, order, callback, context, data);
    if (PeerTraffic* const traffic = traffic_to(endpoint); traffic != nullptr && status >= 0) {
      traffic->gets.add(1);
      traffic->get_bytes.add(size);
    }
    return status;
  }

  static int count_atomic(mca_btl_base_endpoint_t* endpoint, int status) noexcept {
    if (PeerTraffic* const traffic = traffic_to(endpoint); traffic != nullptr && status >= 0) {
      traffic->atomics.add(1);
    }
    return status;
  }

  static int op(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, std::uint64_t remote_address,
                Handle* remote_handle, mca_btl_base_atomic_op_t op, std::uint64_t operand, int flags, int order,
                mca_btl_base_rdma_completion_fn_t callback, void* context, void* data) noexcept {
    return count_atomic(endpoint, behind.btl_atomic_op(btl, endpoint, remote_address, remote_handle, op, operand, flags,
                                                       order, callback, context, data));
  }

  static int fop(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
                 std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, mca_btl_base_atomic_op_t op,
                 std::uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t callback, void* context,
                 void* data) noexcept {
    return count_atomic(
        endpoint, behind.btl_atomic_fop(btl, endpoint, local_address, remote_address, local_handle, remote_handle, op,
                                        operand, flags, order, callback, context, data));
  }

  static int cswap(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
                   std::uint64_t remote_address, Handle* local_handle, Handle* remote_handle, std::uint64_t compare,
                   std::uint64_t value, int flags, int order, mca_btl_base_rdma_completion_fn_t callback, void* context,
                   void* data) noexcept {
    return count_atomic(
        endpoint, behind.btl_atomic_cswap(btl, endpoint, local_address, remote_address, local_handle, remote_handle,
                                          compare, value, flags, order, callback, context, data));
  }
};

void CountedCalls::put_before(mca_btl_base_module_t& module) noexcept {
  behind = module;
  module.btl_send = Send::send;
  module.btl_sendi = Send::sendi;
  module.btl_put = Rdma::put;
  module.btl_get = Rdma::get;
  module.btl_atomic_op = Rdma::op;
  module.btl_atomic_fop = Rdma::fop;
  module.btl_atomic_cswap = Rdma::cswap;
}

}  // namespace fabric
