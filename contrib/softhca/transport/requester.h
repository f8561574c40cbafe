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
// Completes a request that has left the queue, the oldest of those, if it wants that or has failed. false: as below.
bool complete_request(Qp& qp, const SendEntry& entry, ibv_wc_status status);
// The first request is done: completes it if it wants that or has failed. false: there was no room for the completion, and
// the QP has failed.
bool retire_first(Qp& qp, ibv_wc_status status);
// All that are left complete with IBV_WC_WR_FLUSH_ERR.
void flush_sends(Qp& qp);

}  // namespace softhca
