// SPDX-License-Identifier: BSD-3-Clause
//
// What is left of a link that has broken, and drained: what the peer may not have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "btl_fabric/base/atomic_message.h"
#include "btl_fabric/base/fragment.h"
#include "btl_fabric/base/rdma_request.h"

namespace fabric {

/// Of an endpoint. Belongs to whoever holds the context's lock.
struct Backlog {
  struct Packet {
    std::uint32_t number = 0;
    Fragment* fragment = nullptr;  ///< null: `copy` is the packet, header and all
    std::vector<std::byte> copy{};
  };

  std::vector<std::deque<Packet>> queues;  ///< by place in the endpoint's subset; in order
  std::deque<Packet> ring;                 ///< was written to the peer's ring
  bool is_ring_settled = false;            ///< the peer has none of those
  std::deque<Packet>
      unnumbered;             ///< the peer has none of these either, and they get new numbers: LinkHealing::unnumber()
  RdmaRequestQueue requests;  ///< have not ended
  std::vector<AtomicReply> replies;  ///< to the peer's atomics, owed
};

}  // namespace fabric
