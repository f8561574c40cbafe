// SPDX-License-Identifier: BSD-3-Clause
//
// What fabric_info tells: of the devices of this host, and of what a list of receive queues takes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "common/contexts.h"
#include "common/queue_space.h"
#include "common/receive_queues.h"

namespace fabric::info {

/// What the user asks about.
struct Question {
  ReceiveQueues queues;
  NodeShare node;
  EndpointAttributes contexts;
  std::uint32_t rdma_depth = 0;
  std::uint32_t cq_size = 0;
};

/// What one queue of the list takes, for the process and for each peer.
struct QueueNeeds {
  QueueSpec spec;
  std::uint64_t bytes_per_peer = 0;              ///< registered receive buffers
  std::uint64_t bytes_per_process_at_first = 0;  ///< of a shared queue
  std::uint64_t bytes_per_process = 0;           ///< the same when it has grown to its full size
  std::uint64_t send_entries = 0;                ///< of the queue pair to a peer
  std::uint64_t receive_entries = 0;             ///< of the queue pair, or of the shared queue
  bool carries_rdma = false;
};

[[nodiscard]] QueueNeeds needs_of(const Question& question, std::size_t index, const DeviceCosts& costs,
                                  std::uint32_t max_inline);

/// Everything about all devices and about the queues.
[[nodiscard]] nlohmann::ordered_json report(const Question& question);

/// The same as tables.
[[nodiscard]] std::string as_text(const nlohmann::ordered_json& report);

}  // namespace fabric::info
