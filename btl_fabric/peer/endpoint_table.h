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
// Goodbye. A process that Open MPI takes away from us is told so by the last message on each queue, before the queue pairs
// are given up. So a connection that breaks without a goodbye has failed, on every transport, and one that breaks
// after it is no failure. Where the peer's link may carry already and ours does not yet, goodbye waits until it does. A link
// that may carry, and over which nothing has come or gone, is missed by nobody: the peer may have left before it could say
// goodbye.
//
// With X queues only the side that sends can say goodbye by its connection. A side that Open MPI takes the peer away from and
// that has no connection of its own goes on to receive (with one transmit context): whatever the peer sends, sure that it
// arrives, is delivered. The peer's goodbye is the end, or Open MPI takes the endpoint back.
//
// Links. An endpoint has one link that carries or is to carry, and any number that are being taken down. Goodbye, or a
// newer connection that the peer has made, ends a link and not the endpoint: what is sent next, or what the peer sends next,
// makes a newer one. Only what was under way when it ended, and somebody waits for, is an error.
//
// Rest. Where queue pairs are short, a link that neither side needs now is given up by agreement: one side asks, over every queue,
// and sends nothing until the other answers, with goodbye or that it needs the link. Two that ask at the same time agree. Who
// agrees has nothing under way, so nothing is lost, and what is sent next makes a newer link.
//
// Healing. A link that has carried, and breaks for a reason that may pass, is made anew while btl_fabric_heal_timeout lasts: over the
// next one both sides say what has arrived, and send the rest again (path/link_healing.h). Who loses the link in the middle of that
// makes another one. Whatever is sent meanwhile waits. A side that has noticed nothing is told by the new connection. Where a link ends
// and nobody has said whether the last of what went over it has arrived, because a process takes leave of the other or only one of them
// forgets the link, the next one begins with the counts too: else they would be of no use when that one breaks.
// With X queues only the way out is made anew, and what comes in goes on: a side whose way has been made anew asks what has arrived,
// and the other answers by its own, which it connects for that if need be.
//
// Nothing times out but the wait for our goodbye: a main thread that computes for a minute answers after a minute.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "btl_fabric/peer/endpoint_states.h"
#include "common/base/state_table.h"

