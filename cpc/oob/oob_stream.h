// SPDX-License-Identifier: BSD-3-Clause
//
// One TCP connection between two processes, which all their channels share: those of each port, each context, and each
// direction, whichever side opened the channel. The listener has the first word (HELLO); every message after it is signed
// for its place in the order, so that none can be sent again, or back. What is said in one turn of the loop leaves together.
//
// Whoever connects is known once it has sent a REQUEST that is good. A stream without channels is idle: it stays for a
// while, for those that come soon (oob_streams.h).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/identity.h"
#include "cpc/core/message.h"
#include "cpc/loop/event_loop.h"
#include "cpc/loop/file_descriptor.h"
#include "cpc/oob/oob_call.h"

namespace fabric::cpc {

class OobChannel;
class OobStream;
class OobStreams;

/// Who has accepted a stream. Neither function destroys it.
class OobHost {
 public:
  /// It is a process of the job: its first REQUEST has come.
  virtual void on_known(OobStream& stream) = 0;
  /// Its socket is closed.
  virtual void on_closed(OobStream& stream) = 0;

 protected:
  ~OobHost() = default;
};

/// Progress thread only. Belongs to an OobStreams, which frees it some time after it has been closed.
class OobStream final : private OobCaller {
 public:
  /// Calls `peer`, whose listener has `token`, for the first channel that joins.
  OobStream(OobStreams& all, const ProcessName& peer, const JobToken& token, std::vector<SocketAddress> addresses);
  /// Says HELLO to whoever has connected; `host` outlives this.
  OobStream(OobStreams& all, FileDescriptor socket, const SocketAddress& from, OobHost& host);
  ~OobStream();
  OobStream(const OobStream&) = delete;
  OobStream& operator=(const OobStream&) = delete;

  /// Nothing once it is closed, or while it is not known.
  [[nodiscard]] const std::optional<ProcessName>& peer() const noexcept { return peer_; }
  /// Of the side that listens.
  [[nodiscard]] const JobToken& token() const noexcept { return token_; }
  /// Both sides know each other: a message leaves at once.
  [[nodiscard]] bool is_open() const noexcept { return key_ && peer_; }
  [[nodiscard]] bool is_accepted() const noexcept { return host_ != nullptr; }
  [[nodiscard]] const std::vector<OobChannel*>& channels() const noexcept { return channels_; }
  /// "10.0.0.1:4000", for users.
  [[nodiscard]] std::string remote() const { return to_string(remote_); }
  [[nodiscard]] bool was_spoken_to() const noexcept { return was_spoken_to_; }
  /// True if nothing waits in the socket to be read.
  [[nodiscard]] bool all_is_read() const noexcept;
  /// Since when it has had a channel, or none.
  [[nodiscard]] std::chrono::steady_clock::time_point since() const noexcept { return since_; }

  // A channel's
  /// Sends its REQUEST, at once or when it is open.
  void join(OobChannel& channel);
  /// It has no more to say. Tells the peer, if that may know of it.
  void leave(OobChannel& channel) noexcept;
  /// Nothing is said.
  void drop(OobChannel& channel) noexcept;
  void send(Message message);

  /// Others wait for its place. If all that happens here is that main threads think, says PAUSE on each channel, tells the
  /// owners of those that the peer has opened as if the peer had, and closes. Ours go over another one. True if so.
  [[nodiscard]] bool give_way();
  /// What was said still goes. Whoever has a channel here is not told.
  void close() noexcept;

 private:
  friend class OobStreams;
  using List = std::list<std::unique_ptr<OobStream>>;
  void on_turn() override;
  void on_dialed(FileDescriptor socket) override;
  void on_not_dialed(std::string reason) override;
  void on_silence() override;
  void on_others_wait() override;

  void use(FileDescriptor socket);
  void start_anew();
  void say_hello();
  [[nodiscard]] bool take_hello();
  void open_channels();
  void put(Message message);
  void flush() noexcept;
  void on_readable();
  [[nodiscard]] bool receive();
  [[nodiscard]] bool deliver();
  void consume(std::size_t bytes) noexcept;
  [[nodiscard]] Status check(const MessageHeader& header) const;
  [[nodiscard]] OobChannel* find(const MessageHeader& header) const noexcept;
  void begin(Message request);
  void dispatch(Message message);
  [[nodiscard]] bool all_wait() const noexcept;
  [[nodiscard]] OobChannel* take_channel(bool of_peer_only) noexcept;
  void call_again();
  void lose_malformed(const Error& error);
  void lose(std::string reason);
  void rest() noexcept;

  OobStreams& all_;
  OobHost* host_ = nullptr;        ///< of one that was accepted
  std::unique_ptr<OobCall> call_;  ///< of one that we open
  std::optional<ProcessName> peer_;
  JobToken token_{};
  std::optional<MessageKey> key_;  ///< once HELLO was said
  std::uint64_t sent_ = 0;         ///< messages
  std::uint64_t received_ = 0;
  std::vector<OobChannel*> channels_;
  std::chrono::steady_clock::time_point since_;
  bool was_spoken_to_ = false;
  bool is_closed_ = false;
  SocketAddress remote_;
  std::vector<std::byte> output_;
  std::array<std::byte, 2 * kMaxMessageBytes> input_{};
  std::size_t input_size_ = 0;
  List* is_in_ = nullptr;  ///< and where; the OobStreams'
  List::iterator place_;
  bool takes_over_ = false;  ///< what waits for a call to the same peer
  FileDescriptor socket_;
  std::unique_ptr<Watch> reading_;  ///< after socket_, to be gone before it is closed
  std::unique_ptr<Watch> writing_;  ///< runs while output_ waits
};

}  // namespace fabric::cpc
