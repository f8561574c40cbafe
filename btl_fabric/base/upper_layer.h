// SPDX-License-Identifier: BSD-3-Clause
//
// The upper layer's callbacks, and what they are called with.
#pragma once

#include "btl_fabric/base/fragment_pool.h"
#include "btl_fabric/base/opal.h"
#include "btl_fabric/base/rdma_request.h"

namespace fabric {

/// Open MPI's names of a port and a peer. Only ever handed back to it.
struct UpperHandles {
  mca_btl_base_module_t* module = nullptr;
  mca_btl_base_endpoint_t* endpoint = nullptr;
  bool hears_of_sends = true;  ///< false: it goes on without the peer, and has ended its sends by itself
};

/// Takes the first message out of a packet of several; null: there is none left.
[[nodiscard]] inline Fragment* take_part(Fragment& packet) noexcept {
  Fragment* const first = packet.parts;
  if (first != nullptr) {
    packet.parts = first->next;
  }
  return first;
}

/// What the upper layer has handed over is put away, and nobody hears of it.
inline void drop_send(Fragment* fragment) noexcept {
  while (Fragment* const part = take_part(*fragment)) {
    put_back(part);
  }
  put_back(fragment);
}

/// A message that the upper layer has handed over is sent, or never will be: `status` goes to its callback, if it waits
/// for one, and the fragment back to whose it is. Of a packet of several messages each is.
inline void end_send(const UpperHandles& upper, Fragment* fragment, int status) noexcept {
  if (!upper.hears_of_sends) [[unlikely]] {
    drop_send(fragment);
    return;
  }
  while (Fragment* const part = take_part(*fragment)) {
    end_send(upper, part, status);
  }
  const bool owned = (fragment->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0;
  if (fragment->callback_due && fragment->des_cbfunc != nullptr) {
    const FragmentPool::Spare spare(*fragment->pool);
    fragment->des_cbfunc(upper.module, upper.endpoint, fragment, status);
  }
  if (owned) {
    put_back(fragment);
  }
}

/// Nobody hears of its end any more.
inline void forget_caller(Fragment& fragment) noexcept {
  fragment.callback_due = false;
  for (Fragment* part = fragment.parts; part != nullptr; part = part->next) {
    part->callback_due = false;
  }
}

/// A read, write or atomic has ended; put_away(request) takes the request before the callback, which may start more.
template <class PutAway>
void end_request(const UpperHandles& upper, RdmaRequest* request, int status, PutAway put_away) noexcept {
  const mca_btl_base_rdma_completion_fn_t callback = request->callback;
  void* const address = request->local_address;
  mca_btl_base_registration_handle_t* const handle = request->local_handle;
  void* const context = request->context;
  void* const data = request->data;
  put_away(request);
  if (callback != nullptr) {
    callback(upper.module, upper.endpoint, address, handle, context, data, status);
  }
}

}  // namespace fabric
