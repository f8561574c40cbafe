// SPDX-License-Identifier: BSD-3-Clause
//
// A channel of the oob CPC: one TCP connection, for one attempt to connect one pair of ports. Who opened it sends
// REQUEST, then CONFIRM; who listened sends REPLY; both may send REFUSE. Messages that do not belong there end the
// channel.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/identity.h"
#include "cpc/event_loop.h"
#include "cpc/file_descriptor.h"
#include "cpc/oob_dialer.h"
#include "cpc/oob_message.h"

namespace fabric::cpc {

class OobChannel;

/// Who owns a channel hears from it here. Either function may destroy the channel. Never called from within a function
/// of the channel that the owner calls.
class ChannelHandler {
 public:
  virtual void on_message(OobChannel& channel, Message message) = 0;
  /// The channel is of no more use. `confirm_taken`: the peer closed it in order, after all of our CONFIRM was sent.
  virtual void on_lost(OobChannel& channel, std::string reason, bool confirm_taken) = 0;

 protected:
  ~ChannelHandler() = default;
};

/// Whose channel it is; every message on it must agree.
struct ChannelIdentity {
  JobToken token{};  ///< of the listening process
  ProcessName self;
  ProcessName peer;
  std::uint16_t self_port = 0;
  std::uint16_t peer_port = 0;
  std::uint32_t attempt = 0;
};

/// Progress thread only. Destroying it closes it; what was sent before is still delivered.
class OobChannel {
 public:
  /// A channel to be opened to the first of `addresses` that answers, each within `timeout_ms`; `request` goes out
  /// first.
  OobChannel(event_base* loop, const ChannelIdentity& identity, std::vector<SocketAddress> addresses,
             unsigned timeout_ms, Message request);

  /// A channel that a peer has opened: it takes nothing but a REQUEST for `self` with `token`, which completes the
  /// identity.
  OobChannel(event_base* loop, FileDescriptor socket, const JobToken& token, const ProcessName& self);

  OobChannel(const OobChannel&) = delete;
  OobChannel& operator=(const OobChannel&) = delete;
  ~OobChannel() = default;

  /// Before the next turn of the loop, and again when the channel changes hands.
  void set_handler(ChannelHandler* handler) noexcept { handler_ = handler; }

  [[nodiscard]] const ChannelIdentity& identity() const noexcept { return identity_; }

  /// Sends now, or when the channel is open. The header is filled in, except for its type.
  void send(Message message);
  /// Sends a REFUSE.
  void refuse(RefuseReason reason, std::string text);

 private:
  void start_reading();
  void on_dialed(Result<FileDescriptor> socket);
  void on_readable();
  [[nodiscard]] bool receive();
  [[nodiscard]] bool deliver();
  [[nodiscard]] Status check(const MessageHeader& header) const;
  [[nodiscard]] bool belongs(MessageType type) const noexcept;
  void flush();
  void lose(std::string reason, bool confirm_taken = false);

  event_base* loop_;
  ChannelIdentity identity_;
  ChannelHandler* handler_ = nullptr;
  bool opener_;             ///< we opened it
  bool requested_ = false;  ///< the REQUEST was sent or has arrived
  bool confirm_queued_ = false;
  bool confirm_sent_ = false;
  std::string remote_;  ///< "10.0.0.1:4000", for users
  std::vector<std::byte> output_;
  std::array<std::byte, kMaxMessageBytes> input_{};
  std::size_t input_size_ = 0;
  std::unique_ptr<Dialer> dialer_;
  FileDescriptor socket_;
  std::unique_ptr<Watch> reading_;  ///< after socket_, to be gone before it is closed
  std::unique_ptr<Watch> writing_;  ///< runs while output_ waits
};

}  // namespace fabric::cpc
