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
//  - Connections that two ports have one after the other are told apart by their *incarnation*, a number that every
//    message carries and that grows (incarnations.h). A request of a newer incarnation is accepted in every state: whatever
//    there was is over, a newer connection takes its place. One of an incarnation that is over is refused, with the
//    newest number, and who asked asks again with a newer one. So either side may close and connect again at any time,
//    whatever the other knows of it.
//  - A connection keeps its queue pairs from its first attempt to its last. Every message carries the number of its
//    attempt, and a request with the same ends again is the same request: it is answered with the same reply. So a
//    channel that breaks, wherever, costs an attempt and nothing else.
//  - Of crossing requests the newer one counts, and of the same incarnation that of the lower ProcessName. Both sides
//    apply the same rule: the one with precedence refuses the other's request ("collision") and goes on waiting; the
//    other answers as soon as it sees the first's. A request that has not left this host has no precedence: the peer
//    cannot know of it, and where TCP gets through in one direction only, it never will.
//  - Nothing times out while a channel is up: a peer whose main thread computes for minutes answers after minutes. A
//    host that dies is noticed by the keepalive of the channel. Attempts end when their pauses, and the time in which
//    they did not get through, are too long together; waiting for a turn costs nothing.
//  - Who closes a channel only to let others go first says so (PAUSE); who opened it comes back when its turn comes. The passive
//    side waits longer for it than for others, unless its main thread wants the connection too, but not without a limit: who
//    ends while it is away can tell nobody. Whoever still wants a connection then makes a newer one, also an opener that is late.
//  - The active side may be connected while its CONFIRM is lost. It then comes back with the same request until the
//    peer is known to have the CONFIRM, or no time is left (the peer still learns from our first message: PeerSpoke).
//
// CPCs that exchange CTS (rdmacm, ibcm; the guard `exchanges`) differ in this:
//  - Nobody asks for receives before speaking: only the handshake buffer is posted, so that REQUEST and REPLY never wait
//    for a main thread (the kernel's communication manager gives up a REQ that is not answered). When the queue pairs of
//    both sides are up the main thread hears Linked, once, and the rest is its.
//  - Queue pairs belong to an attempt: a communication manager remembers the numbers of those whose attempt failed, and
//    on iWARP they are dead. So every attempt has new ones, of which the main thread hears only when they are up. If the device
//    has none left for a further attempt, that attempt has failed like one whose channel is lost.
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
//  - A request that names a target which is gone is refused; the active side then joins another sender.
//
// Invariants:
//  - Queue pairs are made on leaving Closed and destroyed on coming back to it (with a CTS exchange, or if the target is
//    gone, also between two attempts), or at the end of the progress thread: made == destroyed whenever every connection is Closed.
//  - A channel belongs to exactly one connection. A timer runs only in RequestSent, Yielded, ReplySent and Confirming.
//  - The main thread hears at most one PostReceives and one Connected (or one Linked and one PeerLeft), then at most one
//    Failed, and in the end exactly one Flushing, whether it has said Close or not; except of a connection that only the
//    peer wanted and that it has never heard of.
//
// To extend the table: add the enumerators to connection_states.h, then rows until this header compiles. Guards are in the
// state wherever possible: "receives posted", for instance, is one of the things that tell Posting from RequestSent and
// Answering from ReplySent.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "common/base/state_table.h"
#include "cpc/core/connection_states.h"

