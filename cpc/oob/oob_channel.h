// SPDX-License-Identifier: BSD-3-Clause
//
// A channel of the oob or xoob CPC: one attempt to connect one pair of ports. It goes over a TCP connection (oob_stream.h)
// that it shares with the others between the same two processes. Messages that do not belong there end that.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cpc/core/channel.h"
#include "cpc/core/message.h"
#include "cpc/loop/event_loop.h"
#include "cpc/oob/oob_addresses.h"
#include "cpc/oob/path_questions.h"

namespace fabric::cpc {

class OobStream;
class OobStreams;

/// Progress thread only. Destroying it closes it; what was sent before is still delivered.
class OobChannel final : public Channel {
 public:
  /// A channel that we open: once the path to the port of the peer that has GID `to` is known, `request` goes over a stream to the peer that is
  /// there, or over one to the first of `addresses` that answers. While the peer's main thread computes and others wait for the
  /// stream's place (PAUSE), it leaves the stream and asks again later: the same request once more is the same request
  /// (connection_table.h).
  OobChannel(OobStreams& streams, const ChannelIdentity& identity, std::vector<SocketAddress> addresses, const Gid& to,
             Message request);
  /// A channel that a peer has opened by this request.
  OobChannel(OobStreams& streams, const JobToken& token, const Message& request);
  ~OobChannel() override;

  [[nodiscard]] const CpcTraits& cpc() const noexcept override;
  [[nodiscard]] bool opened_by_us() const noexcept override { return opener_; }
  [[nodiscard]] bool request_left() const noexcept override { return request_left_; }
  [[nodiscard]] unsigned tried_ms() const noexcept override { return tried_ms_; }
  [[nodiscard]] bool nobody_listens() const noexcept override { return nobody_listens_; }
  void send(Message message) override;
  [[nodiscard]] Status connect(QueuePairs& queue_pairs, const Message& from_peer) override {
    return queue_pairs.connect(from_peer.address, from_peer.ends);
  }

  // The stream's
  void on_joined(OobStream& stream, bool is_open) noexcept;
  void on_left() noexcept { stream_ = nullptr; }
  /// What the stream is to send first; once. Null if the peer has opened the channel, or it was given.
  [[nodiscard]] const Message* take_request() noexcept;
  /// The stream begins anew: nothing was sent.
  void on_restart() noexcept;
  /// The peer may know of the channel, and has not closed it.
  [[nodiscard]] bool has_spoken() const noexcept { return !opener_ || is_requested_; }
  [[nodiscard]] MessageHeader header(MessageType type) const noexcept;
  [[nodiscard]] bool is_meant(const MessageHeader& header) const noexcept;
  [[nodiscard]] bool takes(MessageType type) const noexcept;
  /// All that happens is that a main thread thinks.
  [[nodiscard]] bool waits() const noexcept { return opener_ ? !is_answered_ : !has_answered_; }
  [[nodiscard]] Message closing() const;
  // It has left the stream in these:
  void on_message(Message message);
  void on_paused();
  void on_stream_lost(const std::string& reason, unsigned tried_ms, bool nobody_listens);

 private:
  void join();
  void join_stream();
  void fill_in_address(Message& message) const;
  void come_back_later();
  void leave_quietly() noexcept;

  OobStreams& streams_;
  const bool opener_;
  OobStream* stream_ = nullptr;
  bool is_requested_ = false;  ///< the REQUEST was sent on this stream
  bool request_left_ = false;  ///< on this or an earlier one
  bool was_open_ = false;      ///< the stream, when it was joined
  bool is_answered_ = false;   ///< of a channel that we open: a message other than TARGET has come
  bool has_answered_ = false;  ///< of a channel that a peer has opened: REPLY or REFUSE was sent
  bool confirm_sent_ = false;
  bool confirm_read_ = false;
  const Gid to_;  ///< of the peer's port
  // Of a channel that we open
  JobToken peer_token_{};
  std::vector<SocketAddress> addresses_;
  Message request_;
  std::unique_ptr<PathQuestions::Wait> asked_;  ///< while the path is not known
  std::unique_ptr<Timer> pause_;                ///< after a PAUSE of the peer's
  unsigned pauses_ = 0;                         ///< how often
  std::chrono::steady_clock::time_point joined_;
  unsigned tried_ms_ = 0;
  bool nobody_listens_ = false;
};

}  // namespace fabric::cpc
