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

enum class SenderOutcome : std::uint8_t {
  kTransition,
  kImpossible,  ///< We never let it come to that; `why` says what keeps it from happening.
};

inline constexpr std::size_t kMaxSenderActions = 2;
struct SenderStep {
  SenderOutcome outcome = SenderOutcome::kTransition;
  SenderState next = SenderState::kUnconnected;
  std::array<SenderAction, kMaxSenderActions> actions{};
  std::string_view why;
};

namespace sender_detail {

inline constexpr std::array<std::string_view, kSenderStates> kStateNames{"Unconnected", "Connecting", "Connected",
                                                                         "Retired"};
inline constexpr std::array<std::string_view, kSenderEvents> kEventNames{
    "Wanted", "OwnerConnected", "OwnerFailed", "TargetGone", "Broken", "Released", "LastReleased"};
inline constexpr std::array<std::string_view, kSenderActionKinds> kActionNames{
    "None", "MakeOwner", "Park", "GoOn", "NextOwner", "WakeAll", "Unpark", "Forget", "Flush"};

/// Whether somebody waits in line: it matters, or not.
enum class Line : std::uint8_t { kAny, kWaiting, kEmpty };

struct SenderRow {
  SenderState state;
  SenderEvent event;
  Line line;
  SenderStep step;
  [[nodiscard]] constexpr bool matches(SenderState s, SenderEvent e, bool waiting) const noexcept {
    return state == s && event == e && (line == Line::kAny || (line == Line::kWaiting) == waiting);
  }
};

[[nodiscard]] constexpr SenderRow go(SenderState from, SenderEvent event, SenderState next,
                                     std::array<SenderAction, kMaxSenderActions> actions,
                                     Line line = Line::kAny) noexcept {
  return {from, event, line, {SenderOutcome::kTransition, next, actions, {}}};
}
[[nodiscard]] constexpr SenderRow never(SenderState state, SenderEvent event, std::string_view why) noexcept {
  return {state, event, Line::kAny, {SenderOutcome::kImpossible, state, {}, why}};
}

using enum SenderState;
using enum SenderEvent;
using enum SenderAction;

// clang-format off
inline constexpr auto kSenderTable = std::to_array<SenderRow>({
  go(kUnconnected, kWanted,         kConnecting,  {kMakeOwner}),
  go(kConnecting,  kWanted,         kConnecting,  {kPark}),
  go(kConnected,   kWanted,         kConnected,   {kGoOn}),
  never(kRetired,  kWanted,         "who joins gets the sender that took its place"),

  go(kConnecting,  kOwnerConnected, kConnected,   {kWakeAll}),
  go(kConnecting,  kOwnerFailed,    kConnecting,  {kNextOwner}, Line::kWaiting),
  go(kConnecting,  kOwnerFailed,    kUnconnected, {},           Line::kEmpty),
  never(kUnconnected, kOwnerConnected, "there is no owner"),
  never(kUnconnected, kOwnerFailed,    "there is no owner"),
  never(kConnected,   kOwnerConnected, "there is no owner any more"),
  never(kConnected,   kOwnerFailed,    "there is no owner any more"),
  never(kRetired,     kOwnerConnected, "there is no owner any more"),
  never(kRetired,     kOwnerFailed,    "there is no owner any more"),

  go(kConnected,   kTargetGone,     kRetired,     {kForget}),
  go(kConnected,   kBroken,         kRetired,     {kForget}),
  go(kRetired,     kTargetGone,     kRetired,     {}),  // several users hear it
  go(kRetired,     kBroken,         kRetired,     {}),
  never(kUnconnected, kTargetGone,  "no REQUEST has named a target"),
  never(kConnecting,  kTargetGone,  "no REQUEST has named a target"),
  never(kUnconnected, kBroken,      "a queue pair that nobody has sent on does not break"),
  never(kConnecting,  kBroken,      "a queue pair that nobody has sent on does not break"),

  go(kUnconnected, kReleased,       kUnconnected, {}),
  go(kConnecting,  kReleased,       kConnecting,  {kUnpark}),
  go(kConnected,   kReleased,       kConnected,   {}),
  go(kRetired,     kReleased,       kRetired,     {}),
  go(kUnconnected, kLastReleased,   kRetired,     {kForget, kFlush}),
  go(kConnected,   kLastReleased,   kRetired,     {kForget, kFlush}),
  go(kRetired,     kLastReleased,   kRetired,     {kFlush}),
  never(kConnecting, kLastReleased, "the owner has failed before it leaves, and nobody was in line"),
});
// clang-format on

/// Every event in every state, with and without somebody in line, has exactly one row.
[[nodiscard]] constexpr bool complete() noexcept {
  for (std::size_t state = 0; state < kSenderStates; ++state) {
    for (std::size_t event = 0; event < kSenderEvents; ++event) {
      for (const bool waiting : {false, true}) {
        if (std::count_if(kSenderTable.begin(), kSenderTable.end(), [&](const SenderRow& row) {
              return row.matches(static_cast<SenderState>(state), static_cast<SenderEvent>(event), waiting);
            }) != 1) {
          return false;
        }
      }
    }
  }
  return true;
}

/// Who is in line is taken out of it whenever a state is left in which there is one.
[[nodiscard]] constexpr bool nobody_is_left_in_line() noexcept {
  return std::all_of(kSenderTable.begin(), kSenderTable.end(), [](const SenderRow& row) {
    const bool leaves =
        row.step.outcome == SenderOutcome::kTransition && row.state == kConnecting && row.step.next != kConnecting;
    return !leaves || row.line == Line::kEmpty || row.step.actions[0] == kWakeAll;
  });
}

static_assert(complete(), "a cell of the sender table has no row, or several");
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
  for (const sender_detail::SenderRow& row : sender_detail::kSenderTable) {
    if (row.matches(state, event, waiting)) {
      return row.step;
    }
  }
  return {SenderOutcome::kImpossible, state, {}, "no row"};
}

}  // namespace fabric::cpc
