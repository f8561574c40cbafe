// SPDX-License-Identifier: BSD-3-Clause
//
// What may happen to an endpoint, and what follows: the main thread's half of a connection. The progress thread's half is
// in cpc/core/connection_table.h. Pure; Endpoint::apply() carries it out.
//
// Clear to send (CTS). With CPCs that exchange CTS (rdmacm, ibcm) the progress threads bring the queue pairs up by
// themselves, so that a process that computes holds up nobody. The main threads then find out that both have posted
// receives: a side posts all of its receives, then sends CTS; a side that has sent its CTS and has the peer's may send.
// CTS is the first message on the first queue. The receive that takes it is the handshake buffer if that is a P queue, and
// one of the shared receives otherwise. Neither the message nor its receive counts in any CreditWindow.
//
// On iWARP the side that accepted a connection must not send first (RFC 5044, section 7.1: its peer is not known to be
// ready before its first message). There the passive side answers CTS; and since each queue pair is a connection of its own
// to which that applies, CTS goes over every queue, and has arrived when all have.
//
// Goodbye. A process that Open MPI takes away from us is told so by the last message of the link, before the queue pairs
// are given up. So a connection that breaks without a goodbye has failed, on every transport, and one that breaks
// after it is no failure. A side that both have cleared, and that has neither sent nor received anything, misses nothing: its peer
// may have left before it could say goodbye.
//
// With X queues only the side that sends can say goodbye by its connection. A side that Open MPI takes the peer away from and
// that has no connection of its own goes on to receive (with one transmit context): whatever the peer sends, sure that it
// arrives, is delivered. The peer's goodbye is the end, or Open MPI takes the endpoint back.
//
// Links. An endpoint has one link that carries or is to carry, and any number that are being taken down. Goodbye, or a
// newer connection that the peer has made, ends a link and not the endpoint: what is sent next, or what the peer sends next,
// makes a newer one. Only what was under way when it ended, and somebody waits for, is an error.
//
// Nothing times out but the wait for our goodbye: a main thread that computes for a minute answers after a minute.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "btl_fabric/peer/endpoint_states.h"
#include "common/base/enum_set.h"