namespace fabric {

using EndpointTable = StateTable<EndpointState, EndpointEvent, EndpointAction, 4>;
using EndpointStep = EndpointTable::Step;

namespace endpoint_detail {

using enum EndpointState;
using enum EndpointEvent;
using enum EndpointAction;

[[nodiscard]] consteval When on(bool EndpointGuards::*fact) {
  return when(kEndpointGuardList, fact);
}
inline constexpr When kMaySpeakFirst = on(&EndpointGuards::may_speak_first);
inline constexpr When kMissed = on(&EndpointGuards::missed);
inline constexpr When kCrossed = on(&EndpointGuards::crossed);
inline constexpr When kTheirs = on(&EndpointGuards::theirs);
inline constexpr When kIsSelf = on(&EndpointGuards::is_self);
inline constexpr When kOtherWay = on(&EndpointGuards::other_way);
inline constexpr When kHeard = on(&EndpointGuards::heard);
inline constexpr When kIdleLink = on(&EndpointGuards::idle);
inline constexpr When kHeals = on(&EndpointGuards::heals);
inline constexpr When kIsHealing = on(&EndpointGuards::healing);
inline constexpr When kNothingLeft = on(&EndpointGuards::nothing_left);
inline constexpr When kPostedAll = on(&EndpointGuards::posted_all);
inline constexpr When kReceives = on(&EndpointGuards::receives);

inline constexpr EndpointStep kAfterError{Outcome::kProtocolError, kFailed, {kReport, kFailAll, kCloseAll}, {}};

struct Rows : EndpointTable {
  // clang-format off
  static constexpr auto kAll = std::to_array<Row>({
  // ---- Something is to be sent
  go(kIdle, kSendWanted, kAlways, kConnecting, {kConnect}),
  ignored({kConnecting, kCtsSent, kCtsAwaited}, kSendWanted, "it waits for the connection"),
  ignored({kResuming, kResting, kParting}, kSendWanted, "it waits for the peer's answer, or for the next link"),
  ignored({kConnected, kSelf}, kSendWanted, "the link carries it"),

  // ---- A connection is made, for us or for the peer
  go({kIdle, kConnecting}, kReceivesWanted, kAlways, kConnecting, {kPostReceives}),
  go({kIdle, kConnecting}, kLinked, kMaySpeakFirst,  kCtsSent,    {kPostReceives, kSendCts}),
  go({kIdle, kConnecting}, kLinked, !kMaySpeakFirst, kCtsAwaited, {kPostReceives}),
  go(kConnecting, kMade, !kIsSelf && kIsHealing, kResuming, {kExchangeCounts}),
  go(kConnecting, kMade, !kIsSelf && !kIsHealing && kMissed, kConnected, {kStart}),
  go(kConnecting, kMade, !kIsSelf && !kIsHealing && !kMissed && kHeard, kConnected, {kStart}),
  go(kConnecting, kMade, !kIsSelf && !kIsHealing && !kMissed && !kHeard, kClear, {}),
  go(kConnecting, kMade, kIsSelf,  kSelf,      {kStart}),
  ignored(kIdle, kMade, "nothing is to be sent over it"),
  go(kCtsSent,    kCtsArrived, kIsHealing,              kResuming,  {kExchangeCounts}),
  go(kCtsSent,    kCtsArrived, !kIsHealing && kMissed,  kConnected, {kStart}),
  go(kCtsSent,    kCtsArrived, !kIsHealing && !kMissed, kClear,     {}),
  go(kCtsAwaited, kCtsArrived, kIsHealing,              kResuming,  {kSendCts, kExchangeCounts}),
  go(kCtsAwaited, kCtsArrived, !kIsHealing && kMissed,  kConnected, {kSendCts, kStart}),
  go(kCtsAwaited, kCtsArrived, !kIsHealing && !kMissed, kClear,     {kSendCts}),
  go(kClear, {kSendWanted, kPeerSpoke}, kAlways, kConnected, {kStart}),
  go(kConnecting, kPeerSpoke, !kIsSelf, kConnecting, {kTellPeerSpoke}),
  ignored(kConnecting, kPeerSpoke, "there is nobody to tell", kIsSelf),
  stay({kIdle, kResuming, kConnected}, kPeerSpoke, kOtherWay, {kTellPeerSpoke}),
  ignored({kIdle, kResuming, kConnected}, kPeerSpoke, "it makes no difference any more", !kOtherWay),
  ignored({kCtsSent, kCtsAwaited, kResting, kParting, kSelf, kLeaving}, kPeerSpoke, "it makes no difference any more"),

  error({kIdle, kConnecting}, kCtsArrived, "a CTS over queue pairs that are not linked"),
  error({kResuming, kResting, kParting, kClear, kConnected}, kCtsArrived, "a second CTS"),
  error({kCtsSent, kCtsAwaited, kResuming, kResting, kParting, kClear, kConnected}, {kReceivesWanted, kLinked, kMade}, "a connection is made twice"),
  error(kSelf, {kReceivesWanted, kLinked, kMade, kCtsArrived}, "this process has no connection with itself"),

  // ---- A link that neither side needs now is given up
  go({kConnected}, kRestWanted, kIdleLink, kResting, {kAskToRest}),
  go({kClear}, kRestWanted, kAlways, kResting, {kStart, kAskToRest}),
  ignored(kConnected, kRestWanted, "something is under way", !kIdleLink),
  go(kConnected, kRestAsked, kIdleLink,  kParting,   {kSayGoodbye}),
  go(kConnected, kRestAsked, !kIdleLink, kConnected, {kDeclineRest}),
  go(kClear,     kRestAsked, kAlways,    kParting,   {kStart, kSayGoodbye}),
  stay({kConnecting, kCtsSent, kCtsAwaited, kResuming}, kRestAsked, kAlways, {kPutOffRest}),
  go(kResting, kRestAsked, kAlways, kParting, {kSayGoodbye}),
  go(kResting, kRestDeclined, kAlways, kConnected, {kResume}),
  go(kResting, kGoodbyeArrived, !kMissed, kIdle,       {kCloseAll, kRetire}),
  go(kResting, kGoodbyeArrived, kMissed,  kConnecting, {kCloseAll, kRetire, kConnect}),
  go(kParting, {kGoodbyeDone, kGoodbyeArrived}, !kMissed, kIdle, {kCloseAll, kRetire}),
  go(kParting, {kGoodbyeDone, kGoodbyeArrived}, kMissed, kConnecting, {kCloseAll, kRetire, kConnect}),
  go(kParting, {kLost, kSetUpFailed, kLinkFailed}, !kHeals && !kMissed, kIdle, {kCloseAll, kRetire, kDoubtCounts}),
  go(kParting, {kLost, kSetUpFailed, kLinkFailed}, !kHeals && kMissed, kConnecting, {kCloseAll, kRetire, kDoubtCounts, kConnect}),
  go({kResting, kParting}, kSuperseded, !kHeals && !kMissed, kIdle,       {kRetire, kDoubtCounts}),
  go({kResting, kParting}, kSuperseded, !kHeals && kMissed,  kConnecting, {kRetire, kDoubtCounts, kConnect}),
  go(kResting, kRemoved, kAlways, kLeaving, {kDropAll, kBeginToLeave, kSayGoodbye}),
  go(kParting, kRemoved, kAlways, kLeaving, {kDropAll, kBeginToLeave}),
  ignored({kIdle, kConnecting, kCtsSent, kCtsAwaited, kResuming, kResting, kParting, kSelf}, kRestWanted, "there is no link that carries"),
  ignored({kIdle, kParting}, kRestAsked, "the link is over"),
  error(kSelf, kRestAsked, "nobody but we can ask ourselves"),
  ignored({kIdle, kConnecting, kCtsSent, kCtsAwaited, kResuming, kParting}, kRestDeclined, "the link that it is about is over"),
  error({kClear, kConnected, kSelf}, kRestDeclined, "nobody has asked"),
  ignored({kResting, kParting}, kSenderGone, "X queues do not rest"),
  ignored(kResting, kGoodbyeDone, "none was said"),

  // ---- The peer leaves. What waits for it here waits for a newer connection.
  go({kClear, kConnected}, kGoodbyeArrived, !kMissed, kIdle,   {kCloseAll, kRetire, kDoubtCounts}),
  go({kClear, kConnected}, kGoodbyeArrived, kMissed,  kFailed, {kReport, kFailAll, kCloseAll}),
  // With X queues the connection that we make may have reached the endpoint that the peer has just given up: another is made.
  go(kConnecting, kGoodbyeArrived, kPostedAll,              kIdle,       {kCloseAll, kRetire, kDoubtCounts}),
  go(kConnecting, kGoodbyeArrived, !kPostedAll && !kMissed, kIdle,       {kCloseAll, kRetire}),
  go(kConnecting, kGoodbyeArrived, !kPostedAll && kMissed,  kConnecting, {kCloseAll, kRetire, kConnect}),
  go(kIdle,       kGoodbyeArrived, kOtherWay, kIdle,       {kCloseAll, kRetire}),
  error(kIdle,    kGoodbyeArrived, "there is no link", !kOtherWay),
  error({kCtsSent, kCtsAwaited}, kGoodbyeArrived, "goodbye comes before CTS"),
  error(kSelf, kGoodbyeArrived, "nobody but we can say goodbye to ourselves"),

  go({kConnecting, kCtsSent, kCtsAwaited}, kSuperseded, !kMissed, kIdle,       {kRetire}),
  go({kConnecting, kCtsSent, kCtsAwaited}, kSuperseded, kMissed,  kConnecting, {kRetire, kConnect}),
  go(kClear,     kSuperseded, !kMissed,            kIdle,   {kRetire}),
  go(kClear,     kSuperseded, kMissed,             kFailed, {kReport, kFailAll}),
  go(kConnected, kSuperseded, !kHeals && !kMissed, kIdle,   {kRetire, kDoubtCounts}),
  go(kConnected, kSuperseded, !kHeals && kMissed,  kFailed, {kReport, kFailAll}),
  go(kLeaving, kSuperseded, kAlways, kClosing, {kDropAll, kCloseAll}),
  ignored({kIdle, kSelf}, kSuperseded, "there is no link"),

  // ---- The queue pair that X queues share fails by what another link has sent. What waits for this one waits for a newer.
  go(kConnected, kSenderGone, !kMissed, kIdle,       {kStopSending, kCloseDirection}),
  go(kConnected, kSenderGone, kMissed,  kConnecting, {kStopSending, kCloseDirection, kConnect}),
  // Upcall Connected names one that has failed before: the connection is made again, over another one.
  go(kConnecting, kSenderGone, !kMissed && !kIsHealing, kIdle, {kCloseDirection}),
  go(kConnecting, kSenderGone, !kMissed && kIsHealing,  kIdle, {kCloseDirection, kRetire}),
  go(kConnecting, kSenderGone, kMissed,  kConnecting, {kCloseDirection, kConnect}),
  go(kLeaving,   kSenderGone, kAlways,  kClosing,    {kDropAll, kCloseAll}),
  ignored({kIdle, kCtsSent, kCtsAwaited, kClear, kSelf}, kSenderGone, "nothing is sent over it"),

  // ---- Something fails. What only the peer wanted is missed by nobody here.
  stay({kIdle, kConnecting, kResuming, kConnected}, kSetUpFailed, kOtherWay, {kNote, kCloseDirection}),
  go(kIdle,       kSetUpFailed, !kOtherWay && !kMissed, kIdle,   {kNote, kCloseDirection, kRetire}),
  go(kIdle,       kSetUpFailed, !kOtherWay && kMissed,  kFailed, {kReport, kFailAll, kCloseAll}),
  go(kConnecting, kSetUpFailed, !kOtherWay && kCrossed, kConnecting, {kNote, kCloseDirection, kRetire}),
  go(kConnecting, kSetUpFailed, !kOtherWay && !kCrossed && !kMissed, kIdle,   {kNote, kCloseDirection, kRetire}),
  go(kConnecting, kSetUpFailed, !kOtherWay && !kCrossed && kMissed && !kIsHealing && kTheirs, kConnecting,
     {kNote, kCloseDirection, kRetire, kConnect}),
  go(kConnecting, kSetUpFailed, !kOtherWay && !kCrossed && kMissed && !kIsHealing && !kTheirs, kFailed, {kReport, kFailAll, kCloseAll}),
  go(kConnected,  kSetUpFailed, !kOtherWay && !kHeals, kFailed, {kReport, kFailAll, kCloseAll}),
  go(kIdle, kLost, !kMissed, kIdle,   {kNote, kCloseAll, kRetire}),
  go(kIdle, kLost, kMissed,  kFailed, {kReport, kFailAll, kCloseAll}),
  go({kConnecting, kCtsSent, kCtsAwaited, kClear}, kLost, !kMissed, kIdle, {kNote, kCloseAll, kRetire}),
  go({kConnecting, kCtsSent, kCtsAwaited, kClear}, kLost, kMissed && !kHeals, kFailed, {kReport, kFailAll, kCloseAll}),
  go({kCtsSent, kCtsAwaited, kClear}, kSetUpFailed, !kMissed, kIdle, {kNote, kCloseAll, kRetire}),
  go({kCtsSent, kCtsAwaited, kClear}, kSetUpFailed, kMissed && !kHeals, kFailed, {kReport, kFailAll, kCloseAll}),
  go({kResting, kConnected}, kLost, !kHeals, kFailed, {kReport, kFailAll, kCloseAll}),
  go(kSelf, kLost, kAlways, kFailed, {kReport, kFailAll, kCloseAll}),
  go(kResting, kSetUpFailed, !kHeals, kFailed, {kReport, kFailAll, kCloseAll}),
  go(kSelf, kSetUpFailed, kAlways, kFailed, {kReport, kFailAll, kCloseAll}),
  go(kIdle, kLinkFailed, kAlways, kFailed, {kReport, kFailAll, kCloseAll}),
  go(kConnecting, kLinkFailed, !kHeals, kFailed, {kReport, kFailAll, kCloseAll}),
  go({kCtsSent, kCtsAwaited, kClear}, kLinkFailed, !kHeals, kFailed, {kReport, kFailAll}),
  go({kResting, kConnected}, kLinkFailed, !kHeals, kFailed, {kReport, kFailAll}),
  go(kSelf, kLinkFailed, kAlways, kFailed, {kReport, kFailAll}),

  // ---- A link that has carried breaks, and the next one goes on where it has ended
  // (Parting: the peer may wait for the goodbye that is lost.)
  go({kResting, kParting, kConnected}, {kLost, kLinkFailed}, kHeals, kConnecting, {kCloseSending, kBreakOff, kConnectAgain}),
  go({kResting, kParting, kConnected}, kSuperseded, kHeals, kConnecting, {kBreakOff, kConnectAgain}),
  go({kResting, kParting}, kSetUpFailed, kHeals, kConnecting, {kCloseSending, kBreakOff, kConnectAgain}),
  go(kConnected, kSetUpFailed, !kOtherWay && kHeals, kConnecting, {kCloseSending, kBreakOff, kConnectAgain}),
  go(kResuming, kResumed, kAlways, kConnected, {kStart}),
  // The next one cannot be made now.
  go(kConnecting, kSetUpFailed, !kOtherWay && !kCrossed && kMissed && kIsHealing && kHeals, kConnecting, {kCloseSending, kBreakOff, kConnectAgain}),
  go(kConnecting, kSetUpFailed, !kOtherWay && !kCrossed && kMissed && kIsHealing && !kHeals && !kNothingLeft, kFailed, {kReport, kFailAll, kCloseAll}),
  // The peer may have said goodbye over the other port, and ended; or it has ended, and its goodbye was lost, or (X queues) it had no
  // link to say it over.
  go(kConnecting, kSetUpFailed, !kOtherWay && !kCrossed && kMissed && kIsHealing && !kHeals && kNothingLeft, kIdle, {kNote, kCloseDirection, kRetire, kDoubtCounts}),
  go(kConnecting, kPauseOver, kAlways, kConnecting, {kConnect}),
  ignored({kIdle, kCtsSent, kCtsAwaited, kResuming, kResting, kParting, kClear, kConnected, kSelf, kAboutToLeave, kLeaving, kFailed, kClosing},
          kPauseOver, "nothing waits for it any more"),
  // The same before it carries, with nothing to be sent again, or while that is prepared.
  go({kConnecting, kCtsSent, kCtsAwaited, kClear}, kLost, kMissed && kHeals, kConnecting, {kCloseSending, kBreakOff, kConnectAgain}),
  go({kCtsSent, kCtsAwaited, kClear}, kSetUpFailed, kMissed && kHeals, kConnecting, {kCloseSending, kBreakOff, kConnectAgain}),
  go({kConnecting, kCtsSent, kCtsAwaited, kClear}, kLinkFailed, kHeals, kConnecting, {kCloseSending, kBreakOff, kConnectAgain}),
  go(kResuming, {kSenderGone, kLost, kLinkFailed}, kMissed && kHeals,  kConnecting, {kCloseSending, kBreakOff, kConnectAgain}),
  go(kResuming, {kSenderGone, kLost, kLinkFailed}, kMissed && !kHeals, kFailed, {kReport, kFailAll, kCloseAll}),
  go(kResuming, {kSenderGone, kLost, kLinkFailed}, !kMissed,           kIdle, {kNote, kCloseSending, kRetire, kDoubtCounts}),
  go(kResuming, kSetUpFailed, !kOtherWay && kMissed && kHeals,  kConnecting, {kCloseSending, kBreakOff, kConnectAgain}),
  go(kResuming, kSetUpFailed, !kOtherWay && kMissed && !kHeals, kFailed, {kReport, kFailAll, kCloseAll}),
  go(kResuming, kSetUpFailed, !kOtherWay && !kMissed,           kIdle, {kNote, kCloseSending, kRetire, kDoubtCounts}),
  go(kResuming, kSuperseded, kMissed && kHeals,  kConnecting, {kBreakOff, kConnectAgain}),
  go(kResuming, kSuperseded, kMissed && !kHeals, kFailed, {kReport, kFailAll}),
  go(kResuming, kSuperseded, !kMissed,           kIdle, {kRetire, kDoubtCounts}),
  go(kResuming, kGoodbyeArrived, kPostedAll,  kIdle,   {kCloseAll, kRetire, kDoubtCounts}),
  go(kResuming, kGoodbyeArrived, !kPostedAll, kFailed, {kReport, kFailAll, kCloseAll}),
  go(kResuming, kRemoved, kAlways, kClosing, {kDropAll, kCloseAll}),
  error({kIdle, kConnecting, kCtsSent, kCtsAwaited, kResting, kParting, kClear, kConnected, kSelf}, kResumed, "nothing is to be sent again"),
  ignored({kAboutToLeave, kLeaving, kFailed, kClosing}, kResumed, "it does not matter any more"),
  ignored(kResuming, kGoodbyeDone, "none was said"),

  // ---- We leave
  go(kConnected, kRemoved, kAlways, kLeaving, {kBeginToLeave, kSayGoodbye}),
  go(kClear,     kRemoved, kAlways, kLeaving, {kStart, kBeginToLeave, kSayGoodbye}),
  // The peer's link may carry already, and it misses that if it goes without a goodbye.
  go(kCtsSent,    kRemoved, kAlways, kAboutToLeave, {kDropAll, kBeginToLeave}),
  go(kConnecting, kRemoved, !kReceives && kHeard, kAboutToLeave, {kDropAll, kBeginToLeave}),
  go(kAboutToLeave, {kMade, kCtsArrived}, kAlways, kLeaving, {kStart, kSayGoodbye}),
  go(kAboutToLeave, {kGoodbyeDone, kGoodbyeArrived, kSuperseded, kLost, kSetUpFailed, kLinkFailed}, kAlways, kClosing, {kDropAll, kCloseAll}),
  ignored(kAboutToLeave, {kSendWanted, kReceivesWanted, kLinked, kPeerSpoke, kSenderGone, kRemoved, kRestWanted, kRestAsked, kRestDeclined}, "the endpoint has been removed"),
  go({kCtsAwaited, kSelf, kFailed}, kRemoved, kAlways, kClosing, {kDropAll, kCloseAll}),
  go(kIdle,       kRemoved, !kReceives, kClosing, {kDropAll, kCloseAll}),
  go(kConnecting, kRemoved, !kReceives && !kHeard, kClosing, {kDropAll, kCloseAll}),
  go(kIdle,       kRemoved, kReceives, kIdle, {}),
  go(kConnecting, kRemoved, kReceives, kIdle, {kDropAll, kCloseDirection, kDoubtCounts}),
  go(kLeaving, {kGoodbyeDone, kGoodbyeArrived, kLost, kSetUpFailed, kLinkFailed}, kAlways, kClosing, {kDropAll, kCloseAll}),
  ignored({kIdle, kConnecting, kCtsSent, kCtsAwaited, kClear, kConnected, kSelf}, kGoodbyeDone, "none was said"),
  ignored(kLeaving, {kSendWanted, kReceivesWanted, kLinked, kMade, kCtsArrived, kRemoved, kRestWanted, kRestAsked, kRestDeclined}, "the endpoint has been removed"),

  // ---- The end. Nothing leads back from here.
  ignored(kFailed,
          {kSendWanted, kReceivesWanted, kLinked, kMade, kCtsArrived, kPeerSpoke, kGoodbyeArrived, kGoodbyeDone,
           kSuperseded, kSenderGone, kLost, kLinkFailed, kRestWanted, kRestAsked, kRestDeclined}, "the endpoint has failed, and that is reported"),
  go(kFailed, kSetUpFailed, kAlways, kFailed, {kCloseAll}),
  ignored(kClosing,
          {kSendWanted, kReceivesWanted, kLinked, kMade, kCtsArrived, kPeerSpoke, kGoodbyeArrived, kGoodbyeDone,
           kSuperseded, kSenderGone, kLost, kSetUpFailed, kLinkFailed, kRemoved, kRestWanted, kRestAsked, kRestDeclined}, "the endpoint has been removed"),
  });
};
// clang-format on

/// A link starts to carry only where a connection is being made: whatever comes late cannot revive an endpoint.
[[nodiscard]] constexpr bool only_set_up_starts_a_link() noexcept {
  return std::none_of(Rows::kAll.begin(), Rows::kAll.end(), [](const auto& row) {
    const bool late = row.states.has(kLeaving) || row.states.has(kFailed) || row.states.has(kClosing);
    return late && row.does(kStart);
  });
}

static_assert(Rows::is_complete(Rows::kAll, kEndpointStates, kEndpointEvents, [](unsigned, unsigned) { return true; }),
              "a cell of the endpoint table has no row, or several");
static_assert(only_set_up_starts_a_link());

}  // namespace endpoint_detail

/// What `event` leads to in `state`.
[[nodiscard]] constexpr EndpointStep endpoint_step(EndpointState state, EndpointEvent event,
                                                   const EndpointGuards& guards) noexcept {
  using endpoint_detail::Rows;
  return Rows::look_up(Rows::kAll, state, event, guard_bits(kEndpointGuardList, guards), endpoint_detail::kAfterError);
}

}  // namespace fabric
