// SPDX-License-Identifier: BSD-3-Clause
//
// The upper layer's callbacks, and what they are called with.
#pragma once

#include "btl_fabric/base/fragment_pool.h"
#include "btl_fabric/base/opal.h"
#include "btl_fabric/base/rdma_request.h"

namespace fabric {

/// What an upper layer still wants to hear of a peer that is gone, and that it goes on without.
class Awaited {
 public:
  /// `status` is what would be told, and becomes what is.
  [[nodiscard]] virtual bool message(const opal_proc_t& gone, const Fragment& message, int& status) const noexcept = 0;
  /// A read, write or atomic, by the context that the upper layer has given.
  [[nodiscard]] virtual bool rdma(const opal_proc_t& gone, const void* context) const noexcept = 0;

 protected:
  ~Awaited() = default;
};

/// Of a peer that has been taken away.
class NothingAwaited final : public Awaited {
 public:
  bool message(const opal_proc_t& /*gone*/, const Fragment& /*message*/, int& /*status*/) const noexcept override {
    return false;
  }
  bool rdma(const opal_proc_t& /*gone*/, const void* /*context*/) const noexcept override { return false; }
};

/// Open MPI's names of a port and a peer, which are only ever handed back to it, and which callbacks it waits for.
struct UpperHandles {
  mca_btl_base_module_t* module = nullptr;
  mca_btl_base_endpoint_t* endpoint = nullptr;
  const Awaited* awaited = nullptr;   ///< null: all
  const opal_proc_t* gone = nullptr;  ///< the peer, if that is not null

  [[nodiscard]] bool awaits(const Fragment& message, int& status) const noexcept {
    return awaited == nullptr || awaited->message(*gone, message, status);
  }
  [[nodiscard]] bool awaits(const RdmaRequest& request) const noexcept {
    return awaited == nullptr || request.is_piece || awaited->rdma(*gone, request.context);
  }
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
  while (Fragment* const part = take_part(*fragment)) {
    end_send(upper, part, status);
  }
  bool is_ours = (fragment->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0;
  if (fragment->callback_due && fragment->des_cbfunc != nullptr) {
    if (upper.awaits(*fragment, status)) [[likely]] {
      const FragmentPool::Spare spare(*fragment->pool);
      fragment->des_cbfunc(upper.module, upper.endpoint, fragment, status);
    } else {
      is_ours = true;
    }
  }
  if (is_ours) {
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
  const mca_btl_base_rdma_completion_fn_t callback = upper.awaits(*request) ? request->callback : nullptr;
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
