// SPDX-License-Identifier: BSD-3-Clause
//
// What may happen to a connection, and what follows: the one table of connection set-up.
//
// Two sides set up a connection over a *channel*, a reliable ordered byte stream that exists for one attempt and can
// break at any point. The active side opens it and sends REQUEST, the passive side answers REPLY, the active side ends
// with CONFIRM, and the passive side closes the channel, which tells the active side that its CONFIRM was read.
//
// What makes it safe:
//  - Each side posts its receives before it speaks (REQUEST, REPLY), so whoever is told "connected" may send at once.
//  - A connection keeps its queue pairs from its first attempt to its last. Every message carries the number of its
//    attempt, and a request with the same ends again is the same request: it is answered with the same reply. So a
//    channel that breaks, wherever, costs an attempt and nothing else.
//  - Of crossing requests, that of the lower ProcessName counts. Both sides apply the same rule: the one with
//    precedence refuses the other's request ("collision") and goes on waiting; the other answers as soon as it sees the
//    first's. A request that has not left this host has no precedence: the peer cannot know of it, and where TCP gets
//    through in one direction only, it never will.
//  - Nothing times out while a channel is up: a peer whose main thread computes for minutes answers after minutes. A
//    host that dies is noticed by the keepalive of the channel.
//  - The active side may be connected while its CONFIRM is lost. It then comes back with the same request until the
//    peer is known to have the CONFIRM, or attempts run out (the peer still learns from our first message: PeerSpoke).
//
// CPCs that exchange CTS (rdmacm, ibcm; the guard `exchanges`) differ in this:
//  - Nobody asks for receives before speaking: only the handshake buffer is posted, so that REQUEST and REPLY never wait
//    for a main thread (the kernel's communication manager gives up a REQ that is not answered). When the queue pairs of
//    both sides are up the main thread hears Linked, once, and the rest is in cts_table.h.
//  - Queue pairs belong to an attempt: a communication manager remembers the numbers of those whose attempt failed, and
//    on iWARP they are dead. So every attempt has new ones, of which the main thread hears only when they are up.
//  - The channel stays as long as the connection. When it is lost then, the peer has left: PeerLeft.
//  - A passive side whose channel is lost before it is linked forgets about it, or, if its main thread wants the
//    connection too, goes on as the active one. The peer, which knows that its attempt failed, does what it must.
//
// Connections of X queues (xoob; the guard `one way`) carry messages from the side that asks for them to the other, and
// differ in this:
//  - Requests never cross: for messages the other way there is another connection, with a key of its own.
//  - Receives are in the SRQs that all peers share, so there are no queue pairs that the main thread posts to, and the
//    active side joins the sender when it is its turn to (Queued): what all connections that share it must agree on is in
//    xrc_sender_table.h.
//  - The passive side's progress thread says which target it has made or taken at once (TARGET), so that those who wait
//    for the sender do not wait for its main thread too. REPLY comes when the main thread has posted.
//  - A request that names a target which is gone is refused before it becomes an event here; the active side then joins
//    another sender.
//
// Invariants:
//  - Queue pairs are made on leaving Closed and destroyed on coming back to it (with a CTS exchange, or if the target is
//    gone, also between two attempts), or at the end of the progress thread: made == destroyed whenever every connection is Closed.
//  - A channel belongs to exactly one connection. A timer runs only in RequestSent, Yielded, ReplySent and Confirming.
//  - The main thread hears at most one PostReceives and one Connected (or one Linked and one PeerLeft), then at most one
//    Failed unless it breaks the rules, and exactly one Flushing for its Close.
//
// To extend the table: add the enumerators to connection_states.h, then rows until this header compiles. Guards are in the state wherever possible: "receives posted", for instance, is one of the things
// that tell Posting from RequestSent and Answering from ReplySent.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "cpc/core/connection_states.h"