namespace fabric {

enum class EndpointOutcome : std::uint8_t {
  kTransition,
  kIgnored,        ///< The state stays and nothing is done; `why` says why that is right.
  kProtocolError,  ///< Somebody broke the rules: the endpoint fails; `why` names the rule.
};

struct EndpointStep {
  EndpointOutcome outcome = EndpointOutcome::kIgnored;
  EndpointState next = EndpointState::kIdle;
  std::array<EndpointAction, 3> actions{};
  std::string_view why;
};

namespace endpoint_detail {

/// A condition on guards: those in `care` must be as in `want`.
struct When {
  std::uint8_t care = 0;  ///< bits as in guard_bits()
  std::uint8_t want = 0;
};
[[nodiscard]] constexpr When operator!(When when) noexcept {
  return {when.care, static_cast<std::uint8_t>(when.want ^ when.care)};
}
[[nodiscard]] constexpr When operator&&(When a, When b) noexcept {
  return {static_cast<std::uint8_t>(a.care | b.care), static_cast<std::uint8_t>(a.want | b.want)};
}
inline constexpr When kAlways{};
inline constexpr When kMaySpeakFirst{1, 1};
inline constexpr When kMissed{2, 2};
inline constexpr When kCrossed{4, 4};
inline constexpr When kIsSelf{8, 8};
inline constexpr When kOtherWay{16, 16};
inline constexpr When kReceives{32, 32};

[[nodiscard]] constexpr std::uint8_t guard_bits(const EndpointGuards& guards) noexcept {
  return static_cast<std::uint8_t>((guards.may_speak_first ? 1 : 0) | (guards.missed ? 2 : 0) |
                                   (guards.crossed ? 4 : 0) | (guards.is_self ? 8 : 0) | (guards.other_way ? 16 : 0) |
                                   (guards.receives ? 32 : 0));
}

struct Row {
  EnumSet<EndpointState> states;
  EnumSet<EndpointEvent> events;
  When when;
  EndpointStep step;
  [[nodiscard]] constexpr bool matches(EndpointState state, EndpointEvent event, std::uint8_t guards) const noexcept {
    return states.has(state) && events.has(event) && (guards & when.care) == when.want;
  }
};

[[nodiscard]] constexpr Row go(EnumSet<EndpointState> from, EnumSet<EndpointEvent> event, When when, EndpointState next,
                               std::initializer_list<EndpointAction> actions) noexcept {
  Row row{from, event, when, {EndpointOutcome::kTransition, next, {}, {}}};
  std::copy(actions.begin(), actions.end(), row.step.actions.begin());
  return row;
}
[[nodiscard]] constexpr Row ignored(EnumSet<EndpointState> states, EnumSet<EndpointEvent> events, std::string_view why,
                                    When when = kAlways) noexcept {
  return {states, events, when, {EndpointOutcome::kIgnored, EndpointState::kIdle, {}, why}};
}
[[nodiscard]] constexpr Row error(EnumSet<EndpointState> states, EnumSet<EndpointEvent> events, std::string_view why,
                                  When when = kAlways) noexcept {
  return {states,
          events,
          when,
          {EndpointOutcome::kProtocolError,
           EndpointState::kFailed,
           {EndpointAction::kReport, EndpointAction::kFailAll, EndpointAction::kCloseAll},
           why}};
}

using enum EndpointState;
using enum EndpointEvent;
using enum EndpointAction;

// clang-format off
inline constexpr auto kTable = std::to_array<Row>({
  // ---- Something is to be sent
  go(kIdle, kSendWanted, kAlways, kConnecting, {kConnect}),
  ignored({kConnecting, kCtsSent, kCtsAwaited}, kSendWanted, "it waits for the connection"),
  ignored({kConnected, kSelf}, kSendWanted, "the link carries it"),

  // ---- A connection is made, for us or for the peer
  go({kIdle, kConnecting}, kReceivesWanted, kAlways, kConnecting, {kPostReceives}),
  go({kIdle, kConnecting}, kLinked, kMaySpeakFirst,  kCtsSent,    {kPostReceives, kSendCts}),
  go({kIdle, kConnecting}, kLinked, !kMaySpeakFirst, kCtsAwaited, {kPostReceives}),
  go(kConnecting, kMade, !kIsSelf, kConnected, {kStart}),
  go(kConnecting, kMade, kIsSelf,  kSelf,      {kStart}),
  ignored(kIdle, kMade, "nothing is to be sent over it"),
  go(kCtsSent,    kCtsArrived, kMissed,  kConnected, {kStart}),
  go(kCtsSent,    kCtsArrived, !kMissed, kClear,     {}),
  go(kCtsAwaited, kCtsArrived, kMissed,  kConnected, {kSendCts, kStart}),
  go(kCtsAwaited, kCtsArrived, !kMissed, kClear,     {kSendCts}),
  go(kClear, {kSendWanted, kPeerSpoke}, kAlways, kConnected, {kStart}),
  go(kConnecting, kPeerSpoke, !kIsSelf, kConnecting, {kTellPeerSpoke}),
  ignored(kConnecting, kPeerSpoke, "there is nobody to tell", kIsSelf),
  go(kIdle,      kPeerSpoke, kOtherWay, kIdle,      {kTellPeerSpoke}),
  go(kConnected, kPeerSpoke, kOtherWay, kConnected, {kTellPeerSpoke}),
  ignored({kIdle, kConnected}, kPeerSpoke, "it makes no difference any more", !kOtherWay),
  ignored({kCtsSent, kCtsAwaited, kSelf, kLeaving}, kPeerSpoke, "it makes no difference any more"),

  error({kIdle, kConnecting}, kCtsArrived, "a CTS over queue pairs that are not linked"),
  error({kClear, kConnected}, kCtsArrived, "a second CTS"),
  error({kCtsSent, kCtsAwaited, kClear, kConnected}, {kReceivesWanted, kLinked, kMade}, "a connection is made twice"),
  error(kSelf, {kReceivesWanted, kLinked, kMade, kCtsArrived}, "this process has no connection with itself"),

  // ---- The peer leaves. What waits for it here waits for a newer connection.
  go({kClear, kConnected}, kGoodbyeArrived, !kMissed, kIdle,   {kCloseAll, kRetire}),
  go({kClear, kConnected}, kGoodbyeArrived, kMissed,  kFailed, {kReport, kFailAll, kCloseAll}),
  // With X queues the connection that we make may have reached the endpoint that the peer has just given up: another is made.
  go(kConnecting, kGoodbyeArrived, !kMissed, kIdle,       {kCloseAll, kRetire}),
  go(kConnecting, kGoodbyeArrived, kMissed,  kConnecting, {kCloseAll, kRetire, kConnect}),
  go(kIdle,       kGoodbyeArrived, kOtherWay, kIdle,       {kCloseAll, kRetire}),
  error(kIdle,    kGoodbyeArrived, "there is no link", !kOtherWay),
  error({kCtsSent, kCtsAwaited}, kGoodbyeArrived, "goodbye comes before CTS"),
  error(kSelf, kGoodbyeArrived, "nobody but we can say goodbye to ourselves"),

  go({kConnecting, kCtsSent, kCtsAwaited}, kSuperseded, !kMissed, kIdle,       {kRetire}),
  go({kConnecting, kCtsSent, kCtsAwaited}, kSuperseded, kMissed,  kConnecting, {kRetire, kConnect}),
  go({kClear, kConnected},                 kSuperseded, !kMissed, kIdle,       {kRetire}),
  go({kClear, kConnected},                 kSuperseded, kMissed,  kFailed,     {kReport, kFailAll}),
  go(kLeaving, kSuperseded, kAlways, kClosing, {kDropAll, kCloseAll}),
  ignored({kIdle, kSelf}, kSuperseded, "there is no link"),

  // ---- Something fails. What only the peer wanted is missed by nobody here.
  go(kIdle,       kSetUpFailed, kOtherWay, kIdle,       {kNote, kCloseDirection}),
  go(kConnecting, kSetUpFailed, kOtherWay, kConnecting, {kNote, kCloseDirection}),
  go(kConnected,  kSetUpFailed, kOtherWay, kConnected,  {kNote, kCloseDirection}),
  go(kIdle,       kSetUpFailed, !kOtherWay && !kMissed, kIdle,   {kNote, kCloseDirection, kRetire}),
  go(kIdle,       kSetUpFailed, !kOtherWay && kMissed,  kFailed, {kReport, kFailAll, kCloseAll}),
  go(kConnecting, kSetUpFailed, !kOtherWay && kCrossed, kConnecting, {kNote, kCloseDirection, kRetire}),
  go(kConnecting, kSetUpFailed, !kOtherWay && !kCrossed && !kMissed, kIdle,   {kNote, kCloseDirection, kRetire}),
  go(kConnecting, kSetUpFailed, !kOtherWay && !kCrossed && kMissed,  kFailed, {kReport, kFailAll, kCloseAll}),
  go(kConnected,  kSetUpFailed, !kOtherWay, kFailed, {kReport, kFailAll, kCloseAll}),
  go({kIdle, kConnecting}, kLost, !kMissed, kIdle,   {kNote, kCloseAll, kRetire}),
  go({kIdle, kConnecting}, kLost, kMissed,  kFailed, {kReport, kFailAll, kCloseAll}),
  go({kCtsSent, kCtsAwaited, kClear}, {kLost, kSetUpFailed}, !kMissed, kIdle,   {kNote, kCloseAll, kRetire}),
  go({kCtsSent, kCtsAwaited, kClear}, {kLost, kSetUpFailed}, kMissed,  kFailed, {kReport, kFailAll, kCloseAll}),
  go({kConnected, kSelf}, kLost, kAlways, kFailed, {kReport, kFailAll, kCloseAll}),
  go(kSelf, kSetUpFailed, kAlways, kFailed, {kReport, kFailAll, kCloseAll}),
  go({kIdle, kConnecting}, kLinkFailed, kAlways, kFailed, {kReport, kFailAll, kCloseAll}),
  go({kCtsSent, kCtsAwaited, kClear, kConnected, kSelf}, kLinkFailed, kAlways, kFailed, {kReport, kFailAll}),

  // ---- We leave
  go(kConnected, kRemoved, kAlways, kLeaving, {kSayGoodbye}),
  go(kClear,     kRemoved, kAlways, kLeaving, {kStart, kSayGoodbye}),
  go({kCtsSent, kCtsAwaited, kSelf, kFailed}, kRemoved, kAlways, kClosing, {kDropAll, kCloseAll}),
  go({kIdle, kConnecting}, kRemoved, !kReceives, kClosing, {kDropAll, kCloseAll}),
  go(kIdle,       kRemoved, kReceives, kIdle, {}),
  go(kConnecting, kRemoved, kReceives, kIdle, {kDropAll, kCloseDirection}),
  go(kLeaving, {kGoodbyeDone, kGoodbyeArrived, kLost, kSetUpFailed, kLinkFailed}, kAlways, kClosing, {kDropAll, kCloseAll}),
  ignored({kIdle, kConnecting, kCtsSent, kCtsAwaited, kClear, kConnected, kSelf}, kGoodbyeDone, "none was said"),
  ignored(kLeaving, {kSendWanted, kReceivesWanted, kLinked, kMade, kCtsArrived, kRemoved}, "the endpoint has been removed"),

  // ---- The end. Nothing leads back from here.
  ignored(kFailed,
          {kSendWanted, kReceivesWanted, kLinked, kMade, kCtsArrived, kPeerSpoke, kGoodbyeArrived, kGoodbyeDone,
           kSuperseded, kLost, kLinkFailed}, "the endpoint has failed, and that is reported"),
  go(kFailed, kSetUpFailed, kAlways, kFailed, {kCloseAll}),
  ignored(kClosing,
          {kSendWanted, kReceivesWanted, kLinked, kMade, kCtsArrived, kPeerSpoke, kGoodbyeArrived, kGoodbyeDone,
           kSuperseded, kLost, kSetUpFailed, kLinkFailed, kRemoved}, "the endpoint has been removed"),
});
// clang-format on

/// True if the rows of one cell of the table leave no guards out and do not overlap. Guards that none of them asks for
/// make no difference.
[[nodiscard]] constexpr bool cell_is_complete(EndpointState state, EndpointEvent event) noexcept {
  unsigned care = 0;
  for (const Row& row : kTable) {
    care |= row.states.has(state) && row.events.has(event) ? row.when.care : 0U;
  }
  for (unsigned guards = 0; guards < 1U << kEndpointGuards; ++guards) {
    if ((guards & ~care) == 0 && std::count_if(kTable.begin(), kTable.end(), [&](const Row& row) {
                                   return row.matches(state, event, static_cast<std::uint8_t>(guards));
                                 }) != 1) {
      return false;
    }
  }
  return true;
}

/// Every event in every state, under all guards, has exactly one row.
[[nodiscard]] constexpr bool complete() noexcept {
  for (std::size_t state = 0; state < kEndpointStates; ++state) {
    for (std::size_t event = 0; event < kEndpointEvents; ++event) {
      if (!cell_is_complete(static_cast<EndpointState>(state), static_cast<EndpointEvent>(event))) {
        return false;
      }
    }
  }
  return true;
}

/// A link starts to carry only where a connection is being made: whatever comes late cannot revive an endpoint.
[[nodiscard]] constexpr bool only_set_up_starts_a_link() noexcept {
  return std::all_of(kTable.begin(), kTable.end(), [](const Row& row) {
    const bool starts = std::count(row.step.actions.begin(), row.step.actions.end(), kStart) > 0;
    const bool late = row.states.has(kLeaving) || row.states.has(kFailed) || row.states.has(kClosing);
    return !(starts && late);
  });
}

static_assert(complete(), "a cell of the endpoint table has no row, or several");
static_assert(only_set_up_starts_a_link());

}  // namespace endpoint_detail

/// What `event` leads to in `state`. `next` of an ignored event is `state`.
[[nodiscard]] constexpr EndpointStep endpoint_step(EndpointState state, EndpointEvent event,
                                                   const EndpointGuards& guards) noexcept {
  const std::uint8_t bits = endpoint_detail::guard_bits(guards);
  for (const endpoint_detail::Row& row : endpoint_detail::kTable) {
    if (row.matches(state, event, bits)) {
      EndpointStep step = row.step;
      if (step.outcome == EndpointOutcome::kIgnored) {
        step.next = state;
      }
      return step;
    }
  }
  return {};  // never: the table is complete
}

}  // namespace fabric
