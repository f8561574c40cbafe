// SPDX-License-Identifier: BSD-3-Clause
//
// The vocabulary of connection set-up: the states of a connection, what can happen to it, what it does then, and the
// facts that decide between alternatives. What follows from what is in connection_table.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/state_table.h"

namespace fabric::cpc {

/// States of a connection. "Active" is the side whose request is answered, "passive" the side that answers.
enum class State : std::uint8_t {
  kClosed,       ///< No queue pairs, no channel, no timer.
  kPosting,      ///< Active. Queue pairs made, the main thread posts receives.
  kQueued,       ///< Active, outgoing. Receives posted; the REQUEST waits for its turn at the shared sender.
  kRequestSent,  ///< Active. Receives posted; REQUEST sent, or its channel is being opened, or the next attempt is due.
  kYielded,      ///< Active until now. The peer refused our request: its own has precedence and is on its way.
  kAnswering,    ///< Passive. Queue pairs connected to the peer's, the main thread posts receives.
  kReplySent,    ///< Passive. Receives posted; REPLY sent, or will be when the peer comes back. Waits for CONFIRM.
  kConfirming,   ///< Active, usable. CONFIRM sent, but the peer is not known to have it.
  kConnected,    ///< Usable, and so is the peer. With a CTS exchange: linked, the rest is between the main threads.
  kClosing,      ///< It is over. Queue pairs in the error state; the main thread polls what is left.
};
inline constexpr std::size_t kStates = 10;

/// What can happen to a connection.
enum class Event : std::uint8_t {
  kConnectWanted,       ///< Main thread: Connect.
  kReceivesPosted,      ///< Main thread: ReceivesPosted.
  kPeerSpoke,           ///< Main thread: PeerSpoke.
  kCloseWanted,         ///< Main thread: Close.
  kWithdrawn,           ///< Main thread: Close, of a connection before this one, of which it does not know yet.
  kDestroyWanted,       ///< Main thread: Destroy.
  kRequestArrived,      ///< A REQUEST, on a channel that the peer opened (the "new channel").
  kLateRequestArrived,  ///< The same, but the target that it names is gone.
  kSenderReady,         ///< It is our turn at the shared sender: REQUEST may go.
  kTargetArrived,   ///< A TARGET on the channel that we opened: the peer's progress thread has a target for our sender.
  kReplyArrived,    ///< A REPLY on the channel that we opened.
  kMisfitArrived,   ///< Either, but with other numbers of queues than ours.
  kConfirmArrived,  ///< A CONFIRM on the peer's channel.
  kPauseArrived,  ///< A PAUSE, of the peer or of our listener: its channel goes to let others go first; it comes back.
  kRefusalArrived,     ///< A REFUSE on the channel: the peer will not, or no longer, connect.
  kOutdatedArrived,    ///< A REFUSE of this incarnation only: it is over, or the peer's main thread has given it up.
  kCollisionArrived,   ///< A REFUSE whose reason is that the peer's own request has precedence.
  kTargetGoneArrived,  ///< A REFUSE whose reason is that the target which our REQUEST named is gone.
  kConfirmTaken,       ///< The peer closed, in order, the channel on which we had sent CONFIRM: it has read it.
  kChannelLost,        ///< The channel could not be opened, broke, or was closed before its purpose was reached.
  kRetryTimer,         ///< The pause before the next attempt is over.
  kHandshakeTimer,     ///< The time for a peer to come back is over.
  kLocalError,         ///< Something on our side failed: verbs, or an address list of the peer that makes no sense.
};
inline constexpr std::size_t kEvents = 23;

/// What a transition does, in the order of its row. If one fails, kLocalError follows in place of the rest; or kChannelLost, if all
/// that is missing are queue pairs for a further attempt.
enum class Action : std::uint8_t {
  kNone,               ///< Ends a list.
  kMakeQueuePairs,     ///< Makes the queue pairs, in INIT. One way: joins a sender, or makes or takes a target.
  kConnectQueuePairs,  ///< Connects them to the ends in the message that has just arrived, unless they are connected.
  kFlushQueuePairs,    ///< To the error state. One way: leaves the sender.
  kDestroyQueuePairs,
  kWantSender,        ///< Asks for a turn at the shared sender (xrc_sender_table.h).
  kRetireSender,      ///< Tells the shared sender that its target is gone.
  kPostHandshake,     ///< Posts the handshake buffer, where the queues that CTS goes over take one.
  kOpenChannel,       ///< Starts the next attempt: opens a channel and sends REQUEST on it.
  kAdoptChannel,      ///< The new channel takes the place of the one we have, which is closed.
  kRefuseCollision,   ///< Refuses the new channel: our own request has precedence.
  kRefuseOther,       ///< Refuses the new channel: this connection has other queue pairs at the peer.
  kRefuseOutdated,    ///< Refuses the new channel: its incarnation is over.
  kRefuseTargetGone,  ///< Refuses the new channel: the target that its request names is gone.
  kHandOver,          ///< The new channel is for a newer connection, which takes the place of this one.
  kDropNewChannel,    ///< Closes the new channel; its peer is not told why.
  kSendTarget,        ///< On the channel we have.
  kSendReply,         ///< On the channel we have.
  kSendConfirm,       ///< On the channel we have.
  kSendRefusal,       ///< On the channel we have, if any, with the reason at hand.
  kCloseChannel,      ///< Closes the channel we have, if any; what was sent on it still arrives.
  kRenewIncarnation,  ///< The next REQUEST is of a newer incarnation.
  kNotePause,         ///< The peer will come back by itself.
  kStartOver,         ///< A newer connection takes the place of this one: the main thread wants one.
  kCountAttempt,      ///< What has failed counts like an attempt, though no pause follows: it must not go on for ever.
  kStartRetryTimer,   ///< Longer every time.
  kStartHandshakeTimer,
  kStopTimer,
  kAskForReceives,  ///< Upcall PostReceives.
  kTellConnected,   ///< Upcall Connected.
  kTellLinked,      ///< Upcall Linked.
  kTellPeerLeft,    ///< Upcall PeerLeft.
  kTellFailed,      ///< Upcall Failed. Who waits for us to connect the shared sender waits no longer.
  kTellFlushing,    ///< Upcall Flushing.
};
inline constexpr std::size_t kActionKinds = 34;

/// Facts that choose between the rows of one cell of the table.
struct Guards {
  /// Of crossing requests the peer's counts: it is of a newer incarnation, or of the same and its ProcessName is lower than
  /// ours, or ours has not left yet (it waits for its turn, or cannot get through).
  bool peer_has_precedence = false;
  bool newer = false;         ///< The request that arrived is of a newer incarnation than this connection.
  bool older = false;         ///< It is of an older one.
  bool old_attempt = false;   ///< It is of the same one, and of an attempt that the peer has given up since.
  bool same_ends = false;     ///< The message that arrived names the ends that our queue pairs are connected to.
  bool time_left = false;     ///< Another attempt may be made.
  bool channel_up = false;    ///< We have a channel.
  bool exchanges = false;     ///< The CPC leaves it to a CTS exchange to tell that receives are posted.
  bool wanted = false;        ///< The main thread has said Connect, and waits for what comes of it.
  bool outgoing = false;      ///< Messages go one way only, from us, over a shared sender to a shared target (xoob).
  bool incoming = false;      ///< The same, from the peer.
  bool names_target = false;  ///< Outgoing: our REQUEST named the target that the sender is connected to.
  bool peer_pauses = false;   ///< The peer has said PAUSE, and has not come back yet.
};
inline constexpr auto kGuardList = std::to_array<Guard<Guards>>({
    {&Guards::peer_has_precedence, "peer has precedence"},
    {&Guards::newer, "newer"},
    {&Guards::older, "older"},
    {&Guards::old_attempt, "old attempt"},
    {&Guards::same_ends, "same ends"},
    {&Guards::time_left, "time left"},
    {&Guards::channel_up, "channel up"},
    {&Guards::exchanges, "exchanges"},
    {&Guards::wanted, "wanted"},
    {&Guards::outgoing, "outgoing"},
    {&Guards::incoming, "incoming"},
    {&Guards::names_target, "names target"},
    {&Guards::peer_pauses, "peer pauses"},
});

namespace detail {
inline constexpr std::array<std::string_view, kStates> kStateNames{"Closed",    "Posting",   "Queued",    "RequestSent",
                                                                   "Yielded",   "Answering", "ReplySent", "Confirming",
                                                                   "Connected", "Closing"};
inline constexpr std::array<std::string_view, kEvents> kEventNames{
    "ConnectWanted",   "ReceivesPosted",   "PeerSpoke",          "CloseWanted",  "Withdrawn",
    "DestroyWanted",   "RequestArrived",   "LateRequestArrived", "SenderReady",  "TargetArrived",
    "ReplyArrived",    "MisfitArrived",    "ConfirmArrived",     "PauseArrived", "RefusalArrived",
    "OutdatedArrived", "CollisionArrived", "TargetGoneArrived",  "ConfirmTaken", "ChannelLost",
    "RetryTimer",      "HandshakeTimer",   "LocalError"};
inline constexpr std::array<std::string_view, kActionKinds> kActionNames{"None",
                                                                         "MakeQueuePairs",
                                                                         "ConnectQueuePairs",
                                                                         "FlushQueuePairs",
                                                                         "DestroyQueuePairs",
                                                                         "WantSender",
                                                                         "RetireSender",
                                                                         "PostHandshake",
                                                                         "OpenChannel",
                                                                         "AdoptChannel",
                                                                         "RefuseCollision",
                                                                         "RefuseOther",
                                                                         "RefuseOutdated",
                                                                         "RefuseTargetGone",
                                                                         "HandOver",
                                                                         "DropNewChannel",
                                                                         "SendTarget",
                                                                         "SendReply",
                                                                         "SendConfirm",
                                                                         "SendRefusal",
                                                                         "CloseChannel",
                                                                         "RenewIncarnation",
                                                                         "NotePause",
                                                                         "StartOver",
                                                                         "CountAttempt",
                                                                         "StartRetryTimer",
                                                                         "StartHandshakeTimer",
                                                                         "StopTimer",
                                                                         "AskForReceives",
                                                                         "TellConnected",
                                                                         "TellLinked",
                                                                         "TellPeerLeft",
                                                                         "TellFailed",
                                                                         "TellFlushing"};
}  // namespace detail

/// Names for traces and error texts: "RequestSent".
[[nodiscard]] constexpr std::string_view to_string(State state) noexcept {
  return detail::kStateNames[static_cast<std::size_t>(state)];
}
[[nodiscard]] constexpr std::string_view to_string(Event event) noexcept {
  return detail::kEventNames[static_cast<std::size_t>(event)];
}
[[nodiscard]] constexpr std::string_view to_string(Action action) noexcept {
  return detail::kActionNames[static_cast<std::size_t>(action)];
}

}  // namespace fabric::cpc
