// SPDX-License-Identifier: BSD-3-Clause
//
// The states, events, guards and actions of an endpoint. What follows what is in endpoint_table.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/state_table.h"

namespace fabric {

enum class EndpointState : std::uint8_t {
  kIdle,        ///< There is no link: nothing has been sent to the peer, or the last one is over.
  kConnecting,  ///< The progress thread makes a connection; what is to be sent waits.
  kCtsSent,     ///< The queue pairs are up, receives are posted and CTS is sent; the peer's CTS is awaited.
  kCtsAwaited,  ///< The same, but the peer sends its CTS first.
  kResuming,  ///< The link is up after one that has broken. What that one may not have delivered is found out, and sent again.
  kResting,  ///< We have asked the peer whether the link may go. What is to be sent waits for the answer, or the next link.
  kParting,  ///< The peer has asked so, and we agree: our goodbye is under way. What is to be sent waits for the next link.
  kClear,      ///< The link may carry, and nothing has been sent either way: nobody misses the connection if it goes.
  kConnected,  ///< The link carries.
  kSelf,       ///< The peer is this process: the link carries RDMA, and no messages.
  kAboutToLeave,  ///< Open MPI has taken the peer away before we could send: as soon as we can, goodbye is said.
  kLeaving,       ///< Our goodbye is under way; nothing else is sent or accepted.
  kFailed,        ///< It has been reported; whatever is sent is refused.
  kClosing,       ///< The link is being taken down. What is sent is refused, and nobody waits for anything.
};
inline constexpr std::size_t kEndpointStates = 14;
/// What is to be sent waits in these states, and in those before it.
inline constexpr EndpointState kLastThatWaits = EndpointState::kParting;

enum class EndpointEvent : std::uint8_t {
  kSendWanted,      ///< Something is to be sent to the peer.
  kReceivesWanted,  ///< Upcall PostReceives. With X queues it concerns no endpoint.
  kLinked,          ///< Upcall Linked: the queue pairs of both sides are up, and nobody has posted receives.
  kMade,            ///< Upcall Connected: both sides have posted receives.
  kCtsArrived,      ///< The peer's CTS has come over every queue that it goes over.
  kPeerSpoke,       ///< A message of the peer has come over a link that has not started.
  kGoodbyeArrived,  ///< The peer sends nothing more over this link, and wants nothing more.
  kGoodbyeDone,     ///< Our goodbye has arrived, could not be sent, or has taken too long.
  kSuperseded,      ///< The peer has connected anew: its end of the link is gone.
  kSenderGone,      ///< X queues: the queue pair that all share has failed, with nothing of this link under way.
  kLost,            ///< The connection is gone, and the peer has not said goodbye.
  kSetUpFailed,     ///< Upcall Failed, or we cannot do our part of the set-up.
  kLinkFailed,      ///< A transfer has failed, or the peer has broken the protocol.
  kRemoved,         ///< Open MPI takes the peer away.
  kRestWanted,      ///< Queue pairs are short, and this link has been idle for long.
  kRestAsked,       ///< The peer asks whether the link may go, and sends nothing until it hears an answer.
  kRestDeclined,    ///< The answer: the peer needs the link.
  kResumed,         ///< What a link before has not delivered is sent again.
  kPauseOver,       ///< It is time to try again to connect, after a link that has broken.
};
inline constexpr std::size_t kEndpointEvents = 19;

/// What is so at the time of the event.
struct EndpointGuards {
  bool may_speak_first = true;  ///< of kLinked: false on the passive side of an iWARP connection
  bool missed = false;          ///< somebody waits: for the peer, or for what has failed
  bool crossed = false;  ///< of kSetUpFailed: only the peer had asked, and our Connect is answered by a newer one
  bool theirs = false;   ///< of kSetUpFailed: only the peer had asked, and no Connect of ours is on its way
  bool is_self = false;
  bool other_way = false;  ///< X queues: it is about the connection by which only the peer sends
  bool heard = false;      ///< a message of the peer has come over the link, which carries both ways: it is connected
  bool idle = false;       ///< nothing of ours is under way over the link, nothing waits, and we owe no answer
  bool heals =
      false;  ///< the connection may be made anew: it has broken for a reason that may pass, and there is time left
  bool healing = false;  ///< a link has broken, and what it may not have delivered is to be sent again
  /// The same, and nobody needs that any more: another port has carried it; or it has been posted, and the peer, of another job, has gone.
  bool nothing_left = false;
  bool posted_all =
      false;  ///< the same, but all that was to be sent has been posted: a peer that takes leave has what it wants of it
  bool receives = false;  ///< X queues: there is such a connection, which outlives what Open MPI knows of the peer
};
inline constexpr auto kEndpointGuardList = std::to_array<Guard<EndpointGuards>>({
    {&EndpointGuards::may_speak_first, "may speak first"},
    {&EndpointGuards::missed, "missed"},
    {&EndpointGuards::crossed, "crossed"},
    {&EndpointGuards::theirs, "theirs"},
    {&EndpointGuards::is_self, "self"},
    {&EndpointGuards::other_way, "other way"},
    {&EndpointGuards::heard, "heard"},
    {&EndpointGuards::idle, "idle"},
    {&EndpointGuards::heals, "heals"},
    {&EndpointGuards::healing, "healing"},
    {&EndpointGuards::posted_all, "posted all"},
    {&EndpointGuards::nothing_left, "nothing left"},
    {&EndpointGuards::receives, "receives"},
});

enum class EndpointAction : std::uint8_t {
  kNone,
  kConnect,        ///< Ask the progress thread for a connection; connect the loopback if the peer is this process.
  kConnectAgain,   ///< The same after a link has broken: at once the first time, and then after a pause (kPauseOver).
  kPostReceives,   ///< Post every receive of the link.
  kSendCts,        ///< On each queue that CTS goes over.
  kTellPeerSpoke,  ///< Once.
  kStart,          ///< The link carries from now on, first of all what has waited.
  kBeginToLeave,   ///< From now on btl_fabric_goodbye_timeout counts.
  kSayGoodbye,
  kAskToRest,  ///< Over the link, which carries nothing more until the peer answers.
  kDeclineRest,
  kPutOffRest,   ///< The link does not carry yet: the event is handled when it does.
  kResume,       ///< The link carries again, first of all what has waited.
  kStopSending,  ///< X queues: the link carries again when it is connected anew. What waits stays.
  kRetire,       ///< The link carries nothing more, and goes when what is under way has completed. What waits stays.
  kDoubtCounts,  ///< Nobody has said whether the last of what we have sent has arrived. The next link begins with that.
  kBreakOff,  ///< The link carries nothing more, and goes when it is drained. What the peer may not have, and what waits, stays.
  kExchangeCounts,  ///< Tell the peer what has arrived; hear the same, and send again what has not.
  kReport,          ///< Tell the user.
  kNote,            ///< Tell those who asked for details: nobody misses it.
  kFailAll,         ///< Tell the PML; what waits ends with an error.
  kDropAll,         ///< What waits is dropped: Open MPI has taken leave of it.
  kCloseDirection,  ///< Give up the connection that the event is about.
  kCloseSending,    ///< Give up the connection by which we send. With X queues that by which the peer does stays.
  kCloseAll,        ///< Give up every connection with the peer.
};
inline constexpr std::size_t kEndpointActions = static_cast<std::size_t>(EndpointAction::kCloseAll) + 1;

namespace endpoint_detail {
inline constexpr std::array<std::string_view, kEndpointStates> kStateNames{
    "Idle",  "Connecting", "CtsSent", "CtsAwaited",   "Resuming", "Resting", "Parting",
    "Clear", "Connected",  "Self",    "AboutToLeave", "Leaving",  "Failed",  "Closing"};
inline constexpr std::array<std::string_view, kEndpointEvents> kEventNames{
    "SendWanted",  "ReceivesWanted", "Linked",       "Made",    "CtsArrived",  "PeerSpoke",  "GoodbyeArrived",
    "GoodbyeDone", "Superseded",     "SenderGone",   "Lost",    "SetUpFailed", "LinkFailed", "Removed",
    "RestWanted",  "RestAsked",      "RestDeclined", "Resumed", "PauseOver"};
inline constexpr std::array<std::string_view, kEndpointActions> kActionNames{
    "None",         "Connect",        "ConnectAgain", "PostReceives",   "SendCts",    "TellPeerSpoke", "Start",
    "BeginToLeave", "SayGoodbye",     "AskToRest",    "DeclineRest",    "PutOffRest", "Resume",        "StopSending",
    "Retire",       "DoubtCounts",    "BreakOff",     "ExchangeCounts", "Report",     "Note",          "FailAll",
    "DropAll",      "CloseDirection", "CloseSending", "CloseAll"};
}  // namespace endpoint_detail

[[nodiscard]] constexpr std::string_view to_string(EndpointState state) noexcept {
  return endpoint_detail::kStateNames[static_cast<std::size_t>(state)];
}
[[nodiscard]] constexpr std::string_view to_string(EndpointEvent event) noexcept {
  return endpoint_detail::kEventNames[static_cast<std::size_t>(event)];
}
[[nodiscard]] constexpr std::string_view to_string(EndpointAction action) noexcept {
  return endpoint_detail::kActionNames[static_cast<std::size_t>(action)];
}

}  // namespace fabric
