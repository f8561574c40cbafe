// SPDX-License-Identifier: BSD-3-Clause
//
// A message buffer in registered memory: the descriptor that Open MPI's upper layers fill and see, and the verbs side
// of it.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "btl_fabric/base/opal.h"
#include "btl_fabric/base/packet_header.h"

namespace fabric {

class FragmentPool;
struct LinkQueue;

/// Open MPI's object system builds these, so there are no constructors: the pool that a fragment comes from fills it
/// in.
struct Fragment : mca_btl_base_descriptor_t {
  /// What the upper layer sees: the bytes after our header, and, of a send in place, those in the user's memory.
  mca_btl_base_segment_t segments[2];
  mca_rcache_base_registration_t* user_memory;  ///< of a send in place: held until it completes; otherwise null
  FragmentPool* pool;                           ///< that it goes back to
  std::byte* packet;                            ///< our header, then the segment
  std::uint32_t lkey;
  std::uint32_t user_lkey;
  std::uint8_t queue;  ///< index in receive_queues
  bool is_receive;
  PacketKind kind;         ///< of a send: kMessage unless the component itself speaks
  mca_btl_base_tag_t tag;  ///< of a send, while it waits
  bool callback_due;       ///< of a send: call des_cbfunc when it completes
  std::uint8_t detours;    ///< of a send: ports that could not carry it
  std::uint32_t number;    ///< of a send that is counted: PacketCounts::sent before it
  std::uint64_t carried;   ///< of a send: what its completion frees of the send queue
  /// Where a request of it is under way; null: nowhere, or on a shared receive queue. A receive that is done keeps it.
  LinkQueue* posted_on;
  Fragment* next;                        ///< in the list it waits in
  mca_btl_base_endpoint_t* directed_to;  ///< of a send that was left with a context: the peer
  Fragment* parts;                       ///< of a packet of several messages: these, in order; otherwise null
  Fragment* made_before;                 ///< of its pool's
  ibv_recv_wr receive_request;           ///< of a receive: registered memory does not move, so it is built once
  ibv_sge receive_sge;
};

/// First in, first out, linked through the fragments themselves.
class FragmentQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  [[nodiscard]] Fragment* front() const noexcept { return head_; }

  void push_back(Fragment* fragment) noexcept {
    fragment->next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = fragment;
    tail_ = fragment;
  }

  /// Nobody is called back when the messages of the upper layer end.
  void forget_callers() noexcept {
    for (Fragment* one = head_; one != nullptr; one = one->next) {
      one->des_cbfunc = one->kind == PacketKind::kMessage ? nullptr : one->des_cbfunc;
      for (Fragment* part = one->parts; part != nullptr; part = part->next) {
        part->des_cbfunc = nullptr;
      }
    }
  }

  Fragment* pop_front() noexcept {
    Fragment* first = head_;
    head_ = first->next;
    return first;
  }

 private:
  Fragment* head_ = nullptr;
  Fragment* tail_ = nullptr;
};

}  // namespace fabric
