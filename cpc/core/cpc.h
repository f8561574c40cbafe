// SPDX-License-Identifier: BSD-3-Clause
//
// Connection set-up, seen from the main thread.
//
// Two threads meet here. The *progress thread* owns Connection objects: it talks to peers, makes queue pairs and brings
// them up, asleep in an event loop the rest of the time. The *main thread* (whichever thread is inside MPI, under the
// module lock) owns endpoints: it posts receives and sends. Neither touches what the other owns. They exchange values
// through two queues: Commands (main -> progress) and Upcalls (progress -> main). Nothing ever waits.
//
// The life of a connection, for a CPC whose peers post receives before they answer (oob):
//
//     main thread                 progress thread                  peer
//     Connect  ---------------->  make queue pairs (INIT)
//              <----------------  PostReceives
//     ReceivesPosted ---------->  REQUEST ------------------------> make queue pairs, RTS,
//                                                                   PostReceives, ReceivesPosted
//                                 RTR, RTS <----------------------- REPLY
//              <----------------  Connected
//                                 CONFIRM ------------------------> Connected
//     Close    ---------------->  queue pairs to ERR
//              <----------------  Flushing
//     (polls every flushed completion)
//     Destroy  ---------------->  queue pairs destroyed
//
// And for CPCs that exchange CTS (rdmacm, ibcm), whose peers answer without their main threads:
//
//     Connect  ---------------->  make queue pairs (INIT),
//                                 post the handshake buffer
//                                 REQUEST ------------------------> the same; RTS
//                                 RTR, RTS <----------------------- REPLY
//              <----------------  Linked
//     (posts receives)            CONFIRM ------------------------> Linked
//     CTS -------------------- over the queue pairs ------------->  (posts receives)
//         <-------------------------------------------------------  CTS
//
// What comes after Linked is in btl_fabric/peer/endpoint_table.h.
//
// And for X queues (xoob), whose connections go one way, from the side that asks to the other:
//
//     main thread                 progress thread                  peer
//     Connect (kOutgoing) ----->
//              <----------------  PostReceives, without queue pairs: fill the SRQs, into which the peer will send soon
//     ReceivesPosted ---------->  join the sender to the peer's node; wait in line if somebody has its target made
//                                 REQUEST ------------------------> make the target, or take the one that is named
//                                 sender: RTR, RTS <--------------- TARGET
//                                                                   PostReceives (kIncoming, target_qpn)
//                                                                   ReceivesPosted
//              <----------------  Connected, with XrcPath <-------- REPLY, with SRQ numbers
//                                 CONFIRM ------------------------> Connected (kIncoming)
//     Close    ---------------->  leave the sender (the last one moves it to ERR)
//              <----------------  Flushing
//     Destroy  ---------------->
//
// A message may come over target_qpn as soon as the peer's ReceivesPosted is said, as with the others.
//
// A REQUEST from a peer that the main thread has not asked for yields PostReceives (or Linked) just the same: the endpoint is made
// on first contact. The main thread refuses with Close. A Connect while a connection is under way is for that one: its
// Connected will come. What may happen when is in connection_table.h, and nowhere else.
//
// A key has one connection after the other, and those that have ended may still be taken down when the next one comes
// about. They are told apart by a number, which every command and upcall carries; a command for one that is not there any
// more is dropped. A connection ends because the main thread says Close, because it fails (Failed), or because a newer
// one takes its place (the peer has connected again). In each case the main thread hears Flushing, and ends with
// Destroy. Whatever is said of a newer one comes after that Flushing.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/identity.h"
#include "common/ports/port_address.h"
#include "cpc/core/cpc_traits.h"
#include "cpc/loop/async_events.h"
#include "cpc/queue_pairs/handshake_slab.h"
#include "cpc/queue_pairs/queue_pairs.h"

