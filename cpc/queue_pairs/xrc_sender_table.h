// SPDX-License-Identifier: BSD-3-Clause
//
// What may happen to a *sender*, and what follows. A sender is the XRC send queue pair that all connections of this
// process to one XRC domain, over one local and one remote port, share: one queue pair to a whole node. Its counterpart
// there, the *target*, receives for every process of the node.
//
// Somebody has to have the target made: the *owner*, the first connection that wants the sender. Its REQUEST names no
// target; the process that gets it makes one and names it in its answer, with which the sender is connected. All others
// wait in line until then (they would have more targets made, and a send queue pair has one). Then their REQUESTs name
// the target, and their processes take it too, so that it lives as long as any of them does.
//
// A target is gone when every process that had it has let it go. Who hears that of a peer retires the sender: the next
// connection gets a new one; those that use the old one keep it until they close.
//
// A connection becomes a *user* when it wants the sender, and is none any more when it closes. The queue pair is moved to
// the error state when its last user closes, so that nobody waits for what nobody will read; it is destroyed when nobody
// has its handle.
//
// Invariants:
//  - There is an owner in Connecting, and in no other state; somebody is in line only in Connecting.
//  - The queue pair is connected once: on OwnerConnected.
//  - Who joins gets a sender that is not Retired.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/state_table.h"

