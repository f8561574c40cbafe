// SPDX-License-Identifier: BSD-3-Clause
//
// The TCP connections of a process with its peers: which one a channel goes over, and how long one without channels stays.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "common/base/identity.h"
#include "cpc/core/channel.h"
#include "cpc/oob/oob_stream.h"
#include "cpc/oob/path_questions.h"

namespace fabric::cpc {

/// Progress thread only. Outlives the channels.
class OobStreams {
 public:
  static constexpr std::size_t kMostIdle = 32;

  struct Environment {
    DialEnvironment dialing;
    const CpcTraits& cpc;  ///< of the channels
    JobToken token{};      ///< ours
    ProcessName self;
    /// How long one without channels stays: links of a pair of processes come about one soon after the other.
    std::chrono::milliseconds idle{1000};
    OnRequest on_request;                ///< takes the channels that peers open
    PathQuestions* questions = nullptr;  ///< of the channels that we open; outlives them. Null: none are asked
  };
  explicit OobStreams(Environment environment);
  ~OobStreams();
  OobStreams(const OobStreams&) = delete;
  OobStreams& operator=(const OobStreams&) = delete;

  [[nodiscard]] const Environment& environment() const noexcept { return environment_; }

  /// Takes a channel that we open to a stream to its peer: one that is there, or a new one, which calls these addresses.
  void join(OobChannel& channel, const ProcessName& peer, const JobToken& token,
            const std::vector<SocketAddress>& addresses);
  /// Somebody has connected.
  OobStream& accept(FileDescriptor socket, const SocketAddress& from, OobHost& host);
  /// Closes the stream that has been idle for longest. False if none is.
  [[nodiscard]] bool close_idle() noexcept;

  // A stream's
  void on_known(OobStream& stream);
  /// Channels that wait for a call to the same peer need not.
  void take_over(OobStream& stream);
  void on_idle(OobStream& stream) noexcept;
  void on_busy(OobStream& stream) noexcept;
  void on_closed(OobStream& stream) noexcept;

 private:
  using List = std::list<std::unique_ptr<OobStream>>;
  [[nodiscard]] OobStream* find(const ProcessName& peer, const JobToken& token) const noexcept;
  OobStream& keep(std::unique_ptr<OobStream> stream);
  void move(OobStream& stream, List& to) noexcept;
  void end_idle() noexcept;

  Environment environment_;
  std::unordered_multimap<ProcessName, OobStream*> by_peer_;
  List busy_;
  List idle_;    ///< longest first
  List closed_;  ///< to be freed: they may be in a call
  Timer idle_ends_;
  Timer freeing_;
};

}  // namespace fabric::cpc
