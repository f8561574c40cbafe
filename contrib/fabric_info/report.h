// SPDX-License-Identifier: BSD-3-Clause
//
// What fabric_info tells: of the devices of this host, and of what a list of receive queues takes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/accounting/contexts.h"
#include "common/accounting/queue_space.h"
#include "common/accounting/receive_queues.h"
#include "common/ports/protocol_limits.h"
#include "common/rdma/rdma_planner.h"

namespace fabric::info {

/// An operation that the user wants to know the plan of.
struct PlannedOperation {
  RdmaKind kind = RdmaKind::kRead;
  std::uint64_t bytes = 0;
  bool is_registered = true;
};

/// What the user asks about.
struct Question {
  ReceiveQueues queues;
  bool are_queues_chosen = false;  ///< as the component does: by the job, and on a device by that
  NodeShare node;
  std::int64_t hosts = 2;
  EndpointAttributes contexts;  ///< -1: as granted_contexts() counts them
  std::uint32_t rdma_depth = 0;
  std::uint32_t cq_size = 0;
  std::vector<PlannedOperation> operations;
  int mtu = 0;                       ///< the parameter btl_fabric_mtu
  int gid_index = -1;                ///< the parameter btl_fabric_gid_index
  std::optional<DeviceCosts> costs;  ///< the parameter btl_fabric_queue_costs; nothing: each device's own
  std::uint32_t wanted_inline = 0;   ///< bytes to ask devices for
  LimitWishes limits;
  bool is_fit_asked = false;  ///< whether the job fits
  std::uint64_t memory = 0;   ///< that a process may spend on that, bytes; 0: any
};

/// What one queue of the list takes, for the process and for each peer.
struct QueueNeeds {
  QueueSpec spec;
  std::uint64_t bytes_per_peer_at_first = 0;     ///< registered receive buffers of a P queue
  std::uint64_t bytes_per_peer = 0;              ///< the same when it has grown to its full size
  std::uint64_t bytes_per_process_at_first = 0;  ///< of a shared queue
  std::uint64_t bytes_per_process = 0;           ///< the same when it has grown to its full size
  std::uint64_t send_entries = 0;                ///< of the queue pair to a peer
  std::uint64_t receive_entries = 0;             ///< of the queue pair, or of the shared queue
  std::uint64_t completions = 0;                 ///< that a completion queue has room for, for the queue pair alone
  bool carries_rdma = false;
};

/// Queue pairs of one port, when every process has talked to every other one over it, in every context.
struct QueuePairCounts {
  std::uint64_t senders_per_process = 0;  ///< X queues: one to each host on which somebody is talked to
  std::uint64_t per_process = 0;          ///< those, or with P and S queues one for each peer and queue
  std::uint64_t targets_per_host =
      0;                       ///< X queues: shared by the processes of the host, one for each process that sends here
  std::uint64_t per_host = 0;  ///< all
};
[[nodiscard]] QueuePairCounts queue_pairs_of(const Question& question) noexcept;

[[nodiscard]] QueueNeeds needs_of(const Question& question, std::size_t index, const DeviceCosts& costs,
                                  std::uint32_t max_inline);

/// Contexts of an endpoint on a device with so many queue pairs; those that were asked for by -1 as the component counts them: one for
/// each processor, as far as there are queue pairs.
[[nodiscard]] EndpointAttributes granted_contexts(const Question& question, std::int64_t queue_pairs);

/// Of each port, where none is asked for by -1.
[[nodiscard]] std::int64_t contexts_of(const Question& question) noexcept;

/// The queues that the component would choose for the job, with so many queue pairs for each process, on a device with XRC or
/// without.
[[nodiscard]] ReceiveQueues chosen_queues(const Question& question, Transport link, std::int64_t queue_pairs,
                                          const DeviceCosts& costs, std::uint32_t max_inline, bool has_xrc = false);

/// Everything about all devices and about the queues.
[[nodiscard]] nlohmann::ordered_json report(const Question& question);

/// The same as tables.
[[nodiscard]] std::string as_text(const nlohmann::ordered_json& report);

}  // namespace fabric::info
