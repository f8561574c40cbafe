// SPDX-License-Identifier: BSD-3-Clause
//
// What a model checker must know of the product's objects beyond what they tell: everything that makes a difference to
// what they do next, for two worlds are the same only if all of that is. The product has no functions for this, so the
// private members are read: an explicit instantiation may name them (C++20, [temp.spec.general]).
#pragma once

#include <event2/event.h>

#include <algorithm>
#include <vector>

#include "cpc/core/connection.h"
#include "cpc/manager/connections.h"
#include "cpc/queue_pairs/xrc_senders.h"
#include "test/model/digest.h"

namespace fabric::model {
namespace inside {

template <class Name, typename Name::Type member>
struct Open {
  friend typename Name::Type member_of(Name /*name*/) { return member; }
};

// NOLINTBEGIN: a class and an instantiation for every member
#define FABRIC_OPEN(owner, member, type)     \
  struct owner##_##member {                  \
    using Type = type cpc::owner::*;         \
    friend Type member_of(owner##_##member); \
  };                                         \
  template struct Open<owner##_##member, &cpc::owner::member>
// NOLINTEND

FABRIC_OPEN(Timer, event_, ::event);
FABRIC_OPEN(Timer, callback_, std::function<void()>);
FABRIC_OPEN(Connection, timer_, cpc::Timer);
FABRIC_OPEN(Connection, timer_event_, cpc::Event);
FABRIC_OPEN(Connection, target_, std::optional<cpc::PeerTarget>);
FABRIC_OPEN(Connection, exchanges_, bool);
FABRIC_OPEN(Connection, opened_by_us_, bool);
FABRIC_OPEN(Connection, queue_pairs_, std::unique_ptr<cpc::QueuePairs>);
FABRIC_OPEN(Connection, taken_target_, std::unique_ptr<cpc::QueuePairs>);
FABRIC_OPEN(Connection, remote_ends_, std::vector<cpc::QueuePairEnd>);
FABRIC_OPEN(Connection, share_, cpc::XrcShare*);
FABRIC_OPEN(Connection, named_target_, std::uint32_t);
FABRIC_OPEN(Connection, attempt_, std::uint32_t);
FABRIC_OPEN(Connection, wanted_, bool);
FABRIC_OPEN(Connection, peer_pauses_, bool);
FABRIC_OPEN(Connection, pauses_, unsigned);
FABRIC_OPEN(Connection, peer_attempt_, std::uint32_t);
FABRIC_OPEN(Connection, request_left_, bool);
FABRIC_OPEN(Connection, channel_, std::unique_ptr<cpc::Channel>);
FABRIC_OPEN(XrcShare, sender_, std::shared_ptr<cpc::XrcSender>);
FABRIC_OPEN(XrcShare, turn_, cpc::Timer);
FABRIC_OPEN(XrcShare, is_user_, bool);
FABRIC_OPEN(XrcSender, state_, cpc::SenderState);
FABRIC_OPEN(XrcSender, serial_, std::uint64_t);
FABRIC_OPEN(XrcSender, target_qpn_, std::uint32_t);
FABRIC_OPEN(XrcSender, owner_, cpc::XrcShare*);
FABRIC_OPEN(XrcSender, line_, std::deque<cpc::XrcShare*>);
FABRIC_OPEN(XrcSender, users_, std::size_t);
#undef FABRIC_OPEN

/// The same of a member whose type cannot be named.
template <auto member>
struct OpenLanes {
  friend constexpr auto lanes_member() { return member; }
};
constexpr auto lanes_member();
template struct OpenLanes<&cpc::Connections::lanes_>;

}  // namespace inside

/// The timer's time is up.
inline void fire(cpc::Timer& timer) {
  event_del(&(timer.*member_of(inside::Timer_event_{})));
  const std::function<void()> callback = timer.*member_of(inside::Timer_callback_{});  // it may destroy the timer
  callback();
}

/// The timer of a connection, and what it is for.
[[nodiscard]] inline cpc::Timer& timer_of(const cpc::Connection& connection) {
  return const_cast<cpc::Timer&>(connection.*member_of(inside::Connection_timer_{}));
}
[[nodiscard]] inline cpc::Event timer_event_of(const cpc::Connection& connection) {
  return connection.*member_of(inside::Connection_timer_event_{});
}
/// Of a connection that has a share of a sender: the timer by which it is told to go on. Else null.
[[nodiscard]] inline cpc::Timer* turn_of(const cpc::Connection& connection) {
  cpc::XrcShare* const share = connection.*member_of(inside::Connection_share_{});
  return share == nullptr ? nullptr : &(share->*member_of(inside::XrcShare_turn_{}));
}

[[nodiscard]] inline const cpc::XrcShare* share_of(const cpc::Connection& connection) {
  return connection.*member_of(inside::Connection_share_{});
}
/// Whether the sender knows no others than these shares of it.
[[nodiscard]] inline bool knows_only(const cpc::XrcShare& share, const std::vector<const cpc::XrcShare*>& alive) {
  const cpc::XrcSender& sender = *(share.*member_of(inside::XrcShare_sender_{}));
  const auto is_alive = [&alive](const cpc::XrcShare* one) {
    return std::find(alive.begin(), alive.end(), one) != alive.end();
  };
  const cpc::XrcShare* const owner = sender.*member_of(inside::XrcSender_owner_{});
  const auto& line = sender.*member_of(inside::XrcSender_line_{});
  return (owner == nullptr || is_alive(owner)) && std::all_of(line.begin(), line.end(), is_alive);
}

inline void add_to(Digest& digest, const cpc::XrcShare& share) {
  const cpc::XrcSender& sender = *(share.*member_of(inside::XrcShare_sender_{}));
  const auto name = [&digest](const cpc::XrcShare* one) { digest.add_name(reinterpret_cast<std::uintptr_t>(one)); };
  name(&share);
  digest.add_name(0x20000U + sender.*member_of(inside::XrcSender_serial_{}));
  digest.add_name(sender.*member_of(inside::XrcSender_target_qpn_{}));
  digest.add(static_cast<unsigned>(sender.*member_of(inside::XrcSender_state_{})) |
             sender.*member_of(inside::XrcSender_users_{}) << 8U |
             (share.*member_of(inside::XrcShare_is_user_{}) ? 64U : 0U) |
             ((share.*member_of(inside::XrcShare_turn_{})).running() ? 128U : 0U));
  name(sender.*member_of(inside::XrcSender_owner_{}));
  for (const cpc::XrcShare* one : sender.*member_of(inside::XrcSender_line_{})) {
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

/// All of a connection but its channel, of which the network knows more.
inline void add_to(Digest& digest, const cpc::Connection& connection) {
  const auto get = [&connection](auto name) -> const auto& {
    return connection.*member_of(name);
  };
  const unsigned bits =
      (get(inside::Connection_target_{}).has_value() ? 1U : 0U) | (get(inside::Connection_exchanges_{}) ? 2U : 0U) |
      (get(inside::Connection_opened_by_us_{}) ? 4U : 0U) | (get(inside::Connection_request_left_{}) ? 8U : 0U) |
      (get(inside::Connection_channel_{}) != nullptr ? 16U : 0U) | (timer_of(connection).running() ? 32U : 0U) |
      (get(inside::Connection_wanted_{}) ? 64U : 0U) | (get(inside::Connection_peer_pauses_{}) ? 128U : 0U) |
      get(inside::Connection_pauses_{}) << 8U;
  digest.add(static_cast<unsigned>(connection.state()) | static_cast<unsigned>(timer_event_of(connection)) << 8U |
             bits << 16U);
  digest.add(connection.link() | std::uint64_t{connection.incarnation()} << 32U);
  digest.add(get(inside::Connection_attempt_{}) | std::uint64_t{get(inside::Connection_peer_attempt_{})} << 32U);
  add_to(digest, get(inside::Connection_queue_pairs_{}).get());
  add_to(digest, get(inside::Connection_taken_target_{}).get());
  for (const cpc::QueuePairEnd& end : get(inside::Connection_remote_ends_{})) {
    digest.add_name(end.qpn);
  }
  digest.add(get(inside::Connection_remote_ends_{}).size());
  digest.add_name(get(inside::Connection_named_target_{}));
  if (const cpc::XrcShare* share = get(inside::Connection_share_{}); share != nullptr) {
    add_to(digest, *share);
  }
}

/// The numbers of a key, and its connections that are being taken down.
inline void add_to(Digest& digest, const cpc::Connections& connections, const cpc::ConnectionKey& key) {
  const auto& lanes = connections.*inside::lanes_member();
  const auto found = lanes.find(key);
  digest.add(found == lanes.end() ? 0 : 1);
  if (found == lanes.end()) {
    return;
  }
  const auto& lane = found->second;
  digest.add(lane.newest | std::uint64_t{lane.incarnations.newest()} << 32U);
  std::uint32_t ended = 0;
  while (lane.incarnations.has_ended(ended + 1)) {
    ++ended;
  }
  digest.add(ended | lane.ending.size() << 32U);
  for (const auto& one : lane.ending) {
    add_to(digest, *one);
  }
}

}  // namespace fabric::model
