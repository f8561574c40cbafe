// SPDX-License-Identifier: BSD-3-Clause
//
// A port connected to itself: for atomics on this process's own memory, which must go through the device wherever
// those of peers do, since a device's atomics and the processor's do not know of each other.
#pragma once

#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric::cpc {

/// Two queue pairs of this process that are connected to each other. What is posted on `near` acts on our own memory.
struct Loopback {
  CompletionQueueRoom room;
  QueuePair near;
  QueuePair far;
};

/// Asks nobody, so it is done at once; may be called from any thread. `sends`: room of the near end's send queue.
[[nodiscard]] Result<Loopback> make_loopback(const PortContext& port, const QueueSpace& sends);

}  // namespace fabric::cpc
