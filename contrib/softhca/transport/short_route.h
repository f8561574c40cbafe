// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where the short messages of a queue pair go (short_send.cc): what it takes many steps to find, and to check, kept from one message
// to the next. In private memory. None of it is used before something has proved that it still holds:
//  - that this side is as it was: ibv_modify_qp, and whatever else connects the queue pair, drops the route (Qp::sq_mutex held);
//  - that the destination is: its state, under its lock, is the word that was there when it was looked at (fabric/qp_state.h), which
//    no other queue pair, no other process in that slot and no other use of the same queue pair has. Queues of a queue pair live as
//    long as it does, so this proves them too: they cannot be destroyed before it;
//  - that its completion queue has the same ring, which ibv_resize_cq changes: its place and size, under the queue's lock.
// Where that fails, all is looked at anew, and by the general way if it is not fit for the short one.
#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fabric/layout.h"

namespace softhca {

class Fabric;
struct Qp;

struct ShortRoute {
  // This side's; all void while `dest` is nullptr. Whether the two ports are down, in the hub.
  QpShared* dest{nullptr};
  const std::atomic<uint32_t>* port_down{nullptr};
  const std::atomic<uint32_t>* dest_port_down{nullptr};
  OwnTraffic* sent{nullptr};

  // The destination's, while its state is this; 0: nobody has looked.
  uint64_t dest_state{0};
  SrqShared* srq{nullptr};  // nullptr: it has a queue of its own
  RecvRing* ring{nullptr};
  const uint8_t* requests{nullptr};  // the ring's entries
  uint32_t request_mask{0};
  uint32_t request_stride{0};
  uint32_t posted_seen{0};  // a RecvRing::posted of before; without an SRQ it is seldom looked at again
  bool has_seen{false};     // that, since a request last went by the general way: numbers wrap
  CqShared* cq{nullptr};
  uint32_t cq_index{0};
  uint32_t user{0};  // of its keys (transport/keys.h)
  uint32_t pd{0};
  // What each completion begins with: a CqEntry up to its turn.
  alignas(16) uint8_t header[offsetof(CqEntry, turn)]{};

  // Its completion queue's, while the ring has this place and size; 0: nobody has looked.
  uint64_t entries_offset{0};
  uint32_t entries_capacity{0};
  CqEntry* entries{nullptr};
};

// Each looks, notes what it has found, and says whether short messages can go there at all.
// This side, which is connected.
[[nodiscard]] bool find_destination(Fabric& fabric, Qp& qp);
// The destination, whose lock is held, after its first message.
[[nodiscard]] bool look_at_destination(Qp& qp);
// Its completion queue, whose lock is held.
[[nodiscard]] bool look_at_entries(Slot& owner, ShortRoute& route);

}  // namespace softhca
