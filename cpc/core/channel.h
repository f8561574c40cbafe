// SPDX-License-Identifier: BSD-3-Clause
//
// What two Connections talk over during one attempt, whichever CPC carries it: the seam between the connection table
// and the ways to set up a connection. Who opened the channel sends REQUEST, then CONFIRM; who listened sends REPLY;
// both may send REFUSE, and PAUSE before they close the channel for a while: either way, who opened it comes back. A
// listener's PAUSE is dealt with inside the channel, and costs no attempt.
//
//     message   oob (TCP)                       rdmacm, ibcm (an id of the communication manager for every queue pair)
//     REQUEST   first message                   a REQ for every queue pair; arrived when all of them have
//     REPLY     answer                          a REP for every queue pair
//     CONFIRM   then the listener says CLOSE    an RTU for every queue pair; then the channel stays, and is lost when
//                                               the peer disconnects
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/base/identity.h"
#include "cpc/core/cpc.h"
#include "cpc/core/message.h"
#include "cpc/queue_pairs/queue_pairs.h"
#include "cpc/queue_pairs/xrc_domain_port.h"

namespace fabric::cpc {

class Channel;

/// Who owns a channel hears from it here. Either function may destroy the channel. Never called from within a function
/// of the channel that the owner calls.
class ChannelHandler {
 public:
  virtual void on_message(Channel& channel, Message message) = 0;
  /// The channel is of no more use. `confirm_taken`: the peer closed it in order, after all of our CONFIRM was sent.
  virtual void on_lost(Channel& channel, std::string reason, bool confirm_taken) = 0;

 protected:
  ~ChannelHandler() = default;
};

/// Whose channel it is; every message on it must agree.
struct ChannelIdentity {
  JobToken token{};  ///< of the listening process: the key of all messages
  ProcessName self;
  ProcessName peer;
  std::uint16_t self_port = 0;
  std::uint16_t peer_port = 0;
  std::uint32_t attempt = 0;
  std::uint32_t incarnation = 0;

  /// The header of a message of ours, or of the peer's.
  [[nodiscard]] MessageHeader outgoing(MessageType type) const noexcept {
    return {type, 0, {}, self, peer, self_port, peer_port, attempt, incarnation};
  }
  [[nodiscard]] MessageHeader incoming(MessageType type) const noexcept {
    return {type, 0, {}, peer, self, peer_port, self_port, attempt, incarnation};
  }
  /// True if the peer sends such a header on this channel. The proof is not looked at.
  [[nodiscard]] bool is_of_peer(const MessageHeader& header) const noexcept {
    return header.sender == peer && header.target == self && header.sender_port == peer_port &&
           header.target_port == self_port && header.attempt == attempt && header.incarnation == incarnation;
  }
};

/// Progress thread only. Destroying it closes it; what was sent before is still delivered.
class Channel {
 public:
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  virtual ~Channel() = default;

  /// The CPC that it is a channel of.
  [[nodiscard]] virtual const CpcTraits& cpc() const noexcept = 0;
  /// True on the side that sent the REQUEST.
  [[nodiscard]] virtual bool opened_by_us() const noexcept = 0;

  /// True if some of our REQUEST may have left this host, so that the peer may know of it; true also if the channel does
  /// not know.
  [[nodiscard]] virtual bool request_left() const noexcept { return true; }

  /// Milliseconds in which it tried to get through to the peer, once its turn had come: those in which it waited for an
  /// answer do not count, unless it is the peer's progress thread that answers.
  [[nodiscard]] virtual unsigned tried_ms() const noexcept { return 0; }

  /// After on_lost(): the peer is there, and has no room for another request just now. That it is asked again costs
  /// nothing.
  [[nodiscard]] virtual bool peer_is_busy() const noexcept { return false; }

  /// After on_lost(): the peer's host answers that nobody listens there; on iWARP perhaps that there is no room for a request.
  [[nodiscard]] virtual bool nobody_listens() const noexcept { return false; }

  /// Before the next turn of the loop, and again when the channel changes hands.
  void set_handler(ChannelHandler* handler) noexcept { handler_ = handler; }
  [[nodiscard]] const ChannelIdentity& identity() const noexcept { return identity_; }

  /// Sends now, or when the channel is open. The header is filled in, except for its type.
  virtual void send(Message message) = 0;
  /// Sends a REFUSE. `newest`: newest incarnation that we know; 0: none.
  void refuse(RefuseReason reason, std::string text, std::uint32_t newest = 0) {
    Message message;
    message.header.type = MessageType::kRefuse;
    message.reason = reason;
    message.newest = newest;
    message.text = std::move(text);
    send(std::move(message));
  }

  /// Connects the queue pairs to those that a REQUEST or REPLY on this channel named.
  [[nodiscard]] virtual Status connect(QueuePairs& queue_pairs, const Message& from_peer) = 0;

 protected:
  ChannelHandler* handler_ = nullptr;
  ChannelIdentity identity_;
};

/// A CPC, as a Connection uses it.
class ChannelOpener {
 public:
  virtual ~ChannelOpener() = default;
  /// Starts to open a channel to `target` and sends `request` on it. An error: the target's offer makes no sense, or
  /// this process does not have what it takes.
  [[nodiscard]] virtual Result<std::unique_ptr<Channel>> open(const ChannelIdentity& identity, const PeerTarget& target,
                                                              Message request) = 0;
  /// X queues: the XRC domain of a port of the peer, from what it published.
  [[nodiscard]] virtual Result<XrcDomainPort> xrc_domain(const PeerTarget& /*target*/, std::uint16_t /*port*/) const {
    return failure("this connection method has no XRC domains");
  }
};

/// Takes a channel whose REQUEST has arrived.
using OnRequest = std::function<void(std::unique_ptr<Channel> channel, Message request)>;

}  // namespace fabric::cpc
