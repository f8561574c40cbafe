// SPDX-License-Identifier: BSD-3-Clause
//
// A channel of the oob CPC: one TCP connection, for one attempt to connect one pair of ports. Messages that do not belong
// there end it.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/identity.h"
#include "cpc/channel.h"
#include "cpc/event_loop.h"
#include "cpc/file_descriptor.h"
#include "cpc/oob_dialer.h"
#include "cpc/oob_message.h"

namespace fabric::cpc {

/// Progress thread only. Destroying it closes it; what was sent before is still delivered.
class OobChannel final : public Channel {
 public:
  /// A channel to be opened to the first of `addresses` that answers, each within `timeout_ms`; `request` goes out
  /// first.
  OobChannel(event_base* loop, const ChannelIdentity& identity, std::vector<SocketAddress> addresses,
             unsigned timeout_ms, Message request);

  /// A channel that a peer has opened: it takes nothing but a REQUEST for `self` with `token`, which completes the
  /// identity.
  OobChannel(event_base* loop, FileDescriptor socket, const JobToken& token, const ProcessName& self);

  [[nodiscard]] CpcKind kind() const noexcept override { return CpcKind::kOob; }
  [[nodiscard]] bool opened_by_us() const noexcept override { return opener_; }
  void send(Message message) override;
  [[nodiscard]] Status connect(QueuePairs& queue_pairs, const Message& from_peer) override {
    return queue_pairs.connect(from_peer.address, from_peer.ends);
  }

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
