// SPDX-License-Identifier: BSD-3-Clause
//
// Fits queues to a device: what one process may lower by itself is lowered, with the reason; what both sides of a
// connection count on (a P queue's receives are the peer's credits) is not, and the error says what does not fit.
#pragma once

#include <cstdint>
#include <vector>

#include "common/accounting/completion_queue_set.h"
#include "common/accounting/contexts.h"
#include "common/accounting/receive_queues.h"
#include "common/base/result.h"
#include "common/rdma/rdma_planner.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric::cpc {

/// Work requests that a queue pair can have under way.
struct QueueDepths {
  std::uint32_t send = 0;
  std::uint32_t receive = 0;
  std::uint32_t shared_sends = 0;  ///< of `send`: those whose completions take turns with other queue pairs'
  std::uint32_t later = 0;         ///< of `receive`: those that are posted only if the peer runs out of credits

  /// What a completion queue has to have room for when the queue pair is made.
  [[nodiscard]] CompletionDemand completions() const noexcept {
    return {send - shared_sends + receive - later, shared_sends};
  }
};

/// Those of queue `index`, marker and handshake included; of X queues those of the sender that they share. CTS goes over the
/// first queue; on iWARP over each, since each queue pair is a TCP connection with an active side that must send first.
[[nodiscard]] QueueDepths queue_depths(const ReceiveQueues& queues, std::size_t index, Transport link,
                                       const QueuePairSettings& settings) noexcept;

/// What reads, writes and atomics can be on a port's queue pairs before one is connected. `device_reads`: outstanding
/// ones that the device can start.
[[nodiscard]] RdmaLimits rdma_limits(Transport link, std::uint64_t max_message, std::uint32_t max_inline,
                                     int device_reads) noexcept;

/// Limits of a device and its port, and what this process may have of them.
struct DeviceRoom {
  std::uint32_t max_qp_wr = 0;         ///< work requests of a queue pair, each way
  std::uint32_t max_srq_wr = 0;        ///< receives of a shared queue
  std::uint32_t max_cqe = 0;           ///< entries of a completion queue
  std::uint64_t max_message = 0;       ///< bytes
  std::int64_t completion_queues = 0;  ///< this process's part
};

/// What a port runs with.
struct QueueFit {
  ReceiveQueues queues;
  std::uint32_t rdma_depth = 0;
  std::uint32_t cq_entries = 0;  ///< of a completion queue
  std::uint32_t last_cq_entries =
      0;  ///< of the last that there may be: room for all peers, as far as the device has it
  std::uint32_t most_cqs = 0;
  std::uint64_t entries_at_first = 0;  ///< what the queue pairs to all peers own when they are made
  std::vector<Grant> changes;          ///< what is not as asked for, and why
};

/// `queues` as they are run on the kind of link. `peers`: processes that may be connected.
[[nodiscard]] Result<QueueFit> fit_queues(const ReceiveQueues& queues, Transport link,
                                          const QueuePairSettings& settings, std::uint32_t cq_size, std::uint32_t peers,
                                          const DeviceRoom& device);

}  // namespace fabric::cpc
