// SPDX-License-Identifier: BSD-3-Clause
//
// The receive queues of a process where btl_fabric_receive_queues is "auto": as many as the job's size, the device and the
// memory budget allow. Pure functions.
//
// There are a few levels, from the list that is fastest with few peers to one queue for everything. Each has some of the
// queues of the one before. Processes may choose different levels: two of them are connected by the queues of the higher
// one, which both have. So nobody has to know what others choose before it asks them, and jobs that are joined later fit.
// The last level has an X queue beside the one queue: two processes that have both chosen it are connected by that, and each
// of them with any other one by the queue that all have.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/accounting/queue_subset.h"
#include "common/accounting/receive_queues.h"
#include "cpc/queue_pairs/queue_memory.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric::cpc {

/// The value of btl_fabric_receive_queues that asks for a choice.
inline constexpr const char* kAutoQueues = "auto";

inline constexpr std::uint8_t kQueueLevels = 3;
/// Behind those: the highest of them, and an X queue like it.
inline constexpr std::uint8_t kXrcLevel = kQueueLevels;

/// Peers up to which each has receives of its own. They save small messages the wait for a receive, for some 40 KiB of memory
/// of each process and peer.
inline constexpr std::int64_t kMostPeersWithOwnReceives = 32;

/// The list of a level, 0 to kXrcLevel.
[[nodiscard]] ReceiveQueues queues_of_level(std::uint8_t level);

/// What connections of a process of this level may have of `list`, which has the queues of that level, perhaps with other
/// counts: its own queues first, then those of each higher level. Of kXrcLevel: the X queue, then the other one.
[[nodiscard]] std::vector<QueueSubset> subsets_of_level(std::uint8_t level, const ReceiveQueues& list);

/// Which of the subsets of level `ours`, for connections that are not by X queues, two processes of such levels have.
[[nodiscard]] std::uint8_t common_subset(std::uint8_t ours, std::uint8_t theirs) noexcept;

/// What a list takes of a process that has talked to all its peers, and had bursts from all (queue_memory.h).
struct QueueDemand {
  std::int64_t queue_pairs_per_peer = 0;  ///< connected by P and S queues
  MemoryParts per_peer;                   ///< the same
  MemoryParts shared;                     ///< by all peers
  MemoryParts per_host;                   ///< with peers that are connected by X queues
  /// With so many peers that are connected by P and S queues.
  [[nodiscard]] std::uint64_t bytes(std::int64_t peers) const noexcept {
    return shared.sum() + per_peer.sum() * static_cast<std::uint64_t>(peers);
  }
};

/// `queues`: as the kind of link runs them.
[[nodiscard]] QueueDemand queue_demand(const ReceiveQueues& queues, Transport link, const QueuePairSettings& settings);

/// What there is for the connections through one port, in one context.
struct QueueRoom {
  Transport link = Transport::kRoce;
  QueuePairSettings settings;
  std::int64_t peers = 1;        ///< that the process may talk to
  std::int64_t processes = 1;    ///< of this host, with this one
  bool has_xrc = false;          ///< the device does, and there is a method that connects X queues
  std::int64_t queue_pairs = 0;  ///< this process's part
  std::uint64_t memory = 0;      ///< bytes; 0: no limit
  std::uint32_t longest = 0;     ///< messages of so many bytes must have a queue

  /// That the job runs on, if each has as many processes.
  [[nodiscard]] std::int64_t hosts() const noexcept { return (peers + processes) / processes; }
};

struct QueueChoice {
  std::uint8_t level = 0;
  std::string why;         ///< "63 peers, more than the 32 that have receives of their own"
  std::string shortfall;   ///< as of shortfall(), of the highest level; "" if it runs
  bool is_cached = false;  ///< there is no room for all at once
};

/// The lowest level from `lowest` on that has room for connections with all peers at once; if none has, the highest that has a
/// queue for room.longest bytes. Then idle connections make room for others.
[[nodiscard]] QueueChoice choose_level(const QueueRoom& room, std::uint8_t lowest = 0);

/// The same for all ports of a process. X queues are chosen where some port has no room otherwise, and every one has the
/// room, and XRC.
[[nodiscard]] QueueChoice choose_level_of_all(std::span<const QueueRoom> rooms);

/// The same if only X queues can be connected: those, if every port has XRC. If not, what is chosen cannot be used.
[[nodiscard]] QueueChoice choose_xrc(std::span<const QueueRoom> rooms);

/// Fewer connections than these are of no use.
inline constexpr std::int64_t kFewestConnections = 2;

/// Connections by P and S queues that there is room for at once, beside those by X queues to all peers; but no more than there
/// are peers, and no less than the fewest. `queues`: as the kind of link runs them; not all are X queues.
[[nodiscard]] std::int64_t most_connections(const ReceiveQueues& queues, const QueueRoom& room);

/// What a process with connections to all peers takes, bytes: by X queues, and a few by the others, if there are such. `queues`:
/// as the kind of link runs them; not all are X queues.
[[nodiscard]] std::uint64_t bytes_of_all(const ReceiveQueues& queues, const QueueRoom& room);

/// What memory even the fewest connections by `queues` are too much for; "" if they fit.
[[nodiscard]] std::string shortfall(const ReceiveQueues& queues, const QueueRoom& room);

/// `queues`, as the kind of link runs them, with as many shared receives as room.memory allows, but a few at least.
[[nodiscard]] ReceiveQueues within_memory(const ReceiveQueues& queues, const QueueRoom& room);

}  // namespace fabric::cpc