namespace fabric::cpc {

using ConnectionTable = StateTable<State, Event, Action, 7>;
using Actions = ConnectionTable::Actions;
using Step = ConnectionTable::Step;

namespace detail {

using enum State;
using enum Event;
using enum Action;

[[nodiscard]] consteval When on(bool Guards::*fact) {
  return when(kGuardList, fact);
}
inline constexpr When kPeerHasPrecedence = on(&Guards::peer_has_precedence);
inline constexpr When kNewer = on(&Guards::newer);
inline constexpr When kOlder = on(&Guards::older);
inline constexpr When kOldAttempt = on(&Guards::old_attempt);
inline constexpr When kSameEnds = on(&Guards::same_ends);
inline constexpr When kTimeLeft = on(&Guards::time_left);
inline constexpr When kChannelUp = on(&Guards::channel_up);
inline constexpr When kExchanges = on(&Guards::exchanges);
inline constexpr When kWanted = on(&Guards::wanted);
inline constexpr When kOutgoing = on(&Guards::outgoing);
inline constexpr When kIncoming = on(&Guards::incoming);
inline constexpr When kNamesTarget = on(&Guards::names_target);
inline constexpr When kPeerPauses = on(&Guards::peer_pauses);
/// A request of the incarnation at hand, and of its latest attempt.
inline constexpr When kSame = !kNewer && !kOlder;
inline constexpr When kLatest = kSame && !kOldAttempt;

inline constexpr Step kAfterError{
    Outcome::kProtocolError,
    kClosing,
    {kStopTimer, kSendRefusal, kCloseChannel, kTellFailed, kFlushQueuePairs, kTellFlushing},
    {}};

struct Rows : ConnectionTable {
  // clang-format off
  static constexpr auto kAll = std::to_array<Row>({
  // ---- Closed
  go(kClosed, kConnectWanted,  !kExchanges && !kOutgoing && !kIncoming, kPosting, {kMakeQueuePairs, kAskForReceives}),
  go(kClosed, kConnectWanted,  kOutgoing,   kPosting,     {kAskForReceives}),
  go(kClosed, kConnectWanted,  kExchanges && !kOutgoing && !kIncoming, kRequestSent,
     {kMakeQueuePairs, kPostHandshake, kOpenChannel}),
  error(kClosed, kConnectWanted, "only the side that sends can ask for a connection that goes one way", kIncoming),
  go(kClosed, kRequestArrived, !kExchanges && !kIncoming, kAnswering,
     {kAdoptChannel, kMakeQueuePairs, kConnectQueuePairs, kAskForReceives}),
  go(kClosed, kRequestArrived, !kExchanges && kIncoming, kAnswering,
     {kAdoptChannel, kMakeQueuePairs, kConnectQueuePairs, kSendTarget, kAskForReceives}),
  go(kClosed, kRequestArrived, kExchanges,  kReplySent,
     {kAdoptChannel, kMakeQueuePairs, kPostHandshake, kConnectQueuePairs, kSendReply}),
  go(kClosed, kLateRequestArrived, kAlways, kClosed,    {kRefuseTargetGone}),
  go(kClosed, kCloseWanted,    kAlways, kClosing,   {kTellFlushing}),
  ignored(kClosed, kDestroyWanted, "there is nothing to destroy"),
  ignored({kClosed, kClosing}, kWithdrawn, "nothing is wanted"),
  error(kClosed, {kReceivesPosted, kPeerSpoke}, "there are no queue pairs"),

  // ---- The active side, until its request is answered
  go(kPosting, kReceivesPosted, !kOutgoing, kRequestSent, {kOpenChannel}),
  go(kPosting, kReceivesPosted, kOutgoing,  kQueued,      {kMakeQueuePairs, kWantSender}),
  go(kQueued,  kSenderReady,    kAlways,    kRequestSent, {kOpenChannel}),
  go(kPosting, kRequestArrived, kAlways,    kAnswering,   {kAdoptChannel, kConnectQueuePairs}),

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
  go(kRequestSent, kTargetGoneArrived, kTimeLeft && kNamesTarget,  kQueued,
     {kCountAttempt, kCloseChannel, kRetireSender, kDestroyQueuePairs, kMakeQueuePairs, kWantSender}),
  go(kRequestSent, kTargetGoneArrived, !kTimeLeft && kNamesTarget, kClosing,
     {kCloseChannel, kRetireSender, kTellFailed, kFlushQueuePairs, kTellFlushing}),
  error(kRequestSent, kTargetGoneArrived, "our request names no target", !kNamesTarget),
  // The main thread that has given this incarnation up may take a newer one, if the peer wants it.
  go(kRequestSent, kOutdatedArrived,  kTimeLeft,           kRequestSent,
     {kCloseChannel, kRenewIncarnation, kStartRetryTimer}),
  go(kRequestSent, kOutdatedArrived,  !kTimeLeft,          kClosing,
     {kCloseChannel, kTellFailed, kFlushQueuePairs, kTellFlushing}),
  go(kRequestSent, kRefusalArrived,   kAlways,             kClosing,
     {kCloseChannel, kTellFailed, kFlushQueuePairs, kTellFlushing}),
  go(kRequestSent, kChannelLost,      kTimeLeft,           kRequestSent, {kCloseChannel, kStartRetryTimer}),
  go(kRequestSent, kChannelLost,      !kTimeLeft,          kClosing,
     {kCloseChannel, kTellFailed, kFlushQueuePairs, kTellFlushing}),
  go(kRequestSent, kRetryTimer,       !kExchanges,         kRequestSent, {kOpenChannel}),
  go(kRequestSent, kRetryTimer,       kExchanges,          kRequestSent,
     {kDestroyQueuePairs, kMakeQueuePairs, kPostHandshake, kOpenChannel}),

  go(kYielded, kRequestArrived, !kOlder && !kExchanges,      kReplySent,
     {kStopTimer, kAdoptChannel, kConnectQueuePairs, kSendReply}),
  go(kYielded, kRequestArrived, !kOlder && kExchanges,       kReplySent,
     {kStopTimer, kAdoptChannel, kDestroyQueuePairs, kMakeQueuePairs, kPostHandshake, kConnectQueuePairs, kSendReply}),
  // The peer may be waiting for its turn for long: that it has refused ours is a sign of life.
  go(kYielded, kHandshakeTimer, kTimeLeft && !kExchanges,    kRequestSent, {kOpenChannel}),
  go(kYielded, kHandshakeTimer, kTimeLeft && kExchanges,     kRequestSent,
     {kDestroyQueuePairs, kMakeQueuePairs, kPostHandshake, kOpenChannel}),
  go(kYielded, kHandshakeTimer, !kTimeLeft,                  kClosing,
     {kTellFailed, kFlushQueuePairs, kTellFlushing}),

  // ---- The passive side
  go(kAnswering, kRequestArrived, kLatest && kSameEnds && !kIncoming, kAnswering, {kAdoptChannel}),
  go(kAnswering, kRequestArrived, kLatest && kSameEnds && kIncoming,  kAnswering, {kAdoptChannel, kSendTarget}),
  go(kAnswering, kReceivesPosted, kChannelUp,           kReplySent, {kSendReply}),
  go(kAnswering, kReceivesPosted, !kChannelUp,          kReplySent, {kStartHandshakeTimer}),
  go(kAnswering, kChannelLost,    kAlways,              kAnswering, {kCloseChannel}),
  go(kAnswering, kPauseArrived,   kAlways,              kAnswering, {kNotePause, kCloseChannel}),
  error(kAnswering, kConfirmArrived, "CONFIRM before REPLY"),

  go(kReplySent, kRequestArrived, kLatest && kSameEnds && !kExchanges, kReplySent,
     {kStopTimer, kAdoptChannel, kSendReply}),
  go(kReplySent, kRequestArrived, kLatest && kExchanges, kReplySent,
     {kStopTimer, kAdoptChannel, kDestroyQueuePairs, kMakeQueuePairs, kPostHandshake, kConnectQueuePairs, kSendReply}),
  go(kReplySent, kConfirmArrived, !kExchanges,          kConnected, {kStopTimer, kCloseChannel, kTellConnected}),
  go(kReplySent, kConfirmArrived, kExchanges,           kConnected, {kStopTimer, kTellLinked}),
  // The channel stays for the CONFIRM: closing it first would make the peer believe that we never got one.
  go(kReplySent, kPeerSpoke,      !kExchanges,          kConnected, {kStopTimer, kTellConnected}),
  error(kReplySent, kPeerSpoke, "the main thread does not know these queue pairs yet", kExchanges),
  go(kReplySent, kChannelLost,    !kExchanges,          kReplySent, {kCloseChannel, kStartHandshakeTimer}),
  go(kReplySent, kChannelLost,    kExchanges && !kWanted,               kClosed,
     {kCloseChannel, kDestroyQueuePairs}),
  go(kReplySent, kChannelLost,    kExchanges && kWanted && kTimeLeft,   kRequestSent,
     {kCloseChannel, kStartRetryTimer}),
  go(kReplySent, kChannelLost,    kExchanges && kWanted && !kTimeLeft,  kClosing,
     {kCloseChannel, kTellFailed, kFlushQueuePairs, kTellFlushing}),
  go(kReplySent, kPauseArrived,   kAlways,              kReplySent, {kNotePause, kCloseChannel, kStartHandshakeTimer}),
  // From now on less patience is due.
  go(kReplySent, kConnectWanted,  !kChannelUp && kPeerPauses, kReplySent, {kStartHandshakeTimer}),
  ignored(kReplySent, kConnectWanted, "under way already: its Connected or Failed comes", kChannelUp),
  ignored(kReplySent, kConnectWanted, "the timer runs already", !kChannelUp && !kPeerPauses),
  // Our queue pairs are connected to those of a peer that does not come: a newer connection has others.
  go(kReplySent, kHandshakeTimer, kWanted && kTimeLeft,  kClosing,  {kStartOver, kFlushQueuePairs, kTellFlushing}),
  go(kReplySent, kHandshakeTimer, kWanted && !kTimeLeft, kClosing,  {kTellFailed, kFlushQueuePairs, kTellFlushing}),
  go(kReplySent, kHandshakeTimer, !kWanted,              kClosing,  {kTellFailed, kFlushQueuePairs, kTellFlushing}),

  go({kAnswering, kReplySent}, kOutdatedArrived, kWanted && kTimeLeft,  kClosing,
     {kStopTimer, kStartOver, kCloseChannel, kFlushQueuePairs, kTellFlushing}),
  go({kAnswering, kReplySent}, kOutdatedArrived, kWanted && !kTimeLeft, kClosing,
     {kStopTimer, kCloseChannel, kTellFailed, kFlushQueuePairs, kTellFlushing}),
  go({kAnswering, kReplySent}, kOutdatedArrived, !kWanted,              kClosing,
     {kStopTimer, kCloseChannel, kTellFailed, kFlushQueuePairs, kTellFlushing}),
  go({kAnswering, kReplySent}, kRefusalArrived,  kAlways,               kClosing,
     {kStopTimer, kCloseChannel, kTellFailed, kFlushQueuePairs, kTellFlushing}),

  // ---- Connected
  // A request of the peer's that ours overtook: the peer has long closed its channel.
  go(kConfirming, kRequestArrived, kSame && kSameEnds,  kConfirming, {kDropNewChannel}),
  go(kConfirming, kRequestArrived, kSame && !kSameEnds, kConfirming, {kRefuseOther}),
  go(kConfirming, kReplyArrived,   kSameEnds,     kConfirming, {kSendConfirm}),
  error(kConfirming, kReplyArrived,
        "the peer answers a repeated request with other queue pairs: it has forgotten the connection", !kSameEnds),
  go(kConfirming, kConfirmTaken,   kAlways,       kConnected,  {kCloseChannel}),
  go(kConfirming, kPeerSpoke,      kAlways,       kConnected,  {kStopTimer, kCloseChannel}),
  go(kConfirming, kChannelLost,    kTimeLeft,     kConfirming, {kCloseChannel, kStartRetryTimer}),
  go(kConfirming, kChannelLost,    !kTimeLeft,    kConnected,  {kCloseChannel}),
  go(kConfirming, kRetryTimer,     kAlways,       kConfirming, {kOpenChannel}),
  ignored(kConfirming, kTargetArrived, "the answer to a repeated request; the sender is connected"),
  go(kConfirming, {kRefusalArrived, kOutdatedArrived, kCollisionArrived, kTargetGoneArrived}, kAlways, kClosing,
     {kCloseChannel, kTellFailed, kFlushQueuePairs, kTellFlushing}),

  go(kConnected, kRequestArrived, kLatest && kSameEnds && !kExchanges, kConnected, {kAdoptChannel, kSendReply}),
  go(kConnected, {kConfirmArrived, kChannelLost, kRefusalArrived, kOutdatedArrived, kPauseArrived}, !kExchanges,
     kConnected, {kCloseChannel}),
  go(kConnected, {kChannelLost, kRefusalArrived, kOutdatedArrived}, kExchanges, kConnected,
     {kCloseChannel, kTellPeerLeft}),
  error(kConnected, kConfirmArrived, "a second CONFIRM", kExchanges),
  error(kConnected, kPauseArrived, "a PAUSE on a channel that stays", kExchanges),
  ignored(kConnected, kPeerSpoke, "the peer is known to be connected"),

  // ---- Requests that do not fit the state
  stay({kAnswering, kReplySent, kConnected}, kRequestArrived, kSame && kOldAttempt, {kDropNewChannel}),
  // Other queue pairs than those we are connected to: the peer does not remember this incarnation.
  stay({kAnswering, kConnected}, kRequestArrived, kLatest && !kSameEnds, {kRefuseOther}),
  stay(kReplySent, kRequestArrived, kLatest && !kSameEnds && !kExchanges, {kRefuseOther}),
  stay(kConnected, kRequestArrived, kLatest && kSameEnds && kExchanges, {kRefuseOther}),
  stay({kYielded, kAnswering, kReplySent, kConfirming, kConnected}, kRequestArrived, kOlder, {kRefuseOutdated}),
  go({kAnswering, kReplySent, kConfirming, kConnected}, kRequestArrived, kNewer, kClosing,
     {kStopTimer, kHandOver, kCloseChannel, kFlushQueuePairs, kTellFlushing}),
  go(kClosing,    kRequestArrived, kAlways, kClosing,   {kRefuseOutdated}),

  // ---- The end
  go({kPosting, kQueued, kRequestSent, kYielded, kAnswering, kReplySent}, kCloseWanted, kAlways, kClosing,
     {kStopTimer, kSendRefusal, kCloseChannel, kFlushQueuePairs, kTellFlushing}),
  go({kPosting, kQueued, kRequestSent, kYielded}, kWithdrawn, kAlways, kClosing,
     {kStopTimer, kSendRefusal, kCloseChannel, kFlushQueuePairs, kTellFlushing}),
  ignored({kAnswering, kReplySent, kConfirming, kConnected}, kWithdrawn, "the peer wants it too"),
  go({kConfirming, kConnected}, kCloseWanted, kAlways, kClosing,
     {kStopTimer, kCloseChannel, kFlushQueuePairs, kTellFlushing}),
  go({kPosting, kQueued, kRequestSent, kYielded, kAnswering, kReplySent, kConfirming, kConnected}, kLocalError,
     kAlways, kClosing, {kStopTimer, kSendRefusal, kCloseChannel, kTellFailed, kFlushQueuePairs, kTellFlushing}),
  go({kRequestSent, kConfirming}, kMisfitArrived, kAlways, kClosing,
     {kStopTimer, kSendRefusal, kCloseChannel, kTellFailed, kFlushQueuePairs, kTellFlushing}),
  go(kClosing, kDestroyWanted, kAlways, kClosed, {kDestroyQueuePairs}),
  ignored(kClosing, kCloseWanted, "Flushing has been said"),
  ignored(kClosing, {kReceivesPosted, kPeerSpoke, kLocalError}, "the connection is given up already"),
  ignored(kClosing, kConnectWanted, "a newer connection is made for it"),
  error({kPosting, kQueued, kRequestSent, kYielded, kAnswering, kReplySent, kConfirming, kConnected}, kDestroyWanted,
        "Destroy without Close"),

  // ---- The rest of the main thread's commands
  ignored({kPosting, kQueued, kRequestSent, kYielded, kAnswering, kConfirming, kConnected}, kConnectWanted,
          "under way already: its Connected or Failed comes"),
  error({kQueued, kRequestSent, kYielded, kReplySent, kConfirming, kConnected}, kReceivesPosted, "receives were posted before"),
  error({kPosting, kQueued, kRequestSent, kYielded, kAnswering}, kPeerSpoke, "the peer cannot know our queue pairs yet"),

  // ---- Cannot happen: no channel, or none that such messages travel on, or no timer in these states
  go(kQueued, kRequestArrived, kAlways, kQueued, {kRefuseOther}),  // requests go to the connection the other way
  error({kPosting, kQueued, kRequestSent, kYielded, kAnswering, kReplySent, kConfirming, kConnected, kClosing},
        kLateRequestArrived, "only a new connection looks for a target"),
  error({kClosed, kPosting, kQueued, kYielded, kAnswering, kReplySent, kConnected, kClosing},
        {kReplyArrived, kTargetArrived, kMisfitArrived, kCollisionArrived, kTargetGoneArrived}, "no request is open"),
  error({kClosed, kPosting, kQueued, kYielded, kRequestSent, kConfirming, kClosing}, {kConfirmArrived, kPauseArrived},
        "no reply is open"),
  error({kClosed, kPosting, kQueued, kYielded, kClosing}, {kRefusalArrived, kOutdatedArrived, kChannelLost},
        "no channel is open"),
  error({kClosed, kPosting, kQueued, kYielded, kRequestSent, kAnswering, kReplySent, kConnected, kClosing},
        kConfirmTaken, "no CONFIRM is under way"),
  error({kClosed, kPosting, kQueued, kYielded, kAnswering, kReplySent, kConnected, kClosing}, kRetryTimer,
        "no retry is due"),
  error({kClosed, kPosting, kQueued, kRequestSent, kAnswering, kConfirming, kConnected, kClosing},
        kHandshakeTimer, "the timer does not run"),
  error({kClosed, kPosting, kRequestSent, kYielded, kAnswering, kReplySent, kConfirming, kConnected, kClosing},
        kSenderReady, "it does not wait for its turn"),
  error(kClosed, kLocalError, "there is nothing that could fail"),
  });
};
// clang-format on

/// A request is newer or older or neither, attempts are those of one incarnation, no CPC whose connections go one way
/// exchanges CTS, and only who sends names a target.
[[nodiscard]] constexpr bool possible(unsigned guards, unsigned care) noexcept {
  const auto has = [guards](When when) { return (guards & when.care) != 0; };
  const bool other_incarnation = has(kNewer) || has(kOlder);
  const bool one_way = has(kOutgoing) || has(kIncoming);
  const bool is_passive = (care & kOutgoing.care) != 0 && !has(kOutgoing);
  return !(has(kNewer) && has(kOlder)) && !(has(kOldAttempt) && other_incarnation) &&
         !(has(kOutgoing) && has(kIncoming)) && !(has(kExchanges) && one_way) && !(has(kNamesTarget) && is_passive);
}

/// Whatever becomes of a request, its channel is dealt with exactly once; and no other event has a new channel.
[[nodiscard]] constexpr bool new_channel_has_one_owner() noexcept {
  return std::all_of(Rows::kAll.begin(), Rows::kAll.end(), [](const auto& row) {
    const auto dealt_with = std::count_if(row.actions.begin(), row.actions.end(), [](Action action) {
      return action >= kAdoptChannel && action <= kDropNewChannel;
    });
    const bool has_one =
        row.events.has(kRequestArrived) || (row.events.has(kLateRequestArrived) && row.outcome == Outcome::kTransition);
    return dealt_with == (has_one ? 1 : 0);
  });
}

static_assert(Rows::is_complete(Rows::kAll, kStates, kEvents, possible),
              "a cell of the connection table has no row, or several");
static_assert(new_channel_has_one_owner(), "a row for a request must adopt, refuse, hand over or drop the new channel");

}  // namespace detail

/// What `event` leads to in `state`.
[[nodiscard]] constexpr Step step(State state, Event event, const Guards& guards) noexcept {
  return detail::Rows::look_up(detail::Rows::kAll, state, event, guard_bits(kGuardList, guards), detail::kAfterError);
}

}  // namespace fabric::cpc