namespace fabric::cpc {

enum class SenderState : std::uint8_t {
  kUnconnected,  ///< A queue pair without a target, and nobody is having one made.
  kConnecting,   ///< The owner is having the target made.
  kConnected,    ///< The target is known and the queue pair can send.
  kRetired,      ///< Nobody joins any more.
};
inline constexpr std::size_t kSenderStates = 4;

enum class SenderEvent : std::uint8_t {
  kWanted,          ///< A connection joins, to send its REQUEST.
  kOwnerConnected,  ///< The owner's peer has named the target, and the queue pair is connected to it.
  kOwnerFailed,     ///< The owner's connection has failed, or is closed, before that.
  kTargetGone,      ///< A peer says that there is no such target any more.
  kBroken,          ///< The queue pair is found in the error state.
  kReleased,        ///< A user, not the last one, closes.
  kLastReleased,    ///< The last user closes.
};
inline constexpr std::size_t kSenderEvents = 7;

/// What a transition does, in the order of its row.
enum class SenderAction : std::uint8_t {
  kNone,       ///< Ends a list.
  kMakeOwner,  ///< The connection that wants the sender is its owner, and sends its REQUEST without a target.
  kPark,       ///< It waits in line.
  kGoOn,       ///< It sends its REQUEST with the target.
  kNextOwner,  ///< The first in line is the owner, and sends its REQUEST without a target.
  kWakeAll,    ///< All in line send their REQUESTs with the target.
  kUnpark,     ///< The user that leaves is taken out of the line, if it is there.
  kForget,     ///< Who joins from now on gets a new sender.
  kFlush,      ///< The queue pair is moved to the error state.
};
inline constexpr std::size_t kSenderActionKinds = 9;

struct SenderGuards {
  bool waiting = false;  ///< Somebody waits in line.
};
inline constexpr auto kSenderGuardList = std::to_array<Guard<SenderGuards>>({{&SenderGuards::waiting, "waiting"}});

/// A protocol error is one of ours: we never let it come to that, and `why` says what keeps it from happening.
using SenderTable = StateTable<SenderState, SenderEvent, SenderAction, 2>;
using SenderStep = SenderTable::Step;

namespace sender_detail {

inline constexpr std::array<std::string_view, kSenderStates> kStateNames{"Unconnected", "Connecting", "Connected",
                                                                         "Retired"};
inline constexpr std::array<std::string_view, kSenderEvents> kEventNames{
    "Wanted", "OwnerConnected", "OwnerFailed", "TargetGone", "Broken", "Released", "LastReleased"};
inline constexpr std::array<std::string_view, kSenderActionKinds> kActionNames{
    "None", "MakeOwner", "Park", "GoOn", "NextOwner", "WakeAll", "Unpark", "Forget", "Flush"};

using enum SenderState;
using enum SenderEvent;
using enum SenderAction;

inline constexpr When kWaiting = when(kSenderGuardList, &SenderGuards::waiting);

// clang-format off
struct Rows : SenderTable {
  static constexpr auto kAll = std::to_array<Row>({
  go(kUnconnected, kWanted, kAlways, kConnecting, {kMakeOwner}),
  stay(kConnecting, kWanted, kAlways, {kPark}),
  stay(kConnected,  kWanted, kAlways, {kGoOn}),
  error(kRetired,   kWanted, "who joins gets the sender that took its place"),

  go(kConnecting, kOwnerConnected, kAlways,   kConnected,   {kWakeAll}),
  go(kConnecting, kOwnerFailed,    kWaiting,  kConnecting,  {kNextOwner}),
  go(kConnecting, kOwnerFailed,    !kWaiting, kUnconnected, {}),
  error(kUnconnected,           {kOwnerConnected, kOwnerFailed}, "there is no owner"),
  error({kConnected, kRetired}, {kOwnerConnected, kOwnerFailed}, "there is no owner any more"),

  go(kConnected, {kTargetGone, kBroken}, kAlways, kRetired, {kForget}),
  stay(kRetired, {kTargetGone, kBroken}, kAlways, {}),  // several users hear it
  error({kUnconnected, kConnecting}, kTargetGone, "no REQUEST has named a target"),
  error({kUnconnected, kConnecting}, kBroken,     "a queue pair that nobody has sent on does not break"),

  stay(kConnecting, kReleased, kAlways, {kUnpark}),
  stay({kUnconnected, kConnected, kRetired}, kReleased, kAlways, {}),
  go({kUnconnected, kConnected}, kLastReleased, kAlways, kRetired, {kForget, kFlush}),
  stay(kRetired,                 kLastReleased, kAlways, {kFlush}),
  error(kConnecting,             kLastReleased, "the owner has failed before it leaves, and nobody was in line"),
  });
};
// clang-format on

/// Who is in line is taken out of it whenever a state is left in which there is one.
[[nodiscard]] constexpr bool nobody_is_left_in_line() noexcept {
  return std::all_of(Rows::kAll.begin(), Rows::kAll.end(), [](const auto& row) {
    const bool leaves = row.states.has(kConnecting) && row.next.value_or(kConnecting) != kConnecting;
    return !leaves || !row.when.holds(kWaiting.want) || row.does(kWakeAll);
  });
}

static_assert(Rows::is_complete(Rows::kAll, kSenderStates, kSenderEvents, [](unsigned, unsigned) { return true; }),
              "a cell of the sender table has no row, or several");
static_assert(nobody_is_left_in_line(), "a row leaves Connecting while somebody waits in line");

}  // namespace sender_detail

/// "Connecting"
[[nodiscard]] constexpr std::string_view to_string(SenderState state) noexcept {
  return sender_detail::kStateNames[static_cast<std::size_t>(state)];
}
[[nodiscard]] constexpr std::string_view to_string(SenderEvent event) noexcept {
  return sender_detail::kEventNames[static_cast<std::size_t>(event)];
}
[[nodiscard]] constexpr std::string_view to_string(SenderAction action) noexcept {
  return sender_detail::kActionNames[static_cast<std::size_t>(action)];
}

/// What `event` leads to in `state`; `waiting`: somebody is in line.
[[nodiscard]] constexpr SenderStep sender_step(SenderState state, SenderEvent event, bool waiting) noexcept {
  using sender_detail::Rows;
  return Rows::look_up(Rows::kAll, state, event, guard_bits(kSenderGuardList, {waiting}),
                       {Outcome::kProtocolError, state, {}, {}});
}

}  // namespace fabric::cpc