namespace fabric::cpc {

/// Which way a connection carries messages. Those of X queues go one way, and each way is connected by itself, by the
/// side that sends: so no connection ever waits for one that goes the other way, and none collide.
enum class Direction : std::uint8_t { kBoth, kOutgoing, kIncoming };

/// "outgoing ", "incoming " or "", to go before "connection".
[[nodiscard]] constexpr std::string_view direction_prefix(Direction direction) noexcept {
  return direction == Direction::kOutgoing ? "outgoing " : direction == Direction::kIncoming ? "incoming " : "";
}

/// Names a connection on both threads: which peer, which port of each side, and which way.
struct ConnectionKey {
  ProcessName peer;
  std::uint16_t local_port = 0;
  std::uint16_t remote_port = 0;
  Direction direction = Direction::kBoth;
  auto operator<=>(const ConnectionKey&) const = default;
};

/// Which of the connections that a key has one after the other: counts up from 1. (Not the same number as at the peer,
/// for whom connections that come to nothing here may never have existed: incarnations.h.)
using LinkNumber = std::uint32_t;

/// Where a peer is and how to prove to it that we belong to its job; from its modex.
struct PeerTarget {
  CpcTraits cpc;                 ///< the method that was chosen
  std::vector<std::byte> offer;  ///< the CPC's blob
  JobToken token{};              ///< the peer's
  bool same_node = false;        ///< its loopback addresses are ours
  std::uint8_t subset = 0;       ///< the queues of a connection with it: which of PortContext::subsets
  bool was_there = false;        ///< it has been connected before: where nobody listens any more, it is not waited for
  unsigned retry_time_ms = 0;    ///< for as long it is tried again, if that is longer than Settings::retry_time_ms
  Gid gid{};                     ///< of the peer's port
};

// ---- main -> progress

/// Connect when you can. Answered by PostReceives, then Connected or Failed, of this link or of a newer one.
struct Connect {
  ConnectionKey key;
  LinkNumber link = 0;  ///< higher than any that the main thread has used or heard of
  PeerTarget target;
};
/// Every receive that PostReceives asked for is posted.
struct ReceivesPosted {
  ConnectionKey key;
  LinkNumber link = 0;
};
/// A message of the peer has arrived on the connection: the peer is connected, whatever became of its CONFIRM.
struct PeerSpoke {
  ConnectionKey key;
  LinkNumber link = 0;
};
/// The main thread gives the connection up, or refuses it, and wants no other. `reason` goes to a peer that still waits for
/// an answer. Answered by Flushing, unless that has been said.
struct Close {
  ConnectionKey key;
  LinkNumber link = 0;
  std::string reason;
  bool is_final = false;  ///< the peer need not ask again
};
/// All completions of the connection are polled and nobody uses its handles any more.
struct Destroy {
  ConnectionKey key;
  LinkNumber link = 0;
};

using Command = std::variant<Connect, ReceivesPosted, PeerSpoke, Close, Destroy>;

// ---- progress -> main

/// Fill the receive queues of these queue pairs, then say ReceivesPosted.
struct PostReceives {
  ConnectionKey key;
  LinkNumber link = 0;
  std::vector<ibv_qp*>
      queue_pairs;  ///< one per queue of the connection, valid until Destroy; none if the direction is not kBoth
  std::uint32_t target_qpn = 0;   ///< kIncoming: completions of receives with this number are messages of the peer
  std::uint32_t incarnation = 0;  ///< kIncoming: of the connection, the same number on both sides
};
/// The way to one process over the send queue pair that all processes of its node share (xoob).
struct XrcPath {
  ibv_qp* queue_pair = nullptr;  ///< valid until Destroy; another connection's path may have the same one
  std::uint64_t sender = 0;      ///< names the shared queue pair, never used twice: equal numbers, same send queue
  std::vector<std::uint32_t> srq_numbers;  ///< the peer's, one per queue: ibv_send_wr::qp_type.xrc.remote_srqn
  std::uint32_t incarnation = 0;           ///< of the connection, the same number on both sides (incarnations.h)
};
/// Both sides have posted their receives and their queue pairs are up: send. `remote_ends` are for messages to users.
struct Connected {
  ConnectionKey key;
  LinkNumber link = 0;
  std::vector<QueuePairEnd> remote_ends;
  XrcPath xrc{};  ///< of kOutgoing
};
/// The queue pairs of both sides are up, but nobody has posted receives: post them, and exchange CTS.
struct Linked {
  ConnectionKey key;
  LinkNumber link = 0;
  std::vector<ibv_qp*> queue_pairs;  ///< one per queue of the connection, valid until Destroy
  std::vector<QueuePairEnd> remote_ends;
  HandshakeSlot handshake;  ///< valid until Destroy
  bool may_speak_first = true;
  std::uint32_t cts = 0;  ///< what the CTS of both sides carries
};
/// After Linked: the peer has closed the connection, or its host or process is gone.
struct PeerLeft {
  ConnectionKey key;
  LinkNumber link = 0;
  std::string reason;
};
/// The connection cannot be made, was refused, or is lost. Its Flushing follows. May be the first that the main thread hears
/// of a connection that a peer wanted.
struct Failed {
  ConnectionKey key;
  LinkNumber link = 0;
  std::string reason;          ///< for a user: what happened, where
  std::string history;         ///< the last transitions, oldest first: "Closed -ConnectWanted-> Posting, ..."
  bool was_wanted = false;     ///< a Connect awaits it; otherwise one that has crossed this is answered by a newer one
  bool is_final = false;       ///< another Connect is of no use: the peer has ended, or will have no connection
  bool has_no_device = false;  ///< the peer's device is gone, or ours
};
/// The connection is over. Its queue pairs are in the error state (or there are none): poll what is left, then say Destroy.
/// A queue pair that other connections share goes on; what this one has posted completes in its own time.
struct Flushing {
  ConnectionKey key;
  LinkNumber link = 0;
};
/// Queue pairs are destroyed: those of an attempt that came to nothing, of which the main thread may have heard by their
/// completions alone, or of a connection that is over. What it keeps by their numbers can go, once the completions that are
/// here are taken.
struct QueuePairsGone {
  ConnectionKey key;
  LinkNumber link = 0;
  std::uint64_t handshake = 0;  ///< HandshakeSlot::serial; 0: none
  std::uint32_t first_qpn = 0;  ///< of the first queue: another queue pair may have the number by now
  std::uint32_t cts = 0;        ///< as in Linked; 0: they were connected to none
  std::uint64_t sender = 0;     ///< kOutgoing: XrcPath::sender, if this was its last connection
};
/// This process is short of something: connections wait until it is not. Said once by each CPC. Or, if it is fatal: the
/// progress thread had no memory for something, which is lost.
struct Shortage {
  std::string reason;  ///< for a user
  bool is_fatal = false;
};
/// Something did not go as the user's parameters want, and the connection comes about all the same. Said once by each CPC.
struct Remark {
  std::string text;  ///< for a user
};
/// So many connections wait until the port has queue pairs for them, or another port of its device: give idle ones up. Said
/// whenever the number changes.
struct RoomWanted {
  std::uint16_t local_port = 0;
  std::size_t connections = 0;
};
/// ConnectionSettings::keepalive_ms are over: peers of which nothing has been heard since the last time are to be asked whether they
/// are there. Said again only when it has been taken.
struct KeepAliveDue {};
using Upcall = std::variant<PostReceives, Connected, Linked, PeerLeft, Failed, Flushing, QueuePairsGone, AsyncEvent,
                            Shortage, RoomWanted, KeepAliveDue, Remark>;

}  // namespace fabric::cpc

template <>
struct std::hash<fabric::cpc::ConnectionKey> {
  std::size_t operator()(const fabric::cpc::ConnectionKey& key) const noexcept {
    return std::hash<fabric::ProcessName>{}(key.peer) * 31 + (std::size_t{key.local_port} << 16) + key.remote_port +
           (static_cast<std::size_t>(key.direction) << 32);
  }
};
