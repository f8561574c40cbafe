// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Send requests leave their queue (Qp::sq_mutex held).
#include "verbs/objects.h"

namespace softhca {

// The first request leaves the queue, to be completed later.
inline void leave_first(SendQueue& sq) {
  ++sq.head;
  ++sq.operations;
  sq.wait = SendWait::None;
}
// A request that has left the queue.
struct Executed {
  uint64_t wr_id;
  uint32_t length;
  unsigned flags;  // ibv_send_flags
  ibv_wc_opcode opcode;
};
// Completes it, if it wants that or has failed. false: there was no room for the completion, and the QP has failed.
bool complete_request(Fabric& fabric, Qp& qp, const Executed& request, ibv_wc_status status);
// The same where the queue has no room: who owns it is told.
[[gnu::cold, gnu::noinline]] bool overrun(Fabric& fabric, Qp& qp, const Executed& request, ibv_wc_status status);
// The same for an entry of the queue, the oldest of those that have left it.
bool complete_request(Qp& qp, const SendEntry& entry, ibv_wc_status status);
// The first request is done: it leaves the queue and is completed. false: as above.
bool retire_first(Qp& qp, ibv_wc_status status);
// What SendQueue::short_opcodes is of a queue pair that has a peer.
uint32_t short_opcodes(const Config& config, const Qp& qp);
// All that are left complete with IBV_WC_WR_FLUSH_ERR.
void flush_sends(Qp& qp);

}  // namespace softhca
