// SPDX-License-Identifier: BSD-3-Clause
#include "cpc/queue_pairs/queue_choice.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <span>

#include "cpc/queue_pairs/queue_fit.h"

namespace fabric::cpc {
namespace {

constexpr const char* kQueues = "P,128,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,512,448,64";

/// The queues of each level, by their index in that list.
constexpr std::array<std::uint8_t, 4> kAllQueues{0, 1, 2, 3};
constexpr std::array<std::uint8_t, 3> kSharedQueues{1, 2, 3};
constexpr std::array<std::uint8_t, 1> kOneQueue{2};
constexpr std::array<std::span<const std::uint8_t>, kQueueLevels> kLevels{kAllQueues, kSharedQueues, kOneQueue};

constexpr std::uint32_t kLeastReceives = 64;  ///< of a shared queue

QueueSpec with_receives(const QueueSpec& spec, std::uint32_t count) noexcept {
  QueueSpec fewer = spec;
  fewer.rd_num = count;
  fewer.rd_low = in_proportion(spec.rd_low, count, spec.rd_num);
  fewer.rd_init = std::max(1U, in_proportion(spec.rd_init, count, spec.rd_num));
  fewer.srq_limit = in_proportion(spec.srq_limit, count, spec.rd_num);
  return fewer;
}

/// Its shared queues with few receives.
ReceiveQueues smallest(ReceiveQueues queues) {
  for (std::size_t i = 0; i < queues.count(); ++i) {
    if (queues[i].kind != QueueKind::kPerPeer) {
      queues = queues.with(i, with_receives(queues[i], std::min(queues[i].rd_num, kLeastReceives)));
    }
  }
  return queues;
}

ReceiveQueues run_on(Transport link, const ReceiveQueues& queues) {
  return link == Transport::kIwarp ? queues.without_shared() : queues;
}

constexpr const char* kMakesRoom = ": idle connections make room for others";

std::string number(std::uint64_t value) {
  return std::to_string(value);
}

std::string bytes_for(std::uint64_t bytes, std::int64_t peers, std::uint64_t left) {
  return number(bytes) + " bytes for " + number(peers) + (peers == 1 ? " peer" : " peers") +
         ", and btl_fabric_memory_budget leaves " + number(left);
}

std::int64_t fewest(const QueueRoom& room) noexcept {
  return std::min(room.peers, kFewestConnections);
}

/// What X queues take for connections with all peers, beside the receives; 0 without them.
std::uint64_t bytes_of_xrc(const QueueDemand& demand, const QueueRoom& room) noexcept {
  const std::uint64_t host = demand.per_host.sum();
  return host == 0 ? 0
                   : host * static_cast<std::uint64_t>(room.hosts()) +
                         connection_memory().sum() * static_cast<std::uint64_t>(room.peers);
}

/// What connections with all peers take, beside the receives that they share: by X queues, and a few by others, if there are
/// some.
std::uint64_t bytes_of_connections(const QueueDemand& demand, const QueueRoom& room) noexcept {
  const std::int64_t others =
      demand.queue_pairs_per_peer == 0 ? 0 : (demand.per_host.sum() == 0 ? room.peers : fewest(room));
  return bytes_of_xrc(demand, room) + demand.per_peer.sum() * static_cast<std::uint64_t>(others);
}

/// Why there is no room for connections with all peers at once; "" if there is.
std::string too_much(const ReceiveQueues& list, const QueueRoom& room) {
  const QueueDemand demand = queue_demand(smallest(run_on(room.link, list)), room.link, room.settings);
  const std::int64_t pairs = demand.queue_pairs_per_peer * room.peers;
  if (pairs > room.queue_pairs) {
    return number(pairs) + " queue pairs for " + number(room.peers) + " peers, and this process may have " +
           number(room.queue_pairs) + " (its part of the device, or btl_fabric_max_queue_pairs)";
  }
  const std::uint64_t bytes = demand.bytes(room.peers);
  return room.memory != 0 && bytes > room.memory ? bytes_for(bytes, room.peers, room.memory) : std::string();
}

/// There are X queues, several processes to share queue pairs, and room for connections with all peers at once, and for a few by
/// the other queue.
bool has_room_for_xrc(const QueueRoom& room) {
  if (!room.has_xrc || room.processes < 2 || queues_of_level(kXrcLevel).largest() < room.longest) {
    return false;
  }
  const ReceiveQueues queues = smallest(queues_of_level(kXrcLevel));
  const QueueDemand demand = queue_demand(queues, room.link, room.settings);
  const std::int64_t pairs = kXrcPairsPerHost * room.hosts() + demand.queue_pairs_per_peer * fewest(room);
  return pairs <= room.queue_pairs && (room.memory == 0 || bytes_of_all(queues, room) <= room.memory);
}

/// Why a level is not for this room; "" if it is.
std::string objection(std::uint8_t level, const QueueRoom& room) {
  if (level == 0 && room.peers > kMostPeersWithOwnReceives) {
    return number(room.peers) + " peers, more than the " + number(kMostPeersWithOwnReceives) +
           " that have receives of their own";
  }
  if (level == 1 && room.peers > kMostPeersWithOwnReceives && room.link == Transport::kIwarp) {
    return number(room.peers) + " peers, each of which has receives of its own for every queue on iWARP";
  }
  return too_much(queues_of_level(level), room);
}

}  // namespace

std::int64_t most_connections(const ReceiveQueues& queues, const QueueRoom& room) {
  const QueueDemand demand = queue_demand(queues, room.link, room.settings);
  const std::int64_t pairs = room.queue_pairs - (queues.has_xrc() ? kXrcPairsPerHost * room.hosts() : 0);
  std::int64_t most = std::min(room.peers, pairs / demand.queue_pairs_per_peer);
  if (room.memory != 0) {
    const std::uint64_t taken = demand.shared.sum() + bytes_of_xrc(demand, room);
    const std::uint64_t left = room.memory > taken ? room.memory - taken : 0;
    most = std::min(most, static_cast<std::int64_t>(left / demand.per_peer.sum()));
  }
  return std::max(most, fewest(room));
}

std::uint64_t bytes_of_all(const ReceiveQueues& queues, const QueueRoom& room) {
  const QueueDemand demand = queue_demand(queues, room.link, room.settings);
  return demand.shared.sum() + bytes_of_connections(demand, room);
}

std::string shortfall(const ReceiveQueues& list, const QueueRoom& room) {
  const std::int64_t peers = fewest(room);
  const std::uint64_t bytes = queue_demand(smallest(run_on(room.link, list)), room.link, room.settings).bytes(peers);
  return room.memory != 0 && bytes > room.memory ? bytes_for(bytes, peers, room.memory) : std::string();
}

ReceiveQueues queues_of_level(std::uint8_t level) {
  if (level == kXrcLevel) {
    const ReceiveQueues others = queues_of_level(kQueueLevels - 1);
    ReceiveQueues xrc = others;
    for (std::size_t i = 0; i < others.count(); ++i) {
      QueueSpec spec = others[i];
      spec.kind = QueueKind::kXrc;
      xrc = xrc.with(i, spec);
    }
    return ReceiveQueues::joined(others, xrc);
  }
  return ReceiveQueues::parse(kQueues).value().only(kLevels.at(level));
}

std::uint8_t common_subset(std::uint8_t ours, std::uint8_t theirs) noexcept {
  constexpr std::uint8_t kHighest = kQueueLevels - 1;
  if (ours == kXrcLevel) {
    return 1;
  }
  return static_cast<std::uint8_t>(std::max(ours, std::min(theirs, kHighest)) - ours);
}

std::vector<QueueSubset> subsets_of_level(std::uint8_t level, const ReceiveQueues& list) {
  if (level == kXrcLevel) {
    assert(list.count() == 2);
    return {QueueSubset(list, {1}), QueueSubset(list, {0})};
  }
  const std::span<const std::uint8_t> own = kLevels.at(level);
  assert(list.count() == own.size());
  std::vector<QueueSubset> subsets;
  for (std::uint8_t other = level; other < kQueueLevels; ++other) {
    std::vector<std::uint8_t> indices;
    for (const std::uint8_t queue : kLevels.at(other)) {
      indices.push_back(static_cast<std::uint8_t>(std::find(own.begin(), own.end(), queue) - own.begin()));
    }
    subsets.emplace_back(list, std::move(indices));
  }
  return subsets;
}

QueueDemand queue_demand(const ReceiveQueues& queues, Transport link, const QueuePairSettings& settings) {
  QueueDemand demand{0, connection_memory(), {}, host_memory(queues, settings)};
  for (std::size_t i = 0; i < queues.count(); ++i) {
    const QueueSpec& spec = queues[i];
    demand.queue_pairs_per_peer += spec.kind == QueueKind::kXrc ? 0 : 1;
    demand.per_peer += queue_memory(queues, i, link, settings);
    demand.per_peer += growth_memory(spec, spec.receives_later());
    demand.shared += shared_memory(spec);
  }
  return demand;
}

QueueChoice choose_level(const QueueRoom& room, std::uint8_t lowest) {
  QueueChoice choice;
  choice.level = lowest;
  for (;; ++choice.level) {
    std::string why_not = objection(choice.level, room);
    if (why_not.empty()) {
      if (choice.why.empty()) {
        choice.why = number(room.peers) + " peers, for whom there is room";
      }
      return choice;
    }
    if (choice.level + 1 == kQueueLevels || queues_of_level(choice.level + 1).largest() < room.longest) {
      choice.why = std::move(why_not) + kMakesRoom;
      choice.is_cached = true;
      choice.shortfall = shortfall(queues_of_level(choice.level), room);
      return choice;
    }
    choice.why = std::move(why_not);
  }
}

QueueChoice choose_level_of_all(std::span<const QueueRoom> rooms) {
  QueueChoice all;
  for (const QueueRoom& room : rooms) {
    QueueChoice one = choose_level(room, all.level);
    if (one.level > all.level || all.why.empty() || (one.is_cached && !all.is_cached)) {
      all.level = one.level;
      all.why = std::move(one.why);
      all.is_cached = one.is_cached;
    }
    if (!one.shortfall.empty()) {  // what any port lacks is told
      all.shortfall = std::move(one.shortfall);
    }
  }
  if (all.is_cached && std::all_of(rooms.begin(), rooms.end(), has_room_for_xrc)) {
    all.level = kXrcLevel;
    all.why = all.why.substr(0, all.why.find(kMakesRoom)) + ": the " + number(rooms.front().processes) +
              " processes of a host share queue pairs";
    all.shortfall.clear();
    all.is_cached = false;
  }
  return all;
}

QueueChoice choose_xrc(std::span<const QueueRoom> rooms) {
  if (!std::all_of(rooms.begin(), rooms.end(), [](const QueueRoom& room) { return room.has_xrc; })) {
    return choose_level_of_all(rooms);
  }
  QueueChoice choice;
  choice.level = kXrcLevel;
  choice.why = "only a method that connects X queues is allowed";
  for (const QueueRoom& room : rooms) {
    choice.shortfall = choice.shortfall.empty() ? shortfall(queues_of_level(kXrcLevel), room) : choice.shortfall;
  }
  return choice;
}

ReceiveQueues within_memory(const ReceiveQueues& queues, const QueueRoom& room) {
  const QueueDemand demand = queue_demand(queues, room.link, room.settings);
  const std::uint64_t shared = demand.shared.sum();
  const std::uint64_t peers = bytes_of_connections(demand, room);
  if (room.memory == 0 || shared + peers <= room.memory || shared == 0) {
    return queues;
  }
  const std::uint64_t left = room.memory > peers ? room.memory - peers : 0;
  ReceiveQueues fewer = smallest(queues);
  const std::uint64_t least = queue_demand(fewer, room.link, room.settings).shared.sum();
  if (left <= least) {
    return fewer;
  }
  const double part = static_cast<double>(left - least) / static_cast<double>(shared - least);
  for (std::size_t i = 0; i < queues.count(); ++i) {
    if (queues[i].kind != QueueKind::kPerPeer) {
      const auto more = static_cast<std::uint32_t>(part * (queues[i].rd_num - fewer[i].rd_num));
      fewer = fewer.with(i, with_receives(queues[i], fewer[i].rd_num + more));
    }
  }
  return fewer;
}

}  // namespace fabric::cpc
