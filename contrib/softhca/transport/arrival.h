// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A message at its destination: the receive request that it uses up. All under the destination QP's lock.
#include <infiniband/verbs.h>

#include <span>

#include "fabric/fabric.h"
#include "faults/kill_at.h"
#include "transport/gather.h"

namespace softhca {

// Whose memory and keys a message is about: the owner of the QP or, for XRC, of the SRQ that the message names.
struct Owner {
  Slot* slot;
  unsigned number;
  uint32_t incarnation;
  uint32_t pd;
  SrqShared* srq;  // nullptr: the QP's own RQ
  uint32_t srqn;   // XRC
  uint32_t recv_cq;
};

struct Arrival {
  uint64_t wr_id;
  uint64_t length;  // of all elements
  unsigned num_sge;
  Sge sge[kMaxSge];
  KillAt kill_at = KillAt::Nowhere;  // a fault
};

// Takes the next receive request. false: there is none.
[[nodiscard]] bool take(Fabric& fabric, const Owner& owner, QpShared& qp, Arrival& arrival);
// Under the lock of an SRQ's ring: who held it before may have died between the stores of take() and untake().
[[gnu::cold, gnu::noinline]] void settle_taking(Slot& slot, RecvRing& ring);
inline void finish_taking(Slot& slot, RecvRing& ring) {
  if (ring.taking.load(std::memory_order_relaxed) != 0) [[unlikely]]
    settle_taking(slot, ring);
}
// Puts it back, if no other has been taken since. Where the owner has filled the queue meanwhile it is flushed.
void untake(Fabric& fabric, const Owner& owner, QpShared& qp);
// The same for one that another sender has died with, unless it had completed it; if another has been taken since, it is flushed.
// Only a QP for datagrams has other senders.
void take_from_dead(Fabric& fabric, const Owner& owner, QpShared& qp);

enum class Delivery {
  Done,
  TooLong,        // the receiver has got IBV_WC_LOC_LEN_ERR
  ReceiverFault,  // the receiver has got IBV_WC_LOC_PROT_ERR
  SenderFault,    // nothing has come; the request is put back
  SenderNoRoom,   // the same, and it is not the address that is at fault
  Lost,           // the receiver is dead
  Overrun,        // there was no room for the completion
  NoRoom,         // nor, now, for a payload on its way; only complete_arrival() says this
};

// Copies the message to the buffers of the request and completes it: `completion` has the opcode, flags and so on.
[[nodiscard]] Delivery deliver(Fabric& fabric, const Owner& owner, QpShared& qp, const Arrival& arrival,
                               std::span<const iovec> message, CqEntry& completion);
// The same when the bytes went elsewhere (RDMA WRITE with immediate data).
[[nodiscard]] Delivery complete_arrival(Fabric& fabric, const Owner& owner, QpShared& qp, const Arrival& arrival,
                                        CqEntry& completion, std::span<const iovec> landing = {});

// Tells the owner's engine about a QP; the XRC targets of the hub belong to all that have them open.
void tell_owner(Fabric& fabric, unsigned slot_number, Slot& slot, QpShared& qp, uint32_t event_bits);

}  // namespace softhca
