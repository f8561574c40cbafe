// SPDX-License-Identifier: BSD-3-Clause
//
// A channel of the oob or xoob CPC: one TCP connection, for one attempt to connect one pair of ports. Messages that do not belong
// there end it. The listener has the first word (HELLO), and every message after it is signed with the channel's key.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/identity.h"
#include "cpc/core/channel.h"
#include "cpc/core/message.h"
#include "cpc/loop/connect_throttle.h"
#include "cpc/loop/event_loop.h"
#include "cpc/loop/file_descriptor.h"
#include "cpc/oob/oob_dialer.h"

namespace fabric::cpc {

/// What the channels that we open share; outlives them.
struct DialEnvironment {
  event_base* loop = nullptr;
  ConnectThrottle* throttle = nullptr;
  ShortageReport* shortage = nullptr;
  unsigned timeout_ms = 0;  ///< for an address to answer
};

/// Progress thread only. Destroying it closes it; what was sent before is still delivered.
class OobChannel final : public Channel {
 public:
  /// A channel to be opened, when its turn comes, to the first of `addresses` that answers, each within the time-out;
  /// `request` goes out first. While the peer's main thread computes and others wait for a turn, or for a place at the
  /// peer's listener (PAUSE), it closes its socket and asks again later: the same request once more is the same request
  /// (connection_table.h).
  /// `cpc`: oob or xoob.
  OobChannel(const DialEnvironment& environment, const CpcTraits& cpc, const ChannelIdentity& identity,
             std::vector<SocketAddress> addresses, Message request);

  /// A channel that a peer has opened: it says HELLO, and takes nothing but a REQUEST for `self` that was signed
  /// with `token`, which completes the identity.
  /// `closed` is called when it is gone.
  OobChannel(event_base* loop, const CpcTraits& cpc, FileDescriptor socket, const JobToken& token,
             const ProcessName& self, std::function<void()> closed);
  ~OobChannel() override;

  [[nodiscard]] const CpcTraits& cpc() const noexcept override { return cpc_; }
  [[nodiscard]] bool opened_by_us() const noexcept override { return opener_; }
  [[nodiscard]] bool request_left() const noexcept override { return request_left_; }
  [[nodiscard]] unsigned tried_ms() const noexcept override;
  [[nodiscard]] bool nobody_listens() const noexcept override { return nobody_listens_; }
  void send(Message message) override;
  /// True if a byte has come from the peer.
  [[nodiscard]] bool was_spoken_to() const noexcept { return was_spoken_to_; }
  /// Of a channel that a peer has opened: others wait for its place. If all that happens here is that our main thread
  /// thinks, sends PAUSE, and tells the owner as if the peer had. True if so; then it may be gone.
  [[nodiscard]] bool defer();
  /// True if nothing waits in the socket to be read.
  [[nodiscard]] bool all_is_read() const noexcept;
  [[nodiscard]] Status connect(QueuePairs& queue_pairs, const Message& from_peer) override {
    return queue_pairs.connect(from_peer.address, from_peer.ends);
  }

 private:
  void ask_for_turn();
  void dial();
  void yield();
  void yield_dial();
  void start_anew();
  void come_back_later();
  void start_reading();
  void put(Message message);
  void say_hello();
  void try_first(std::size_t address);
  void try_another();
  [[nodiscard]] bool take_hello();
  void on_dialed(Result<FileDescriptor> socket);
  void on_readable();
  [[nodiscard]] bool receive();
  [[nodiscard]] bool deliver();
  void lose_malformed(const Error& error);
  void consume(std::size_t bytes);
  [[nodiscard]] Status check(const MessageHeader& header) const;
  [[nodiscard]] bool belongs(MessageType type) const noexcept;
  void flush();
  void lose(std::string reason, bool confirm_taken = false);

  event_base* loop_;
  const CpcTraits& cpc_;
  bool opener_;             ///< we opened it
  bool requested_ = false;  ///< the REQUEST was sent or has arrived
  bool request_left_ = false;
  bool was_spoken_to_ = false;
  bool is_answered_ = false;   ///< of a channel that we open: a message other than TARGET has come
  bool has_answered_ = false;  ///< of a channel that a peer has opened: REPLY or REFUSE was sent
  bool confirm_queued_ = false;
  bool confirm_sent_ = false;
  std::function<void()> closed_;   ///< of a channel that a peer has opened
  std::string remote_;             ///< "10.0.0.1:4000", for users
  std::optional<MessageKey> key_;  ///< once HELLO was said
  std::vector<std::byte> output_;
  std::array<std::byte, kMaxMessageBytes> input_{};
  std::size_t input_size_ = 0;
  // Of a channel that we open
  DialEnvironment environment_;
  std::vector<SocketAddress> addresses_;
  Message request_;
  std::unique_ptr<ConnectThrottle::Ticket> ticket_;
  std::unique_ptr<Dialer> dialer_;
  std::chrono::steady_clock::time_point dialed_;  ///< when it was begun; not set once it has led to a socket
  unsigned dialed_ms_ = 0;                        ///< before that, in turns that were given to others
  std::unique_ptr<Timer> hello_due_;              ///< of one address of several, while it has not said HELLO
  std::unique_ptr<Timer> pause_;                  ///< after a PAUSE of the peer's
  unsigned pauses_ = 0;                           ///< how often
  FileDescriptor socket_;
  bool nobody_listens_ = false;
  std::unique_ptr<Watch> reading_;  ///< after socket_, to be gone before it is closed
  std::unique_ptr<Watch> writing_;  ///< runs while output_ waits
};

}  // namespace fabric::cpc
