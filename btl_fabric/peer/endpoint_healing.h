// SPDX-License-Identifier: BSD-3-Clause
//
// What an endpoint keeps between the break of a link and the time when all that it had not delivered is sent again.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "btl_fabric/base/packet_header.h"
#include "btl_fabric/path/backlog.h"
#include "btl_fabric/path/link.h"

namespace fabric {

/// Why links break, for messages to users.
inline constexpr const char* kDeviceIsGone = "its device is gone";

struct EndpointHealing {
  bool has_broken = false;                      ///< a link; else the two sides only tell each other what has arrived
  std::chrono::steady_clock::time_point since;  ///< when the first link broke
  std::string why{};                            ///< it did
  std::uint32_t lost_qpn = 0;                   ///< the peer's, of the first queue of the newest that has carried; or 0
  std::shared_ptr<LinkRdma::Atomics> atomics{};
  Backlog backlog{};
  std::vector<std::uint32_t>
      taken{};  ///< by the peer, by place, and of the ring; empty: it has not said so over the newest link
  bool is_resending = false;                                          ///< over the newest link
  std::uint64_t resent_before = 0;                                    ///< Counters::packets_resent
  unsigned attempts = 0;                                              ///< to connect
  std::optional<std::chrono::steady_clock::time_point> connect_at{};  ///< it waits for that

  // By another way (endpoint_detour.cc)
  std::vector<std::uint32_t> taken_aside{};  ///< what the peer has said so, not handled yet; empty: nothing
  std::uint32_t number_aside = 0;            ///< of that
  bool is_settled = false;                   ///< what is left has no numbers any more: it goes by whatever way there is
  bool is_blocked = false;                   ///< something is left that the other port does not take
  bool is_carrying = false;                  ///< just now: a callback may send more
  bool is_told_aside = false;                ///< the peer has been told what we have taken, or will be
  std::optional<std::chrono::steady_clock::time_point> told_aside{};  ///< it was, or another port was looked for
  std::chrono::steady_clock::time_point carried_at{};                 ///< nothing has had to wait so far; zero: never
  std::uint64_t carried = 0;                                          ///< messages, reads and writes
};

/// What a process has sent to a peer and taken from it, over all links of its endpoints. It outlives them: Open MPI may take the
/// peer away and want it again while the peer's endpoint goes on to count.
struct PeerCounts {
  std::unique_ptr<PacketCounts[]> queues{};  ///< by place, and of the ring
  bool is_agreed = true;                     ///< what we have sent has been taken, or is known to have to be sent again
  std::uint32_t tellings = 0;                ///< of what has been taken, by whatever way
  std::uint32_t newest_heard = 0;            ///< of the peer's tellings
  std::uint32_t newest_aside = 0;       ///< of those by another way: we take nothing more from the link that was lost
  std::uint32_t first_since_break = 0;  ///< of ours: a peer that has heard of it takes nothing more from our last link
};

/// What had to be sent again first when a link had broken, which the next one has perhaps not brought to the peer either.
struct Obstacle {
  std::chrono::steady_clock::time_point since;
  std::vector<std::optional<std::uint32_t>> first;  ///< its number, by queue
};

}  // namespace fabric