namespace fabric::cpc {

/// What an event comes to.
enum class Outcome : std::uint8_t {
  kTransition,
  kIgnored,        ///< The state stays and nothing is done; `why` says why that is right.
  kProtocolError,  ///< One side broke the rules: the connection fails; `why` names the rule.
};

inline constexpr std::size_t kMaxActions = 7;
using Actions = std::array<Action, kMaxActions>;

struct Step {
  Outcome outcome = Outcome::kIgnored;
  State next = State::kClosed;
  Actions actions{};
  std::string_view why;
};

namespace detail {

template <class E>
struct Set {
  std::uint32_t bits = 0;
  constexpr Set(E one) noexcept : bits(std::uint32_t{1} << static_cast<unsigned>(one)) {}  // NOLINT: a set of one
  constexpr Set(std::initializer_list<E> several) noexcept {
    for (const E one : several) {
      bits |= std::uint32_t{1} << static_cast<unsigned>(one);
    }
  }
  [[nodiscard]] constexpr bool has(E one) const noexcept { return (bits >> static_cast<unsigned>(one) & 1U) != 0; }
};

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
inline constexpr When kPeerHasPrecedence{1, 1};
inline constexpr When kRepeated{2, 2};
inline constexpr When kStale{4, 4};
inline constexpr When kRetriesLeft{8, 8};
inline constexpr When kChannelUp{16, 16};
inline constexpr When kExchanges{32, 32};
inline constexpr When kWanted{64, 64};
inline constexpr When kOneWay{128, 128};

[[nodiscard]] constexpr std::uint8_t guard_bits(const Guards& guards) noexcept {
  return static_cast<std::uint8_t>((guards.peer_has_precedence ? 1 : 0) | (guards.repeated ? 2 : 0) |
                                   (guards.stale ? 4 : 0) | (guards.retries_left ? 8 : 0) |
                                   (guards.channel_up ? 16 : 0) | (guards.exchanges ? 32 : 0) |
                                   (guards.wanted ? 64 : 0) | (guards.one_way ? 128 : 0));
}

struct Row {
  Set<State> states;
  Set<Event> events;
  When when;
  Step step;
  [[nodiscard]] constexpr bool matches(State state, Event event, std::uint8_t guards) const noexcept {
    return states.has(state) && events.has(event) && (guards & when.care) == when.want;
  }
};

[[nodiscard]] constexpr Row go(Set<State> from, Set<Event> event, When when, State next,
                               std::initializer_list<Action> actions) noexcept {
  Row row{from, event, when, {Outcome::kTransition, next, {}, {}}};
  std::copy(actions.begin(), actions.end(), row.step.actions.begin());
  return row;
}
[[nodiscard]] constexpr Row ignored(Set<State> states, Set<Event> events, std::string_view why) noexcept {
  return {states, events, kAlways, {Outcome::kIgnored, State::kClosed, {}, why}};
}
[[nodiscard]] constexpr Row error(Set<State> states, Set<Event> events, std::string_view why,
                                  When when = kAlways) noexcept {
  return {states,
          events,
          when,
          {Outcome::kProtocolError,
           State::kFailed,
           {Action::kSendRefusal, Action::kCloseChannel, Action::kStopTimer, Action::kTellFailed},
           why}};
}

using enum State;
using enum Event;
using enum Action;

// clang-format off
inline constexpr auto kTable = std::to_array<Row>({
  // ---- Closed
  go(kClosed, kConnectWanted,  !kExchanges && !kOneWay, kPosting,   {kMakeQueuePairs, kAskForReceives}),
  go(kClosed, kConnectWanted,  kOneWay,     kPosting,     {kAskForReceives}),
  go(kClosed, kConnectWanted,  kExchanges && !kOneWay, kRequestSent, {kMakeQueuePairs, kPostHandshake, kOpenChannel}),
  go(kClosed, kRequestArrived, !kExchanges && !kOneWay, kAnswering,
     {kAdoptChannel, kMakeQueuePairs, kConnectQueuePairs, kAskForReceives}),
  go(kClosed, kRequestArrived, !kExchanges && kOneWay, kAnswering,
     {kAdoptChannel, kMakeQueuePairs, kConnectQueuePairs, kSendTarget, kAskForReceives}),
  go(kClosed, kRequestArrived, kExchanges,  kReplySent,
     {kAdoptChannel, kMakeQueuePairs, kPostHandshake, kConnectQueuePairs, kSendReply}),
  go(kClosed, kCloseWanted,    kAlways, kClosing,   {kTellFlushing}),
  ignored(kClosed, kDestroyWanted, "there is nothing to destroy"),
  error(kClosed, {kReceivesPosted, kPeerSpoke}, "there are no queue pairs"),

  // ---- The active side, until its request is answered
  go(kPosting, kReceivesPosted, !kOneWay, kRequestSent, {kOpenChannel}),
  go(kPosting, kReceivesPosted, kOneWay, kQueued,       {kMakeQueuePairs, kWantSender}),
  go(kQueued,  kSenderReady,    kAlways, kRequestSent,  {kOpenChannel}),
  go(kPosting, kRequestArrived, kAlways, kAnswering,   {kAdoptChannel, kConnectQueuePairs}),

  go(kRequestSent, kRequestArrived,   kPeerHasPrecedence && !kExchanges, kReplySent,
     {kStopTimer, kAdoptChannel, kConnectQueuePairs, kSendReply}),
  go(kRequestSent, kRequestArrived,   kPeerHasPrecedence && kExchanges,  kReplySent,
     {kStopTimer, kAdoptChannel, kDestroyQueuePairs, kMakeQueuePairs, kPostHandshake, kConnectQueuePairs, kSendReply}),
  go(kRequestSent, kRequestArrived,   !kPeerHasPrecedence, kRequestSent, {kRefuseCollision}),
  go(kRequestSent, kReplyArrived,     !kExchanges,         kConfirming,
     {kConnectQueuePairs, kSendConfirm, kTellConnected}),
  go(kRequestSent, kReplyArrived,     kExchanges,          kConnected,
     {kConnectQueuePairs, kSendConfirm, kTellLinked}),
  go(kRequestSent, kCollisionArrived, kPeerHasPrecedence,  kYielded,     {kCloseChannel, kStartHandshakeTimer}),
  error(kRequestSent, kCollisionArrived, "the peer claims precedence for its request, which it does not have",
        !kPeerHasPrecedence),
  go(kRequestSent, kTargetArrived,    kAlways,             kRequestSent, {kConnectQueuePairs}),
  go(kRequestSent, kTargetGoneArrived, kRetriesLeft && kOneWay,  kQueued,
     {kCloseChannel, kRetireSender, kDestroyQueuePairs, kMakeQueuePairs, kWantSender}),
  go(kRequestSent, kTargetGoneArrived, !kRetriesLeft && kOneWay, kFailed, {kCloseChannel, kRetireSender, kTellFailed}),
  error(kRequestSent, kTargetGoneArrived, "our request names no target", !kOneWay),
  go(kRequestSent, kRefusalArrived,   kAlways,             kFailed,      {kCloseChannel, kTellFailed}),
  go(kRequestSent, kChannelLost,      kRetriesLeft,        kRequestSent, {kCloseChannel, kStartRetryTimer}),
  go(kRequestSent, kChannelLost,      !kRetriesLeft,       kFailed,      {kCloseChannel, kTellFailed}),
  go(kRequestSent, kRetryTimer,       !kExchanges,         kRequestSent, {kOpenChannel}),
  go(kRequestSent, kRetryTimer,       kExchanges,          kRequestSent,
     {kDestroyQueuePairs, kMakeQueuePairs, kPostHandshake, kOpenChannel}),

  go(kYielded, kRequestArrived, !kExchanges,                 kReplySent,
     {kStopTimer, kAdoptChannel, kConnectQueuePairs, kSendReply}),
  go(kYielded, kRequestArrived, kExchanges,                  kReplySent,
     {kStopTimer, kAdoptChannel, kDestroyQueuePairs, kMakeQueuePairs, kPostHandshake, kConnectQueuePairs, kSendReply}),
  go(kYielded, kHandshakeTimer, kRetriesLeft && !kExchanges, kRequestSent, {kOpenChannel}),
  go(kYielded, kHandshakeTimer, kRetriesLeft && kExchanges,  kRequestSent,
     {kDestroyQueuePairs, kMakeQueuePairs, kPostHandshake, kOpenChannel}),
  go(kYielded, kHandshakeTimer, !kRetriesLeft,               kFailed,      {kTellFailed}),

  // ---- The passive side
  go(kAnswering, kRequestArrived, kRepeated && !kStale && !kOneWay, kAnswering, {kAdoptChannel}),
  go(kAnswering, kRequestArrived, kRepeated && !kStale && kOneWay,  kAnswering, {kAdoptChannel, kSendTarget}),
  go(kAnswering, kReceivesPosted, kChannelUp,           kReplySent, {kSendReply}),
  go(kAnswering, kReceivesPosted, !kChannelUp,          kReplySent, {kStartHandshakeTimer}),
  go(kAnswering, kChannelLost,    kAlways,              kAnswering, {kCloseChannel}),
  error(kAnswering, kConfirmArrived, "CONFIRM before REPLY"),

  go(kReplySent, kRequestArrived, kRepeated && !kStale, kReplySent, {kStopTimer, kAdoptChannel, kSendReply}),
  go(kReplySent, kRequestArrived, !kRepeated && !kStale && kExchanges, kReplySent,
     {kStopTimer, kAdoptChannel, kDestroyQueuePairs, kMakeQueuePairs, kPostHandshake, kConnectQueuePairs, kSendReply}),
  go(kReplySent, kConfirmArrived, !kExchanges,          kConnected, {kStopTimer, kCloseChannel, kTellConnected}),
  go(kReplySent, kConfirmArrived, kExchanges,           kConnected, {kStopTimer, kTellLinked}),
  // The channel stays for the CONFIRM: closing it first would make the peer believe that we never got one.
  go(kReplySent, kPeerSpoke,      !kExchanges,          kConnected, {kStopTimer, kTellConnected}),
  error(kReplySent, kPeerSpoke, "the main thread does not know these queue pairs yet", kExchanges),
  go(kReplySent, kChannelLost,    !kExchanges,          kReplySent, {kCloseChannel, kStartHandshakeTimer}),
  go(kReplySent, kChannelLost,    kExchanges && !kWanted,                 kClosed,
     {kCloseChannel, kDestroyQueuePairs}),
  go(kReplySent, kChannelLost,    kExchanges && kWanted && kRetriesLeft,  kRequestSent,
     {kCloseChannel, kStartRetryTimer}),
  go(kReplySent, kChannelLost,    kExchanges && kWanted && !kRetriesLeft, kFailed,
     {kCloseChannel, kTellFailed}),
  go(kReplySent, kHandshakeTimer, kAlways,              kFailed,    {kTellFailed}),

  go({kAnswering, kReplySent}, kRefusalArrived, kAlways, kFailed, {kStopTimer, kCloseChannel, kTellFailed}),

  // ---- Connected
  // A request of the peer's that ours overtook: the peer has long closed its channel.
  go(kConfirming, kRequestArrived, kRepeated,     kConfirming, {kDropNewChannel}),
  go(kConfirming, kRequestArrived, !kRepeated,    kConfirming, {kRefuseOther}),
  go(kConfirming, kReplyArrived,   kRepeated,     kConfirming, {kSendConfirm}),
  error(kConfirming, kReplyArrived,
        "the peer answers a repeated request with other queue pairs: it has forgotten the connection", !kRepeated),
  go(kConfirming, kConfirmTaken,   kAlways,       kConnected,  {kCloseChannel}),
  go(kConfirming, kPeerSpoke,      kAlways,       kConnected,  {kStopTimer, kCloseChannel}),
  go(kConfirming, kChannelLost,    kRetriesLeft,  kConfirming, {kCloseChannel, kStartRetryTimer}),
  go(kConfirming, kChannelLost,    !kRetriesLeft, kConnected,  {kCloseChannel}),
  go(kConfirming, kRetryTimer,     kAlways,       kConfirming, {kOpenChannel}),
  ignored(kConfirming, kTargetArrived, "the answer to a repeated request; the sender is connected"),
  go(kConfirming, {kRefusalArrived, kCollisionArrived, kTargetGoneArrived}, kAlways, kFailed,
     {kCloseChannel, kTellFailed}),

  go(kConnected, kRequestArrived, kRepeated && !kStale, kConnected, {kAdoptChannel, kSendReply}),
  go(kConnected, {kConfirmArrived, kChannelLost, kRefusalArrived}, !kExchanges, kConnected, {kCloseChannel}),
  go(kConnected, {kChannelLost, kRefusalArrived}, kExchanges, kConnected, {kCloseChannel, kTellPeerLeft}),
  error(kConnected, kConfirmArrived, "a second CONFIRM", kExchanges),
  ignored(kConnected, kPeerSpoke, "the peer is known to be connected"),

  // ---- Requests that do not fit the state
  go(kAnswering, kRequestArrived, kStale, kAnswering, {kDropNewChannel}),
  go(kReplySent, kRequestArrived, kStale, kReplySent, {kDropNewChannel}),
  go(kConnected, kRequestArrived, kStale, kConnected, {kDropNewChannel}),
  // The peer has other queue pairs than those we are connected to: it lost or restarted its side.
  go(kAnswering, kRequestArrived, !kRepeated && !kStale, kAnswering, {kRefuseOther}),
  go(kReplySent, kRequestArrived, !kRepeated && !kStale && !kExchanges, kReplySent, {kRefuseOther}),
  go(kConnected, kRequestArrived, !kRepeated && !kStale, kConnected, {kRefuseOther}),
  go(kClosing,   kRequestArrived, kAlways,               kClosing,   {kRefuseUnavailable}),
  go(kFailed,    kRequestArrived, kAlways,               kFailed,    {kRefuseUnavailable}),

  // ---- The end
  go({kPosting, kQueued, kRequestSent, kYielded, kAnswering, kReplySent}, kCloseWanted, kAlways, kClosing,
     {kStopTimer, kSendRefusal, kCloseChannel, kFlushQueuePairs, kTellFlushing}),
  go({kConfirming, kConnected}, kCloseWanted, kAlways, kClosing,
     {kStopTimer, kCloseChannel, kFlushQueuePairs, kTellFlushing}),
  go(kFailed, kCloseWanted, kAlways, kClosing, {kFlushQueuePairs, kTellFlushing}),
  go({kPosting, kQueued, kRequestSent, kYielded, kAnswering, kReplySent, kConfirming, kConnected}, kLocalError,
     kAlways, kFailed, {kStopTimer, kSendRefusal, kCloseChannel, kTellFailed}),
  go(kClosing, kDestroyWanted, kAlways, kClosed, {kDestroyQueuePairs}),
  go(kClosing, kConnectWanted, kAlways, kClosing, {kTellFailed}),  // main thread's error, but it waits for an answer
  ignored(kClosing, kCloseWanted, "Flushing has been said"),
  ignored(kClosing, {kReceivesPosted, kPeerSpoke, kLocalError}, "the connection is given up already"),
  ignored(kFailed, {kConnectWanted, kReceivesPosted, kPeerSpoke}, "crossed our Failed, which answers it"),
  ignored(kFailed, kLocalError, "has failed already"),
  error({kPosting, kQueued, kRequestSent, kYielded, kAnswering, kReplySent, kConfirming, kConnected, kFailed},
        kDestroyWanted, "Destroy without Close"),

  // ---- The rest of the main thread's commands
  ignored({kPosting, kQueued, kRequestSent, kYielded, kAnswering, kReplySent, kConfirming, kConnected}, kConnectWanted,
          "under way already: its Connected or Failed comes"),
  error({kQueued, kRequestSent, kYielded, kReplySent, kConfirming, kConnected}, kReceivesPosted, "receives were posted before"),
  error({kPosting, kQueued, kRequestSent, kYielded, kAnswering}, kPeerSpoke, "the peer cannot know our queue pairs yet"),

  // ---- Cannot happen: no channel, or none that such messages travel on, or no timer in these states
  go(kQueued, kRequestArrived, kAlways, kQueued, {kRefuseOther}),  // requests go to the connection the other way
  error({kClosed, kPosting, kQueued, kYielded, kAnswering, kReplySent, kConnected, kClosing, kFailed},
        {kReplyArrived, kTargetArrived, kCollisionArrived, kTargetGoneArrived}, "no request is open"),
  error({kClosed, kPosting, kQueued, kYielded, kRequestSent, kConfirming, kClosing, kFailed}, kConfirmArrived,
        "no reply is open"),
  error({kClosed, kPosting, kQueued, kYielded, kClosing, kFailed}, {kRefusalArrived, kChannelLost},
        "no channel is open"),
  error({kClosed, kPosting, kQueued, kYielded, kRequestSent, kAnswering, kReplySent, kConnected, kClosing, kFailed},
        kConfirmTaken, "no CONFIRM is under way"),
  error({kClosed, kPosting, kQueued, kYielded, kAnswering, kReplySent, kConnected, kClosing, kFailed}, kRetryTimer,
        "no retry is due"),
  error({kClosed, kPosting, kQueued, kRequestSent, kAnswering, kConfirming, kConnected, kClosing, kFailed},
        kHandshakeTimer, "the timer does not run"),
  error({kClosed, kPosting, kRequestSent, kYielded, kAnswering, kReplySent, kConfirming, kConnected, kClosing, kFailed},
        kSenderReady, "it does not wait for its turn"),
  error(kClosed, kLocalError, "there is nothing that could fail"),
});
// clang-format on

/// Stale implies repeated, and no CPC whose connections go one way exchanges CTS: the other combinations never arise.
[[nodiscard]] constexpr bool possible(std::uint8_t guards) noexcept {
  const bool stale_alone = (guards & kStale.care) != 0 && (guards & kRepeated.care) == 0;
  const bool both_kinds = (guards & kExchanges.care) != 0 && (guards & kOneWay.care) != 0;
  return !stale_alone && !both_kinds;
}

/// True if the rows of one cell of the table leave no guards out and do not overlap.
[[nodiscard]] constexpr bool cell_is_complete(State state, Event event) noexcept {
  std::array<int, std::size_t{1} << kGuards> matches{};
  for (const Row& row : kTable) {
    if (row.states.has(state) && row.events.has(event)) {
      for (std::size_t guards = 0; guards < matches.size(); ++guards) {
        matches[guards] += row.matches(state, event, static_cast<std::uint8_t>(guards)) ? 1 : 0;
      }
    }
  }
  for (std::size_t guards = 0; guards < matches.size(); ++guards) {
    if (possible(static_cast<std::uint8_t>(guards)) && matches[guards] != 1) {
      return false;
    }
  }
  return true;
}

/// Every event in every state, under all guards, has exactly one row.
[[nodiscard]] constexpr bool complete() noexcept {
  for (std::size_t state = 0; state < kStates; ++state) {
    for (std::size_t event = 0; event < kEvents; ++event) {
      if (!cell_is_complete(static_cast<State>(state), static_cast<Event>(event))) {
        return false;
      }
    }
  }
  return true;
}

/// Whatever becomes of a request, its channel is dealt with exactly once; and no other event has a new channel.
[[nodiscard]] constexpr bool new_channel_has_one_owner() noexcept {
  return std::all_of(kTable.begin(), kTable.end(), [](const Row& row) {
    const auto dealt_with = std::count_if(row.step.actions.begin(), row.step.actions.end(), [](Action action) {
      return action >= kAdoptChannel && action <= kDropNewChannel;
    });
    return dealt_with == (row.events.has(kRequestArrived) ? 1 : 0);
  });
}

static_assert(complete(), "a cell of the connection table has no row, or several");
static_assert(new_channel_has_one_owner(), "a row for RequestArrived must adopt, refuse or drop the new channel");

}  // namespace detail

/// What `event` leads to in `state`. `next` of an ignored event is `state`.
[[nodiscard]] constexpr Step step(State state, Event event, const Guards& guards) noexcept {
  const std::uint8_t bits = detail::guard_bits(guards);
  for (const detail::Row& row : detail::kTable) {
    if (row.matches(state, event, bits)) {
      Step step = row.step;
      if (step.outcome == Outcome::kIgnored) {
        step.next = state;
      }
      return step;
    }
  }
  return {Outcome::kIgnored, state, {}, "impossible guards"};
}

}  // namespace fabric::cpc
