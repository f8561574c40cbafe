// SPDX-License-Identifier: BSD-3-Clause
//
// What is inside the objects of a progress thread (inside.h), and what the checker does with their timers.
#pragma once

#include <event2/event.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "cpc/core/connection.h"
#include "cpc/manager/connections.h"
#include "cpc/queue_pairs/xrc_senders.h"
#include "test/model/digest.h"
#include "test/model/inside.h"

namespace fabric::model {

FABRIC_OPEN(cpc, Timer, event_);
FABRIC_OPEN(cpc, Timer, callback_);
FABRIC_OPEN(cpc, Connection, attempt_);
FABRIC_OPEN(cpc, Connection, channel_);
FABRIC_OPEN(cpc, Connection, named_target_);
FABRIC_OPEN(cpc, Connection, opened_by_us_);
FABRIC_OPEN(cpc, Connection, pauses_);
FABRIC_OPEN(cpc, Connection, peer_attempt_);
FABRIC_OPEN(cpc, Connection, peer_pauses_);
FABRIC_OPEN(cpc, Connection, queue_pairs_);
FABRIC_OPEN(cpc, Connection, refuse_reason_);
FABRIC_OPEN(cpc, Connection, remote_ends_);
FABRIC_OPEN(cpc, Connection, request_left_);
FABRIC_OPEN(cpc, Connection, share_);
FABRIC_OPEN(cpc, Connection, spent_ms_);
FABRIC_OPEN(cpc, Connection, taken_target_);
FABRIC_OPEN(cpc, Connection, target_);
FABRIC_OPEN(cpc, Connection, timer_);
FABRIC_OPEN(cpc, Connection, timer_event_);
FABRIC_OPEN(cpc, Connection, wanted_);
FABRIC_OPEN(cpc, Connections, lanes_);
FABRIC_OPEN(cpc, Incarnations, ended_);
FABRIC_OPEN(cpc, Incarnations, newest_);
FABRIC_OPEN(cpc, XrcShare, is_user_);
FABRIC_OPEN(cpc, XrcShare, sender_);
FABRIC_OPEN(cpc, XrcShare, turn_);
FABRIC_OPEN(cpc, XrcSender, waiting_);
FABRIC_OPEN(cpc, XrcSender, owner_);
FABRIC_OPEN(cpc, XrcSender, serial_);
FABRIC_OPEN(cpc, XrcSender, state_);
FABRIC_OPEN(cpc, XrcSender, target_qpn_);
FABRIC_OPEN(cpc, XrcSender, users_);

/// The timer's time is up.
inline void fire(cpc::Timer& timer) {
  event_del(&inside(timer, Timer_event_{}));
  const std::function<void()> callback = inside(timer, Timer_callback_{});  // it may destroy the timer
  callback();
}

/// The timer of a connection, and what it is for.
[[nodiscard]] inline cpc::Timer& timer_of(const cpc::Connection& connection) {
  return const_cast<cpc::Timer&>(inside(connection, Connection_timer_{}));
}
[[nodiscard]] inline cpc::Event timer_event_of(const cpc::Connection& connection) {
  return inside(connection, Connection_timer_event_{});
}
[[nodiscard]] inline cpc::XrcShare* share_of(const cpc::Connection& connection) {
  return inside(connection, Connection_share_{});
}
/// Of a connection that has a share of a sender: the timer by which it is told to go on. Else null.
[[nodiscard]] inline cpc::Timer* turn_of(const cpc::Connection& connection) {
  cpc::XrcShare* const share = share_of(connection);
  return share == nullptr ? nullptr : &inside(*share, XrcShare_turn_{});
}

/// What a key has one after the other, or null.
[[nodiscard]] inline auto* lane_of(const cpc::Connections& connections, const cpc::ConnectionKey& key) {
  const auto& lanes = inside(connections, Connections_lanes_{});
  const auto found = lanes.find(key);
  return found == lanes.end() ? nullptr : &found->second;
}
/// Its connections, the current one first, which may be null.
[[nodiscard]] inline std::vector<const cpc::Connection*> all_of(const cpc::Connections& connections,
                                                                const cpc::ConnectionKey& key) {
  std::vector<const cpc::Connection*> all;
  if (const auto* lane = lane_of(connections, key); lane != nullptr) {
    all.push_back(lane->current.get());
    for (const auto& one : lane->ending) {
      all.push_back(one.get());
    }
  }
  return all;
}

inline void add_to(Digest& digest, const cpc::XrcShare& share) {
  const cpc::XrcSender& sender = *inside(share, XrcShare_sender_{});
  const auto name = [&digest](const cpc::XrcShare* one) { digest.add_name(reinterpret_cast<std::uintptr_t>(one)); };
  name(&share);
  digest.add_name(0x20000U + inside(sender, XrcSender_serial_{}));
  digest.add_name(inside(sender, XrcSender_target_qpn_{}));
  digest.add(static_cast<unsigned>(inside(sender, XrcSender_state_{})) | inside(sender, XrcSender_users_{}) << 8U |
             (inside(share, XrcShare_is_user_{}) ? 64U : 0U) | (inside(share, XrcShare_turn_{}).running() ? 128U : 0U));
  name(inside(sender, XrcSender_owner_{}));
  for (const cpc::XrcShare* one : inside(sender, XrcSender_waiting_{})) {
    name(one);
  }
}

inline void add_to(Digest& digest, const cpc::QueuePairs* queue_pairs) {
  if (queue_pairs != nullptr) {
    for (const cpc::QueuePairEnd& end : queue_pairs->ends()) {
      digest.add_name(end.qpn);
    }
  }
  digest.add(queue_pairs != nullptr ? 1 : 0);
}

/// All of a connection but its channel, of which the network knows more, and its numbers.
inline void add_to(Digest& digest, const cpc::Connection& connection) {
  digest.add(static_cast<unsigned>(connection.state()) | static_cast<unsigned>(timer_event_of(connection)) << 8U |
             static_cast<unsigned>(inside(connection, Connection_refuse_reason_{})) << 16U);
  digest.add(bits(inside(connection, Connection_target_{}).has_value(), inside(connection, Connection_wanted_{}),
                  connection.exchanges(), inside(connection, Connection_opened_by_us_{}),
                  inside(connection, Connection_request_left_{}), inside(connection, Connection_peer_pauses_{}),
                  inside(connection, Connection_channel_{}) != nullptr, timer_of(connection).running()));
  digest.add(inside(connection, Connection_pauses_{}) | std::uint64_t{inside(connection, Connection_spent_ms_{})}
                                                            << 32U);
  add_to(digest, inside(connection, Connection_queue_pairs_{}).get());
  add_to(digest, inside(connection, Connection_taken_target_{}).get());
  for (const cpc::QueuePairEnd& end : inside(connection, Connection_remote_ends_{})) {
    digest.add_name(end.qpn);
  }
  digest.add(inside(connection, Connection_remote_ends_{}).size());
  digest.add_name(inside(connection, Connection_named_target_{}));
  if (const cpc::XrcShare* share = share_of(connection); share != nullptr) {
    add_to(digest, *share);
  }
}

}  // namespace fabric::model
